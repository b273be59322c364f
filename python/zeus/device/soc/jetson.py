"""NVIDIA Jetson: energy by integrating the power of the board's rails in a thread."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import queue
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path

from zeus.device.exception import ZeusBaseSoCError
from zeus.device.soc._jetson_rails import (
    DeviceMap,
    DirectPower,
    PowerMeasurementStrategy,
    VoltageCurrentProduct,
    check_file,
)
from zeus.device.soc.common import SoC, SoCMeasurement, ZeusSoCInitError

__all__ = [
    "Command",
    "DeviceMap",
    "DirectPower",
    "Jetson",
    "JetsonMeasurement",
    "PowerMeasurementStrategy",
    "VoltageCurrentProduct",
    "ZeusJetsonInitError",
    "check_file",
    "jetson_is_available",
]

logger = logging.getLogger(__name__)

_MARKERS = ("usr/lib/aarch64-linux-gnu/tegra", "etc/nv_tegra_release")
_PERIOD_S = 0.1


class ZeusJetsonInitError(ZeusSoCInitError):
    """The Jetson cannot be measured; the message says why."""


def jetson_is_available(root: Path = Path("/")) -> bool:
    """Whether the machine whose files lie below `root` is a Jetson.

    Asks for L4T's marks and, because images and containers lack them, the device tree's model.
    """
    if any((root / marker).exists() for marker in _MARKERS):
        return True
    with contextlib.suppress(OSError):  # No device tree: an ordinary PC or server.
        return b"Jetson" in (root / "proc/device-tree/model").read_bytes()
    return False


def _subtract(name: str, end: float | None, begin: float | None) -> float | None:
    if end is None and begin is None:
        return None
    if end is None or begin is None:
        raise TypeError(f"cannot subtract {name}: only one of the two readings has it")
    return end - begin


@dataclass
class JetsonMeasurement(SoCMeasurement):
    """Energy of a Jetson's rails in mJ.

    Attributes:
        cpu_energy_mj: Rails that feed the CPU and not the GPU; None where there is none.
        gpu_energy_mj: Rails that feed the GPU and not the CPU; None where there is none.
        total_energy_mj: The module's input; None where the board does not tell it.
        rails_mj: Every rail by the name on the board.
    """

    cpu_energy_mj: float | None
    gpu_energy_mj: float | None
    total_energy_mj: float | None = None
    rails_mj: dict[str, float] = field(default_factory=dict)

    def __sub__(self, other: SoCMeasurement) -> JetsonMeasurement:
        """The energy between two readings, in mJ.

        Raises:
            TypeError: `other` is of another SoC, or a field is in one reading only.
        """
        if not isinstance(other, JetsonMeasurement):
            raise TypeError(f"cannot subtract {type(other).__name__} from JetsonMeasurement")
        if self.rails_mj.keys() != other.rails_mj.keys():
            raise TypeError("cannot subtract rails_mj: the two readings have other rails")
        return JetsonMeasurement(
            _subtract("cpu_energy_mj", self.cpu_energy_mj, other.cpu_energy_mj),
            _subtract("gpu_energy_mj", self.gpu_energy_mj, other.gpu_energy_mj),
            _subtract("total_energy_mj", self.total_energy_mj, other.total_energy_mj),
            {name: energy - other.rails_mj[name] for name, energy in self.rails_mj.items()},
        )

    def zero_all_fields(self) -> None:
        """Numbers become 0.0; None stays."""
        self.cpu_energy_mj = None if self.cpu_energy_mj is None else 0.0
        self.gpu_energy_mj = None if self.gpu_energy_mj is None else 0.0
        self.total_energy_mj = None if self.total_energy_mj is None else 0.0
        self.rails_mj = dict.fromkeys(self.rails_mj, 0.0)


class Command(enum.Enum):
    """What the sampling thread can be asked."""

    READ = 0
    STOP = 1


_Answer = JetsonMeasurement | ZeusBaseSoCError
_Request = tuple[Command, "queue.SimpleQueue[_Answer] | None"]


class _Integrator:
    """Integrates each rail's power over time by the trapezoid between its successful readings."""

    def __init__(self, device_map: DeviceMap) -> None:
        self._map = device_map
        self._energy_mj = dict.fromkeys(device_map.rails, 0.0)
        self._last: dict[str, tuple[float, float]] = {}
        self._errors: dict[str, Exception] = {}

    def sample(self) -> None:
        """Read every rail once; what cannot be read is bridged by its next good reading."""
        for name, strategy in self._map.rails.items():
            before_s = time.monotonic()
            try:
                power_mw = strategy.measure_power()
            except (OSError, ValueError) as error:
                if name not in self._errors:
                    logger.warning("cannot read the power of rail %s: %s", name, error)
                self._errors[name] = error
                continue
            self._errors.pop(name, None)
            # A read over I2C takes milliseconds: its middle is the best guess of its time.
            now_s = (before_s + time.monotonic()) / 2
            last_s, last_mw = self._last.get(name, (now_s, power_mw))
            self._energy_mj[name] += (last_mw + power_mw) / 2 * (now_s - last_s)
            self._last[name] = (now_s, power_mw)

    def read(self) -> _Answer:
        """Sample, and return the totals up to now, or the error that hides one of them."""
        self.sample()
        if self._errors:
            name, error = next(iter(self._errors.items()))
            return ZeusBaseSoCError(f"cannot read the power of Jetson rail {name}: {error}")
        return JetsonMeasurement(
            self._sum(self._map.cpu),
            self._sum(self._map.gpu),
            self._sum(self._map.total),
            dict(self._energy_mj),
        )

    def _sum(self, names: tuple[str, ...]) -> float | None:
        return sum(self._energy_mj[name] for name in names) if names else None


def _run(integrator: _Integrator, requests: queue.SimpleQueue[_Request]) -> None:
    deadline_s = time.monotonic()
    while True:
        deadline_s += _PERIOD_S
        # After a suspend or a slow bus the missed rounds are not made up for.
        deadline_s = max(deadline_s, time.monotonic())
        while True:
            try:
                command, reply = requests.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                break
            if command is Command.STOP:
                return
            if reply is not None:
                reply.put(integrator.read())
        integrator.sample()


class Jetson(SoC):
    """The module of an NVIDIA Jetson board.

    A daemon thread samples all rails ten times a second, and once more for every reading, so
    that a window's energy ends at the window's end. The INA sensors themselves average over
    some milliseconds. In the child of a fork the thread is started anew and the totals go on.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the rails below `root` and start sampling.

        Raises:
            ZeusJetsonInitError: this is no Jetson, or no rail can be read.
        """
        if not jetson_is_available(root):
            raise ZeusJetsonInitError(f"cannot measure a Jetson: {root} does not look like one")
        self._map = DeviceMap.from_sysfs(root)
        if not self._map.rails:
            raise ZeusJetsonInitError(
                "cannot measure this Jetson: no readable INA3221 or INA238 rail below "
                f"{root / 'sys'}; in a container, mount the host's /sys"
            )
        self.measurement_states: dict[str, JetsonMeasurement] = {}
        self._integrator = _Integrator(self._map)
        # The first sample is taken here: the origin of the totals is the construction.
        self._integrator.sample()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        threading.Thread(
            target=_run,
            args=(self._integrator, self._requests),
            name="zeus-jetson-rails",
            daemon=True,
        ).start()
        self._finalizer = weakref.finalize(self, self._requests.put, (Command.STOP, None))

    def stop(self) -> None:
        """End the sampling thread; later readings bridge the time since the last one."""
        self._finalizer()

    def get_available_metrics(self) -> set[str]:
        """Names of the fields that this board gives."""
        present = {
            "cpu_energy_mj": self._map.cpu,
            "gpu_energy_mj": self._map.gpu,
            "total_energy_mj": self._map.total,
        }
        return {name for name, rails in present.items() if rails} | {"rails_mj"}

    def get_total_energy_consumption(self, timeout: float = 15.0) -> JetsonMeasurement:
        """Energy in mJ from the construction up to this call.

        Raises:
            ZeusBaseSoCError: a rail cannot be read now.
            queue.Empty: the sensors did not answer within `timeout` seconds.
        """
        answer = self._ask(timeout)
        if isinstance(answer, ZeusBaseSoCError):
            raise answer
        return answer

    def _ask(self, timeout: float) -> _Answer:
        if not self._finalizer.alive:
            return self._integrator.read()
        if self._pid != os.getpid():
            self._start()
        reply: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._requests.put((Command.READ, reply))
        return reply.get(timeout=timeout)

    def begin_window(self, key: str, restart: bool = False) -> None:
        """Open a window.

        Raises:
            KeyError: `key` is open and `restart` is False.
        """
        if key in self.measurement_states and not restart:
            raise KeyError(f"cannot open window {key!r}: it is already open")
        self.measurement_states[key] = self.get_total_energy_consumption()

    def end_window(self, key: str) -> JetsonMeasurement:
        """Close a window and return its energy in mJ.

        Raises:
            KeyError: `key` is not open.
        """
        if key not in self.measurement_states:
            raise KeyError(f"cannot close window {key!r}: it is not open")
        energy = self.get_total_energy_consumption() - self.measurement_states[key]
        del self.measurement_states[key]
        return energy
