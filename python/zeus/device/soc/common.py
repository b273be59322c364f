"""Base classes of systems on a chip, whose energy comes as one record of many domains."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from zeus.device.common import DeprecatedAliasABCMeta, deprecated_alias
from zeus.device.exception import ZeusBaseSoCError


class ZeusSoCInitError(ZeusBaseSoCError):
    """The SoC cannot be measured; the message says why."""


@dataclass
class SoCMeasurement(abc.ABC, metaclass=DeprecatedAliasABCMeta):
    """Energy of an SoC's domains in millijoules: since some origin, or over a window."""

    @abc.abstractmethod
    def __sub__(self, other: SoCMeasurement) -> SoCMeasurement:
        """The energy of every domain between two readings of one SoC, in mJ."""

    @deprecated_alias("zeroAllFields")
    @abc.abstractmethod
    def zero_all_fields(self) -> None:
        """Set every measured field to zero; what was not measured stays None."""


class SoC(abc.ABC, metaclass=DeprecatedAliasABCMeta):
    """A system on a chip that measures its own domains.

    The object is shared by the process, and so are its windows' keys: two users of one SoC must
    take keys of their own, or subtract two `get_total_energy_consumption()`.
    """

    @deprecated_alias("getAvailableMetrics")
    @abc.abstractmethod
    def get_available_metrics(self) -> set[str]:
        """Names of the measurement's fields that this SoC gives."""

    @deprecated_alias("getTotalEnergyConsumption")
    @abc.abstractmethod
    def get_total_energy_consumption(self) -> SoCMeasurement:
        """Cumulative energy in mJ up to this call, from an origin of the SoC's own."""

    @deprecated_alias("beginWindow")
    @abc.abstractmethod
    def begin_window(self, key: str, restart: bool = False) -> None:
        """Open the window `key`; with `restart`, forget one that is open under the same key."""

    @deprecated_alias("endWindow")
    @abc.abstractmethod
    def end_window(self, key: str) -> SoCMeasurement:
        """Close the window `key` and return its energy in mJ."""


class EmptySoC(SoC):
    """Stands where no SoC can be measured."""

    def __init__(self) -> None:
        """Measures nothing."""

    def get_available_metrics(self) -> set[str]:
        """No metric."""
        return set()

    def get_total_energy_consumption(self) -> SoCMeasurement:
        """Raises ValueError: there is nothing to read."""
        raise ValueError(_NO_SOC)

    def begin_window(self, key: str, restart: bool = False) -> None:
        """Raises ValueError: there is nothing to read."""
        raise ValueError(_NO_SOC)

    def end_window(self, key: str) -> SoCMeasurement:
        """Raises ValueError: there is nothing to read."""
        raise ValueError(_NO_SOC)


_NO_SOC = "cannot read SoC energy: no measurable SoC was found on this machine"
