"""Carbon emission of windows: their energy by hour, times the grid's carbon intensity of the hour.

Energy needs no network and is always told. Where an intensity is not to be had, the emission is
NaN and the measurement says why; `CarbonEmissionMeasurement.with_intensities` can price the same
record later.
"""

from __future__ import annotations

import enum
import functools
import warnings
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from zeus.monitor import _iso8601 as parser
from zeus.monitor._carbon_intensity import (
    CarbonIntensity,
    CarbonIntensityProvider,
    CarbonIntensityTable,
    ConstantCarbonIntensity,
    ZeusCarbonIntensityHTTPError,
    ZeusCarbonIntensityNotFoundError,
    g_per_kwh_from_lb_per_mwh,
)
from zeus.monitor._carbon_record import (
    J_PER_KWH,
    CarbonEmissionMeasurement,
    CarbonInterval,
    emission,
)
from zeus.monitor._fetch import Cached, FetchError, get_json
from zeus.monitor._hourly_queue import EnergyByHour, HourlyQueue
from zeus.monitor._interval_monitor import IntervalMonitor
from zeus.monitor._parts import Device, Part, floor_utc
from zeus.monitor.energy import ZeusMonitor

__all__ = [
    "CarbonEmissionMeasurement",
    "CarbonEmissionMonitor",
    "CarbonIntensity",
    "CarbonIntensityProvider",
    "CarbonIntensityTable",
    "CarbonInterval",
    "ConstantCarbonIntensity",
    "ElectricityMapsClient",
    "ElectrictyMapsClient",
    "Op",
    "ZeusCarbonIntensityHTTPError",
    "ZeusCarbonIntensityNotFoundError",
    "g_per_kwh_from_lb_per_mwh",
]

_HOUR = timedelta(hours=1)


class ElectrictyMapsClient(CarbonIntensityProvider):
    """Electricity Maps' hourly values for a place. (The name's spelling is that of its origin.)"""

    def __init__(
        self,
        location: tuple[float, float] | None,
        estimate: bool = False,
        emission_factor_type: Literal["direct", "lifecycle"] = "direct",
        *,
        token: str | None = None,
        base_url: str = "https://api.electricitymap.org/v3",
        proxy: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Take a place; nothing is asked yet.

        Args:
            location: Latitude and longitude in degrees. None gives no value, rather than one of
                some other place.
            estimate: Whether estimated values are wanted where there is no measured one.
            emission_factor_type: Whether only burning fuel counts, or the whole life of a plant.
            token: Your own API token, sent as the header `auth-token`.
            base_url: Where the API is.
            proxy: URL of an HTTP proxy; None for what the environment says.
            timeout_s: Longest wait for a connection, and between pieces of an answer.
        """
        self.location = location
        self.estimate = estimate
        self.emission_factor_type = emission_factor_type
        self._token = token
        self._base_url = base_url.rstrip("/")
        self._proxy = proxy
        self._timeout_s = timeout_s

    def _get(self, what: str) -> dict[str, Any]:
        if self.location is None:
            raise ZeusCarbonIntensityNotFoundError(
                "no carbon intensity without a place: give Electricity Maps a latitude and "
                "longitude"
            )
        latitude, longitude = self.location
        url = (
            f"{self._base_url}/carbon-intensity/{what}?lat={latitude}&lon={longitude}"
            f"&disableEstimations={not self.estimate}"
            f"&emissionFactorType={self.emission_factor_type}"
        )
        try:
            answer = get_json(
                url,
                headers={"auth-token": self._token} if self._token else None,
                proxy=self._proxy,
                timeout_s=self._timeout_s,
            )
        except FetchError as error:
            raise ZeusCarbonIntensityHTTPError(f"no carbon intensity: {error}") from error
        if not isinstance(answer, dict):
            raise ZeusCarbonIntensityNotFoundError(
                f"no carbon intensity: Electricity Maps answered {str(answer)[:120]}"
            )
        return answer

    def _not_found(self, answer: dict[str, Any]) -> ZeusCarbonIntensityNotFoundError:
        reason = str(answer.get("error", answer))[:120]
        return ZeusCarbonIntensityNotFoundError(
            f"no carbon intensity at {self.location}: Electricity Maps answered {reason}; "
            "estimate=True may find a value"
        )

    def get_current_carbon_intensity(self) -> float:
        """The latest value, in gCO2eq/kWh.

        Raises:
            ZeusCarbonIntensityHTTPError: the service could not be asked, or refused.
            ZeusCarbonIntensityNotFoundError: it has no value for the place.
        """
        answer = self._get("latest")
        value = answer.get("carbonIntensity")
        if not isinstance(value, int | float):
            raise self._not_found(answer)
        return value

    def _history(self) -> list[dict[str, Any]]:
        answer = self._get("history")
        history = answer.get("history")
        if not isinstance(history, list):
            raise self._not_found(answer)
        return [
            item
            for item in history
            if isinstance(item, dict)
            and isinstance(item.get("carbonIntensity"), int | float)
            and isinstance(item.get("datetime"), str)
        ]

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        """The last day's values in gCO2eq/kWh by the starts of their hours; hours without a value
        are left out.

        Raises:
            ZeusCarbonIntensityHTTPError: the service could not be asked, or refused.
            ZeusCarbonIntensityNotFoundError: it has no history for the place.
        """
        return {parser.parse(item["datetime"]): item["carbonIntensity"] for item in self._history()}

    def get_intensities(self, start: datetime) -> list[CarbonIntensity]:
        """The last day's values, and the latest one where they lack the current hour's."""
        fetched_at = datetime.now(timezone.utc)
        items = self._history()
        current = floor_utc(fetched_at, _HOUR)
        if all(parser.parse(item["datetime"]) < current for item in items):
            latest = self._get("latest")
            if isinstance(latest.get("carbonIntensity"), int | float) and "datetime" in latest:
                items.append(latest)
        return [
            CarbonIntensity(
                item["carbonIntensity"],
                floor_utc(parser.parse(item["datetime"]), _HOUR),
                "Electricity Maps",
                self._method_of(item),
                fetched_at,
            )
            for item in items
        ]

    def _method_of(self, item: dict[str, Any]) -> str:
        how = "measured"
        if item.get("isEstimated"):
            how = f"estimated ({item.get('estimationMethod') or 'method not told'})"
        return f"{self.emission_factor_type}, {how}"

    @property
    def update_period(self) -> timedelta:
        """An hour."""
        return _HOUR

    @property
    def history_length(self) -> int:
        """A day of hours."""
        return 24


ElectricityMapsClient = ElectrictyMapsClient


class _Intensities:
    """The values of a provider that were ever seen, asked for when one is missing."""

    def __init__(self, provider: CarbonIntensityProvider, deadline_s: float) -> None:
        self.period = provider.update_period
        # Half of what the provider remembers: an ask that fails is repeated at the next edge.
        self._keep = self.period * max(1, provider.history_length // 2)
        self._seen: dict[datetime, CarbonIntensity] = {}
        self._oldest = datetime.now(timezone.utc)
        self._cached = Cached(
            lambda: provider.get_intensities(self._oldest),
            deadline_s,
            keep_s=min(60.0, self.period.total_seconds() / 2),
        )
        self._asked_at: datetime | None = None

    def after_edge(self, oldest: datetime) -> None:
        """Ask before the provider forgets hours of a window that is still open."""
        edge = floor_utc(datetime.now(timezone.utc), self.period)
        if self._asked_at is None or self._asked_at < oldest:
            self._asked_at = floor_utc(oldest, self.period)
        if edge - self._asked_at >= self._keep and self._ask(oldest) is None:
            self._asked_at = edge

    def _ask(self, oldest: datetime) -> str | None:
        self._oldest = oldest
        values, reason = self._cached.get()
        self._seen.update({value.start: value for value in values or ()})
        return reason

    def of(self, parts: list[Part]) -> tuple[list[CarbonIntensity | None], str | None]:
        """The value of each part's interval, and why some are missing."""
        reason = None
        if any(part.interval not in self._seen for part in parts):
            reason = self._ask(parts[0].interval)
        return [self._seen.get(part.interval) for part in parts], reason


class CarbonEmissionMonitor:
    """Measures the energy of windows, and what it emitted by the hour.

    Attributes:
        zeus_monitor: What measures the energy.
    """

    def __init__(
        self,
        carbon_intensity_provider: CarbonIntensityProvider | None,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
        *,
        fetch_timeout_s: float = 15.0,
    ) -> None:
        """Make the monitor; the provider is asked when a window ends.

        Args:
            carbon_intensity_provider: Where values come from. None measures the energy only, by
                hour, to be priced later.
            gpu_indices: GPUs to measure; None for all.
            cpu_indices: CPUs to measure; None for all.
            sync_execution_with: The framework whose work is waited for at a window's edges.
            fetch_timeout_s: Longest that the end of a window waits for the provider, after the
                energy was measured.
        """
        self.zeus_monitor = ZeusMonitor(
            gpu_indices=gpu_indices,
            cpu_indices=cpu_indices,
            sync_execution_with=sync_execution_with,
        )
        provider = carbon_intensity_provider
        self._intensities = provider and _Intensities(provider, fetch_timeout_s)
        period = self._intensities.period if self._intensities else _HOUR
        self._windows = IntervalMonitor(
            self.zeus_monitor,
            lambda time: floor_utc(time, period),
            period,
            self._intensities.after_edge if self._intensities else lambda oldest: None,
        )

    @property
    def current_keys(self) -> set[str]:
        """Names of the open windows."""
        return self._windows.current_keys

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Open a window.

        Args:
            key: Its name.
            sync_execution: Whether to wait for the work on the GPUs first.
            restart: Whether to forget a window of this name that is open.

        Raises:
            ValueError: `key` is open and `restart` is False.
        """
        self._windows.begin(key, sync_execution, restart)

    def end_window(self, key: str, sync_execution: bool = True) -> CarbonEmissionMeasurement:
        """Close a window. Where the provider fails, emissions are NaN and a warning says why.

        Args:
            key: Its name.
            sync_execution: Whether to wait for the work on the GPUs first.

        Raises:
            ValueError: `key` is not open.
        """
        energy, parts = self._windows.end(key, sync_execution)
        values: list[CarbonIntensity | None] = [None] * len(parts)
        reason: str | None = "no provider was given"
        if self._intensities:
            values, reason = self._intensities.of(parts)
        measurement = emission(
            energy.time,
            energy.gpu_energy,
            energy.cpu_energy or None,
            energy.dram_energy or None,
            [
                CarbonInterval(
                    part.interval,
                    part.start,
                    part.end,
                    part.of("gpu"),
                    part.of("cpu"),
                    part.of("dram"),
                    value,
                )
                for part, value in zip(parts, values, strict=True)
            ],
            reason,
        )
        if measurement.unavailable and self._intensities:
            warnings.warn(
                f"window {key!r}: the emission is unknown: {measurement.unavailable}",
                stacklevel=2,
            )
        return measurement


class Op(enum.Enum):
    """What `_polling_process` can be told."""

    BEGIN = 0
    END = 1
    NEXTITER = 2


def _price_by_hour(
    provider: CarbonIntensityProvider, energy_j: EnergyByHour
) -> dict[Device, float]:
    values = provider.get_recent_carbon_intensity()
    emissions: dict[Device, float] = {}
    for hour, by_device in energy_j.items():
        if hour not in values:
            raise ZeusCarbonIntensityNotFoundError(f"the provider has no value for {hour}")
        for device, joules in by_device.items():
            emitted = joules / J_PER_KWH * values[hour]
            emissions[device] = emissions.get(device, 0.0) + emitted
    return emissions


def _polling_process(
    command_q: Any,
    finished_q: Any,
    gpu_indices: list[int],
    cpu_indices: list[int],
    provider: CarbonIntensityProvider,
) -> None:
    """Measure the windows that a queue names, in this thread, until the last one ends.

    For programs that drive the queues themselves; `CarbonEmissionMonitor` is more exact.

    Args:
        command_q: Gives `(Op, key)`.
        finished_q: Takes, for each END, three dictionaries of gCO2eq by index: GPU, CPU, DRAM.
            Their values are NaN where the emission is unknown.
        gpu_indices: GPUs to measure.
        cpu_indices: CPUs to measure.
        provider: Where carbon intensities come from.
    """
    HourlyQueue(
        finished_q,
        lambda: ZeusMonitor(gpu_indices=gpu_indices, cpu_indices=cpu_indices),
        functools.partial(_price_by_hour, provider),
        settle_after=max(1, provider.history_length - 1),
    ).run(command_q, lambda: datetime.now(timezone.utc), provider.update_period)
