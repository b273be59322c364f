"""What every installation must be able to do, with nothing but the package: run by scripts/test."""

import math
import sys
import time

import zeus
from zeus.monitor import PowerMonitor, ZeusMonitor

monitor = ZeusMonitor()
power = PowerMonitor()
monitor.begin_window("smoke")
time.sleep(0.5)
measured = monitor.end_window("smoke")
watts = power.get_power()
power.stop()
assert len(measured.gpu_energy) == 8 and all(j > 0 for j in measured.gpu_energy.values()), measured
assert measured.cpu_energy and not math.isnan(measured.energy), measured
assert watts and all(w > 0 for w in watts.values()), watts
foreign = {"numpy", "pandas", "torch", "httpx", "requests", "multiprocessing"} & set(sys.modules)
assert not foreign, f"imported without need: {foreign}"
print(zeus.__version__, measured)
