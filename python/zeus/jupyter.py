"""Magics for IPython and Jupyter: `%load_ext zeus.jupyter`, then `%%energy` or `%energy code`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from zeus.device.gpu.common import ZeusGPUInitError
from zeus.monitor.energy import ZeusMonitor
from zeus.monitor.power import PowerMonitor

if TYPE_CHECKING:
    from zeus.monitor._measurement import Measurement

_USAGE = "%%energy [--name NAME] [--no-power] before a cell, or %energy CODE"


@magics_class
class EnergyMagics(Magics):
    """The magics; their monitors are made when they are first used."""

    def __init__(self, shell: Any) -> None:
        """Belong to a shell."""
        super().__init__(shell)
        self._shell = shell
        self._monitor: ZeusMonitor | None = None

    @line_cell_magic
    def energy(self, line: str, cell: str | None = None) -> None:
        """Run code and show the energy that the machine used meanwhile, with its uncertainty.

        The `Measurement` is also the variable `_energy`. The power of GPUs is sampled for the
        picture unless `--no-power` is given.

        Raises:
            UsageError: An option is not known, or the code failed.
        """
        if cell is None:
            if not line.strip():
                raise UsageError(f"there is nothing to measure: {_USAGE}")
            name, with_power, code = line.strip(), True, line
        else:
            name, with_power = _options(line)
            code = cell
        if self._monitor is None:
            self._monitor = ZeusMonitor()
        power = _power() if with_power else None
        window = self._monitor.window(name, power_monitor=power)
        try:
            with window:
                result = self._shell.run_cell(code)
        finally:
            if power is not None:
                power.stop()
        measurement: Measurement = window.measurement
        self._shell.user_ns["_energy"] = measurement
        _show(measurement)
        if not result.success:
            # The shell has shown the error; this marks the cell as failed.
            raise UsageError("the code failed; what it used up to then is shown above")


def _show(measurement: Measurement) -> None:
    from IPython.display import display

    display(_Shown(measurement))  # type: ignore[no-untyped-call]


class _Shown:
    """A measurement as text in a terminal and as a table in a notebook."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    def __repr__(self) -> str:
        m = self._measurement
        name = m.span.name if m.span else "measurement"
        devices = [f"  {device}: {uncertain}" for device, uncertain in m.uncertainty.items()]
        return "\n".join([f"{name}: {m:u} in {m.time:.3f} s", *devices])

    def _repr_html_(self) -> str:
        return self._measurement._repr_html_()


def _options(line: str) -> tuple[str, bool]:
    name, with_power = "cell", True
    words = shlex.split(line)
    while words:
        word = words.pop(0)
        if word == "--no-power":
            with_power = False
        elif word == "--name" and words:
            name = words.pop(0)
        else:
            raise UsageError(f"%%energy does not know {word!r}: {_USAGE}")
    return name, with_power


def _power() -> PowerMonitor | None:
    """Samples power; None where no GPU tells it, and the table has no picture."""
    try:
        return PowerMonitor()
    except (ZeusGPUInitError, ValueError):
        return None


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext zeus.jupyter`."""
    shell.register_magics(EnergyMagics)
