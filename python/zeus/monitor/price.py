"""Cost of windows: their energy by hour of the tariff's own time zone, times the hour's price.

Energy needs no network and is always told. Where a price is not to be had, the cost is NaN and the
measurement says why.
"""

from __future__ import annotations

import abc
import enum
import functools
import math
import os
import warnings
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Literal

from zeus.exception import ZeusBaseError
from zeus.monitor._cost_record import J_PER_KWH, CostInterval, EnergyCostMeasurement, cost
from zeus.monitor._fetch import Cached, FetchError, get_json
from zeus.monitor._hourly_queue import EnergyByHour, HourlyQueue
from zeus.monitor._interval_monitor import IntervalMonitor
from zeus.monitor._parts import Device, Part
from zeus.monitor._tariff import Tariff, cost_usd
from zeus.monitor.energy import ZeusMonitor

__all__ = [
    "CostInterval",
    "ElectricityPriceProvider",
    "EnergyCostMeasurement",
    "EnergyCostMonitor",
    "Op",
    "OpenEIClient",
    "ZeusElectricityPriceHTTPError",
    "ZeusElectricityPriceNotFoundError",
    "get_time_info",
]

_HOUR = timedelta(hours=1)
_KEEP_PRICES_S = 24 * 3600.0
_KEY_VARIABLE = "OPENEI_API_KEY"


class ZeusElectricityPriceHTTPError(ZeusBaseError):
    """The provider could not be asked, or refused."""


class ZeusElectricityPriceNotFoundError(ZeusBaseError):
    """The provider has no such tariff."""


def get_time_info() -> tuple[str, Literal["Weekday", "Weekend"], int]:
    """Name of the month, kind of day, and hour, by this machine's clock and time zone."""
    now = datetime.now()
    return now.strftime("%B"), "Weekend" if now.weekday() >= 5 else "Weekday", now.hour


class ElectricityPriceProvider(abc.ABC):
    """Where a tariff comes from."""

    @abc.abstractmethod
    def get_current_electricity_prices(self) -> dict[str, list[Any]]:
        """The tariff now in force.

        Returns:
            `energy_rate_structure`: for each period a list of tiers, each with `rate` and maybe
            `adj` (both $/kWh and added), `max` (kWh of the month) and `unit`.
            `energy_weekday_schedule` and `energy_weekend_schedule`: for each month, for each hour,
            the number of the period.
        """


class OpenEIClient(ElectricityPriceProvider):
    """Tariffs of the U.S. Utility Rate Database at OpenEI."""

    def __init__(
        self,
        location: tuple[float, float],
        label: str,
        sector: Literal["Residential", "Commercial", "Industrial", "Lighting"] = "Residential",
        radius: int = 0,
        *,
        api_key: str | None = None,
        base_url: str = "https://api.openei.org",
        proxy: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Take a place and a tariff; nothing is asked yet.

        Args:
            location: Latitude and longitude in degrees.
            label: The tariff's label in the database.
            sector: Kind of customer.
            radius: Miles around the place.
            api_key: Your own key of OpenEI; None for the environment's `OPENEI_API_KEY`.
            base_url: Where the API is.
            proxy: URL of an HTTP proxy; None for what the environment says.
            timeout_s: Longest wait for a connection, and between pieces of an answer.
        """
        self.location = location
        self.label = label
        self.sector = sector
        self.radius = radius
        self._api_key = api_key
        self._base_url = base_url.rstrip("/")
        self._proxy = proxy
        self._timeout_s = timeout_s

    def search_json(
        self, data: Any, key_name: str, target_value: str, return_value: str
    ) -> list[Any]:
        """`return_value` of every object in `data`, however deep, whose `key_name` is the target.

        An object without `return_value` counts as None.
        """
        if isinstance(data, list):
            return [
                found
                for item in data
                for found in self.search_json(item, key_name, target_value, return_value)
            ]
        if not isinstance(data, dict):
            return []
        found = [data.get(return_value)] if data.get(key_name) == target_value else []
        for value in data.values():
            found += self.search_json(value, key_name, target_value, return_value)
        return found

    def _ask(self) -> Any:
        key = self._api_key or os.environ.get(_KEY_VARIABLE)
        if not key:
            raise ZeusElectricityPriceHTTPError(
                f"no electricity price without a key: give api_key or set {_KEY_VARIABLE}; "
                "https://openei.org/services/api/signup gives one"
            )
        latitude, longitude = self.location
        url = (
            f"{self._base_url}/utility_rates?version=latest&format=json&api_key={key}"
            f"&lat={latitude}&lon={longitude}&radius={self.radius}&detail=full"
            f"&sector={self.sector}"
        )
        try:
            return get_json(url, proxy=self._proxy, timeout_s=self._timeout_s, secret=key)
        except FetchError as error:
            raise ZeusElectricityPriceHTTPError(f"no electricity price: {error}") from error

    def get_current_electricity_prices(self) -> dict[str, list[Any]]:
        """The tariff with this client's label.

        Raises:
            ZeusElectricityPriceHTTPError: there is no key, or the service could not be asked, or
                refused.
            ZeusElectricityPriceNotFoundError: it has no such tariff for the place, or one without
                prices.
        """
        answer = self._ask()
        names = {
            "energy_rate_structure": "energyratestructure",
            "energy_weekday_schedule": "energyweekdayschedule",
            "energy_weekend_schedule": "energyweekendschedule",
        }
        prices: dict[str, list[Any]] = {}
        for ours, theirs in names.items():
            found = self.search_json(answer, "label", self.label, theirs)
            if not found or not isinstance(found[0], list):
                errors = answer.get("errors") if isinstance(answer, dict) else None
                raise ZeusElectricityPriceNotFoundError(
                    f"no electricity price: OpenEI has no {theirs} of a tariff labelled "
                    f"{self.label!r} at {self.location}" + (f" ({errors})" if errors else "")
                )
            prices[ours] = found[0]
        return prices


def _energy_kwh(part: Part) -> float:
    """What a part adds to the meter; an energy that is not known adds nothing."""
    return math.fsum(j for j in part.energy_j.values() if not math.isnan(j)) / J_PER_KWH


def _mean_price(part: Part, tariff: Tariff, zone: tzinfo | None, used_kwh: float) -> float:
    """Price of a part's energy over that energy: tiers may end within it."""
    tiers = tariff.tiers_at(part.interval.astimezone(zone))
    energy_kwh = _energy_kwh(part)
    if energy_kwh <= 0.0:
        return cost_usd(tiers, used_kwh, 1.0)
    return cost_usd(tiers, used_kwh, energy_kwh) / energy_kwh


class EnergyCostMonitor:
    """Measures the energy of windows, and what it cost by the hour.

    Attributes:
        zeus_monitor: What measures the energy.
    """

    def __init__(
        self,
        electricity_price_provider: ElectricityPriceProvider,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
        *,
        time_zone: tzinfo | str | None = None,
        month_to_date_kwh: float = 0.0,
        fetch_timeout_s: float = 15.0,
    ) -> None:
        """Make the monitor; the provider is asked when a window ends, once a day.

        Args:
            electricity_price_provider: Where the tariff comes from.
            gpu_indices: GPUs to measure; None for all.
            cpu_indices: CPUs to measure; None for all.
            sync_execution_with: The framework whose work is waited for at a window's edges.
            time_zone: The tariff's zone, or its name ("America/Detroit"); None for that of this
                machine.
            month_to_date_kwh: What the meter counted this month before a window, for tariffs
                whose price changes with it.
            fetch_timeout_s: Longest that the end of a window waits for the provider, after the
                energy was measured.

        Raises:
            ValueError: there is no such time zone.
        """
        self.zeus_monitor = ZeusMonitor(
            gpu_indices=gpu_indices,
            cpu_indices=cpu_indices,
            approx_instant_energy=True,
            sync_execution_with=sync_execution_with,
        )
        self._zone = _zone_of(time_zone)
        self._month_to_date_kwh = month_to_date_kwh
        self._tariff = Cached(
            lambda: Tariff.parse(electricity_price_provider.get_current_electricity_prices()),
            fetch_timeout_s,
            keep_s=_KEEP_PRICES_S,
        )
        self._windows = IntervalMonitor(
            self.zeus_monitor,
            functools.partial(_floor_hour, self._zone),
            _HOUR,
            after_edge=lambda oldest: None,
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

    def end_window(self, key: str, sync_execution: bool = True) -> EnergyCostMeasurement:
        """Close a window. Where the provider fails, costs are NaN and a warning says why.

        Args:
            key: Its name.
            sync_execution: Whether to wait for the work on the GPUs first.

        Raises:
            ValueError: `key` is not open.
        """
        measurement, parts = self._windows.end(key, sync_execution)
        tariff, failure = self._tariff.get()
        reason = None if tariff else f"no electricity price: {failure}"
        used_kwh = self._month_to_date_kwh
        intervals = []
        for part in parts:
            price = _mean_price(part, tariff, self._zone, used_kwh) if tariff else None
            used_kwh += _energy_kwh(part)
            intervals.append(
                CostInterval(
                    part.start, part.end, part.of("gpu"), part.of("cpu"), part.of("dram"), price
                )
            )
        result = cost(measurement, intervals, reason)
        if result.unavailable:
            warnings.warn(
                f"window {key!r}: the cost is unknown: {result.unavailable}", stacklevel=2
            )
        return result


def _zone_of(time_zone: tzinfo | str | None) -> tzinfo | None:
    if not isinstance(time_zone, str):
        return time_zone
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(
            f"cannot find the time zone {time_zone!r}: pass a name of the IANA database (its "
            "files come with the system, or with pip install tzdata)"
        ) from error


def _floor_hour(zone: tzinfo | None, time: datetime) -> datetime:
    """Start of the local hour that holds `time`, in UTC; not every zone is whole hours off UTC."""
    local = time.astimezone(zone)
    into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    return time.astimezone(timezone.utc) - into


class Op(enum.Enum):
    """What `_polling_process` can be told."""

    BEGIN = 0
    END = 1
    NEXTITER = 2


def _price_by_hour(prices: dict[str, list[Any]], energy_j: EnergyByHour) -> dict[Device, float]:
    """Price at the first tier's bare rate, with the schedule read in UTC."""
    costs: dict[Device, float] = {}
    for hour, by_device in energy_j.items():
        kind = "weekend" if hour.weekday() >= 5 else "weekday"
        period = prices[f"energy_{kind}_schedule"][hour.month - 1][hour.hour]
        rate = prices["energy_rate_structure"][period][0]["rate"]
        for device, joules in by_device.items():
            costs[device] = costs.get(device, 0.0) + joules / J_PER_KWH * rate
    return costs


def _polling_process(
    command_q: Any,
    finished_q: Any,
    gpu_indices: list[int],
    cpu_indices: list[int],
    provider: ElectricityPriceProvider,
) -> None:
    """Measure the windows that a queue names, in this thread, until the last one ends.

    For programs that drive the queues themselves. It keeps their meaning of a cost: the bare
    rate of the first tier, with the tariff's hours taken as UTC. `EnergyCostMonitor` prices by
    local time, adjustments and tiers.

    Args:
        command_q: Gives `(Op, key)`.
        finished_q: Takes, for each END, three dictionaries of $ by index: GPU, CPU, DRAM. Their
            values are NaN where the cost is unknown.
        gpu_indices: GPUs to measure.
        cpu_indices: CPUs to measure.
        provider: Where the tariff comes from; asked when a window ends.
    """

    def price(energy_j: EnergyByHour) -> dict[Device, float]:
        return _price_by_hour(provider.get_current_electricity_prices(), energy_j)

    HourlyQueue(
        finished_q,
        lambda: ZeusMonitor(gpu_indices=gpu_indices, cpu_indices=cpu_indices),
        price,
        settle_after=None,
    ).run(command_q, lambda: datetime.now(timezone.utc), _HOUR)
