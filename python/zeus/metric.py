"""Energy and power of windows as Prometheus metrics, pushed to a gateway or served.

Needs `prometheus_client` (`pip install zeus-cpp[metric]`), imported when a metric is made.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zeus._metric.exposition import Exposition, prometheus
from zeus._metric.families import KINDS, LABELS, energy_counters, missing_energies, power_families
from zeus._metric.followers import EnergyTotal, PowerShown, energies
from zeus._metric.windows import Exposed, Followed, Metric, MonitoringProcessState, repeat
from zeus.device.cpu import get_cpus
from zeus.monitor import PowerMonitor, ZeusMonitor
from zeus.utils.framework import sync_execution as sync_execution_fn

logger = logging.getLogger(__name__)

__all__ = [
    "EnergyCumulativeCounter",
    "EnergyHistogram",
    "Metric",
    "MonitoringProcessState",
    "PowerGauge",
    "energy_monitoring_loop",
    "power_monitoring_loop",
]


def __getattr__(name: str) -> Any:
    """Give `Histogram` of prometheus_client as a name of this module, imported when needed."""
    if name == "Histogram":
        return prometheus().Histogram
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class EnergyHistogram(Exposed):
    """How the energy of windows that repeat is distributed: a histogram for each device.

    A window whose energy is not known is not observed; `energy_monitor_gpu_energy_missing_total`,
    `..._cpu_...` and `..._dram_...` count those.

    Attributes:
        gpu_histograms: `energy_monitor_gpu_energy_joules`; None: no GPU is measured.
        cpu_histograms: `energy_monitor_cpu_energy_joules`; None: no CPU package is measured.
        dram_histograms: `energy_monitor_dram_energy_joules`; None: no package tells it.
    """

    def __init__(
        self,
        cpu_indices: list[int] | None,
        gpu_indices: list[int] | None,
        pushgateway_url: str | None,
        job: str,
        gpu_bucket_range: Sequence[float] = (50.0, 100.0, 200.0, 500.0, 1000.0),
        cpu_bucket_range: Sequence[float] = (10.0, 50.0, 100.0, 500.0, 1000.0),
        dram_bucket_range: Sequence[float] = (5.0, 10.0, 20.0, 50.0, 150.0),
        *,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
        grouping_key: Mapping[str, str] | None = None,
        push_timeout_s: float = 5.0,
    ) -> None:
        """Find the devices; nothing is pushed yet.

        Args:
            cpu_indices: Which CPU packages; None: all that can be read, []: none.
            gpu_indices: Which GPUs; None: all, []: none.
            pushgateway_url: Where the Pushgateway is; None: nothing is pushed.
            job: The job in the gateway's grouping key.
            gpu_bucket_range: Upper bounds of buckets in joules.
            cpu_bucket_range: The same of CPU packages.
            dram_bucket_range: The same of their memory.
            sync_execution_with: Whose GPU work a window waits for at its edges.
            grouping_key: Labels beside `job` of the group that a push replaces. None: `instance`
                (the host), `rank` and `metric`; {}: none, as upstream does.
            push_timeout_s: How long the end of a window may wait for the gateway.

        Raises:
            ValueError: There are no buckets.
            ImportError: prometheus_client is not installed.
        """
        self._buckets = {
            "gpu": _ascending("gpu_bucket_range", gpu_bucket_range),
            "cpu": _ascending("cpu_bucket_range", cpu_bucket_range),
            "dram": _ascending("dram_bucket_range", dram_bucket_range),
        }
        self._exposition = Exposition(
            "energy_histogram", pushgateway_url, job, grouping_key, push_timeout_s
        )
        self._monitor = _open(gpu_indices, cpu_indices, sync_execution_with)
        cpus = self._monitor.cpu_indices
        self.gpu_histograms = self._histogram("gpu") if self._monitor.gpu_indices else None
        self.cpu_histograms = self._histogram("cpu") if cpus else None
        self.dram_histograms = self._histogram("dram") if _tell_dram(cpus) else None
        self._missing = missing_energies(self.registry)

    def _histogram(self, kind: str) -> Any:
        # By the name of this module, which tests replace.
        make = sys.modules[__name__].Histogram
        return make(
            f"energy_monitor_{kind}_energy_joules",
            f"{KINDS[kind]} energy consumption",
            labelnames=LABELS,
            registry=self.registry,
            buckets=self._buckets[kind],
        )

    def begin_window(self, name: str, sync_execution: bool = True) -> None:
        """Begin a window.

        Raises:
            ValueError: It is open already.
        """
        self._monitor.begin_window(f"__EnergyHistogram_{name}", sync_execution=sync_execution)

    def end_window(self, name: str, sync_execution: bool = True) -> None:
        """End a window, observe its energy, and push.

        Warns of energies outside the buckets, which a histogram tells nothing more of.

        Raises:
            ValueError: It is not open.
        """
        measurement = self._monitor.end_window(
            f"__EnergyHistogram_{name}", sync_execution=sync_execution
        )
        families = {
            "gpu": self.gpu_histograms,
            "cpu": self.cpu_histograms,
            "dram": self.dram_histograms,
        }
        for kind, index, joules in energies(measurement):
            if math.isnan(joules):
                self._missing[kind].labels(window=name, index=index).inc()
            elif (family := families[kind]) is not None:
                family.labels(window=name, index=index).observe(joules)
                self._warn_outside(kind, index, name, joules)
        self._exposition.push()

    def _warn_outside(self, kind: str, index: int, name: str, joules: float) -> None:
        lowest, highest = self._buckets[kind][0], self._buckets[kind][-1]
        if lowest <= joules <= highest:
            return
        where = f"above the highest ({highest:g} J)"
        if joules < lowest:
            where = f"within the lowest ({lowest:g} J)"
        warnings.warn(
            f"{KINDS[kind]} {index} used {joules:.3g} J in window {name!r}, {where} of "
            f"{kind}_bucket_range: give buckets on both sides of what windows use",
            stacklevel=3,
        )


class EnergyCumulativeCounter(Followed):
    """The energy of windows since they began, as counters that never fall.

    What is used while a push is under way, or a gateway is down, is in the next one. A window that
    begins again under its name counts on.
    """

    def __init__(
        self,
        cpu_indices: list[int] | None,
        gpu_indices: list[int] | None,
        update_period: float,
        pushgateway_url: str | None,
        job: str,
        *,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
        grouping_key: Mapping[str, str] | None = None,
        push_timeout_s: float = 5.0,
    ) -> None:
        """Begin nothing yet.

        Args:
            cpu_indices: Which CPU packages; None: all that can be read, []: none.
            gpu_indices: Which GPUs; None: all, []: none.
            update_period: Seconds between two pushes.
            pushgateway_url: Where the Pushgateway is; None: nothing is pushed.
            job: The job in the gateway's grouping key.
            sync_execution_with: As for `EnergyHistogram`, like the next.
            grouping_key: See there.
            push_timeout_s: How long a push may wait for the gateway.

        Raises:
            ValueError: The period is not above zero.
            ImportError: prometheus_client is not installed.
        """
        super().__init__(
            *("energy_counter", update_period, pushgateway_url, job, grouping_key, push_timeout_s)
        )
        self.cpu_indices = cpu_indices
        self.gpu_indices = gpu_indices
        self._sync_with = sync_execution_with
        self._counters = energy_counters(self.registry)
        self._missing = missing_energies(self.registry)

    def begin_window(self, name: str, sync_execution: bool = False) -> None:
        """Begin to count.

        Raises:
            ValueError: It is open already.
        """
        self._check_new(name)
        monitor = _open(self.gpu_indices, self.cpu_indices, self._sync_with)
        total = EnergyTotal(name, monitor, self._counters, self._missing)
        total.begin(sync_execution)
        self._follow(name, total)

    def end_window(self, name: str, sync_execution: bool = False) -> None:
        """Count up to now, and push.

        Raises:
            ValueError: It is not open.
        """
        if name not in self.window_state:
            raise ValueError(f"Window {name!r} of this metric does not exist; begin it first")
        total = self._followers[name]
        if sync_execution and total.monitor.gpu_indices:
            sync_execution_fn(total.monitor.gpu_indices, sync_with=self._sync_with)
        self._unfollow(name)


class PowerGauge(Followed):
    """The present power of GPUs while a window is open: `power_monitor_gpu_power_watts`.

    A GPU whose power is not known has no value, and `power_monitor_gpu_power_missing_total` counts
    how often that was so. When the window ends its values go.
    """

    def __init__(
        self,
        gpu_indices: list[int] | None,
        update_period: float,
        pushgateway_url: str | None,
        job: str,
        *,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
        grouping_key: Mapping[str, str] | None = None,
        push_timeout_s: float = 5.0,
    ) -> None:
        """Begin nothing yet; the arguments and errors are those of `EnergyCumulativeCounter`."""
        super().__init__(
            *("power_gauge", update_period, pushgateway_url, job, grouping_key, push_timeout_s)
        )
        self.gpu_indices = gpu_indices
        self._sync_with = sync_execution_with
        self._gauge, self._missing = power_families(self.registry)

    def begin_window(self, name: str, sync_execution: bool = False) -> None:
        """Begin to show power.

        Raises:
            ValueError: It is open already, or there is no power to show.
            ZeusGPUInitError: This process sees no GPU.
        """
        self._check_new(name)
        monitor = PowerMonitor(gpu_indices=self.gpu_indices)
        if sync_execution:
            sync_execution_fn(monitor.gpu_indices, sync_with=self._sync_with)
        self._follow(name, PowerShown(name, monitor, self._gauge, self._missing))

    def end_window(self, name: str, sync_execution: bool = False) -> None:
        """Show the power of this window no longer.

        Raises:
            KeyError: It is not open.
        """
        if name not in self.window_state:
            raise KeyError(name)
        if sync_execution:
            gpus = self._followers[name].monitor.gpu_indices
            sync_execution_fn(gpus, sync_with=self._sync_with)
        self._unfollow(name)


def energy_monitoring_loop(
    name: str,
    queue: Any,
    cpu_indices: list[int] | None,
    gpu_indices: list[int] | None,
    update_period: float,
    pushgateway_url: str | None,
    job: str,
) -> None:
    """Count the energy of a window, and push it, until something is put into a queue.

    What `EnergyCumulativeCounter` does, for who has a thread or process of their own for it.

    Args:
        name: Of the window.
        queue: A `queue.Queue`, or a `multiprocessing.Queue`.
        cpu_indices: As for `EnergyCumulativeCounter`, like the rest.
        gpu_indices: See there.
        update_period: See there.
        pushgateway_url: See there.
        job: See there.
    """
    exposition = Exposition("energy_counter", pushgateway_url, job)
    monitor = _open(gpu_indices, cpu_indices, "torch")
    registry = exposition.registry
    total = EnergyTotal(name, monitor, energy_counters(registry), missing_energies(registry))
    total.begin(sync_execution=False)
    repeat(queue, update_period, total.advance, exposition)
    total.finish()
    exposition.push(insist=True)


def power_monitoring_loop(
    name: str,
    queue: Any,
    gpu_indices: list[int] | None,
    update_period: float,
    pushgateway_url: str | None,
    job: str,
) -> None:
    """Show the power of GPUs, and push it, until something is put into a queue.

    What `PowerGauge` does; see `energy_monitoring_loop`.
    """
    exposition = Exposition("power_gauge", pushgateway_url, job)
    monitor = PowerMonitor(gpu_indices=gpu_indices)
    shown = PowerShown(name, monitor, *power_families(exposition.registry))
    repeat(queue, update_period, shown.advance, exposition)
    shown.finish()
    exposition.push(insist=True)


def _open(
    gpu_indices: list[int] | None,
    cpu_indices: list[int] | None,
    sync_with: Literal["torch", "jax", "cupy"],
) -> ZeusMonitor:
    monitor = ZeusMonitor(
        gpu_indices=gpu_indices, cpu_indices=cpu_indices, sync_execution_with=sync_with
    )
    if not monitor.gpu_indices and not monitor.cpu_indices:
        why = "; ".join(monitor.unavailable)
        logger.warning("there is nothing to measure, and there will be no series: %s", why)
    return monitor


def _ascending(name: str, buckets: Sequence[float]) -> list[float]:
    if not buckets:
        raise ValueError(f"{name} is empty: give the upper bounds of buckets in joules")
    return sorted(buckets)


def _tell_dram(cpu_indices: list[int]) -> bool:
    if not cpu_indices:
        return False
    cpus = get_cpus().cpus
    return any(cpus[i].supports_get_dram_energy_consumption() for i in cpu_indices)
