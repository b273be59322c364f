"""Base classes of CPU energy."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.device.common import DeprecatedAliasABCMeta, deprecated_alias
from zeus.device.exception import ZeusBaseCPUError


class ZeusCPUInitError(ZeusBaseCPUError):
    """No CPU energy can be read here; the message says why."""


class ZeusCPUNoPermissionError(ZeusBaseCPUError):
    """CPU energy is there, and this process may not read it."""


class ZeusCPUNotFoundError(ZeusBaseCPUError):
    """The CPU that was asked for is not there."""


@dataclass
class CpuDramMeasurement:
    """Energy of one CPU package in mJ, and of its memory where that is measured.

    Attributes:
        cpu_mj: The package, in mJ.
        dram_mj: Its DRAM, in mJ; None where it is not measured.
    """

    cpu_mj: float
    dram_mj: float | None = None

    def __sub__(self, other: CpuDramMeasurement) -> CpuDramMeasurement:
        """The energy between two readings; DRAM only where both readings have it."""
        if not isinstance(other, CpuDramMeasurement):
            return NotImplemented
        dram_mj = (
            None if self.dram_mj is None or other.dram_mj is None else self.dram_mj - other.dram_mj
        )
        return CpuDramMeasurement(self.cpu_mj - other.cpu_mj, dram_mj)

    def __truediv__(self, divisor: int | float) -> CpuDramMeasurement:
        """Both energies over a number.

        Raises:
            ZeroDivisionError: the number is zero.
        """
        if not isinstance(divisor, int | float):
            return NotImplemented
        dram_mj = None if self.dram_mj is None else self.dram_mj / divisor
        return CpuDramMeasurement(self.cpu_mj / divisor, dram_mj)


class CPU(abc.ABC, metaclass=DeprecatedAliasABCMeta):
    """One CPU package."""

    def __init__(self, cpu_index: int) -> None:
        """Remember the package's number."""
        self.cpu_index = cpu_index

    @deprecated_alias("getTotalEnergyConsumption")
    @abc.abstractmethod
    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """Cumulative energy in mJ from an origin of the counter's own."""

    @deprecated_alias("supportsGetDramEnergyConsumption")
    @abc.abstractmethod
    def supports_get_dram_energy_consumption(self) -> bool:
        """Whether the package's DRAM is measured."""


class CPUs(abc.ABC, metaclass=DeprecatedAliasABCMeta):
    """The CPU packages of this machine; an `index` is a position in `cpus`."""

    @property
    @abc.abstractmethod
    def cpus(self) -> Sequence[CPU]:
        """The packages."""

    @deprecated_alias("getTotalEnergyConsumption")
    def get_total_energy_consumption(self, index: int) -> CpuDramMeasurement:
        """Cumulative energy of a package in mJ."""
        return self.cpus[index].get_total_energy_consumption()

    @deprecated_alias("supportsGetDramEnergyConsumption")
    def supports_get_dram_energy_consumption(self, index: int) -> bool:
        """Whether a package's DRAM is measured."""
        return self.cpus[index].supports_get_dram_energy_consumption()

    def __len__(self) -> int:
        """How many packages there are."""
        return len(self.cpus)


class EmptyCPUs(CPUs):
    """Stands where no CPU can be measured."""

    def __init__(self) -> None:
        """Measures nothing."""

    @property
    def cpus(self) -> Sequence[CPU]:
        """No package."""
        return []

    def get_total_energy_consumption(self, index: int) -> CpuDramMeasurement:
        """Raises ValueError: there is nothing to read."""
        raise ValueError(f"cannot read the energy of CPU {index}: no CPU can be measured here")

    def supports_get_dram_energy_consumption(self, index: int) -> bool:
        """Raises ValueError: there is nothing to ask."""
        raise ValueError(f"cannot ask CPU {index} for DRAM: no CPU can be measured here")
