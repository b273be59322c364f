"""Measuring energy, power and temperature: windows around code, and timelines."""

from zeus.monitor.energy import Measurement, ZeusMonitor
from zeus.monitor.power import PowerMonitor
from zeus.monitor.temperature import TemperatureMonitor

__all__ = ["Measurement", "PowerMonitor", "TemperatureMonitor", "ZeusMonitor"]
