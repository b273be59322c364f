"""Carbon intensities: what a value is, and where values come from without a network."""

from __future__ import annotations

import abc
import contextlib
import csv
import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from zeus.exception import ZeusBaseError
from zeus.monitor import _iso8601
from zeus.monitor._parts import floor_utc

_G_PER_LB = 453.59237  # International avoirdupois pound.
_KWH_PER_MWH = 1000


class ZeusCarbonIntensityHTTPError(ZeusBaseError):
    """The provider could not be asked, or refused."""


class ZeusCarbonIntensityNotFoundError(ZeusBaseError):
    """The provider has no carbon intensity for this place and time."""


def g_per_kwh_from_lb_per_mwh(lb_per_mwh: float) -> float:
    """Convert pounds of CO2eq per megawatt-hour into grams per kilowatt-hour."""
    return lb_per_mwh * _G_PER_LB / _KWH_PER_MWH


@dataclass(frozen=True)
class CarbonIntensity:
    """One value, with what is needed to compare it with another.

    Attributes:
        g_per_kwh: Grams of CO2eq per kilowatt-hour.
        start: Start of the interval that it is for, in UTC.
        provider: Who gave it.
        method: How it was made: direct or lifecycle, measured or estimated.
        fetched_at: When it was asked for, in UTC; its age then was `fetched_at - start`.
    """

    g_per_kwh: float
    start: datetime
    provider: str
    method: str
    fetched_at: datetime


class CarbonIntensityProvider(abc.ABC):
    """Where carbon intensities come from.

    A time is always the start of the interval that its value is for.
    """

    @abc.abstractmethod
    def get_current_carbon_intensity(self) -> float:
        """The value of the current interval, in gCO2eq/kWh."""

    @abc.abstractmethod
    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        """The values of recent intervals in gCO2eq/kWh, by the intervals' starts in UTC."""

    @property
    @abc.abstractmethod
    def update_period(self) -> timedelta:
        """Length of an interval; intervals are counted from midnight UTC."""

    @property
    @abc.abstractmethod
    def history_length(self) -> int:
        """How many recent intervals the provider remembers."""

    def get_intensities(self, start: datetime) -> list[CarbonIntensity]:
        """The values from the interval of `start` on, each with its provider and method.

        The current interval's value is asked for where the recent ones lack it.
        """
        fetched_at = datetime.now(timezone.utc)
        values = self.get_recent_carbon_intensity()
        current = floor_utc(fetched_at, self.update_period)
        if current not in values:
            # Without one this interval has no value, as the list says.
            with contextlib.suppress(ZeusCarbonIntensityNotFoundError):
                values = {**values, current: self.get_current_carbon_intensity()}
        return [
            CarbonIntensity(value, time, type(self).__name__, "not stated", fetched_at)
            for time, value in values.items()
        ]


class ConstantCarbonIntensity(CarbonIntensityProvider):
    """One value for all times, such as a yearly average or a supply contract's."""

    def __init__(self, g_per_kwh: float, *, source: str, method: str = "constant") -> None:
        """Take the value.

        Args:
            g_per_kwh: Grams of CO2eq per kilowatt-hour.
            source: Where the value is from, stored with every number made of it.
            method: How it was made.

        Raises:
            ValueError: the value is negative or no number.
        """
        if not 0.0 <= g_per_kwh < float("inf"):
            raise ValueError(f"cannot use {g_per_kwh} g/kWh as a carbon intensity")
        self.g_per_kwh = g_per_kwh
        self.source = source
        self.method = method

    def get_current_carbon_intensity(self) -> float:
        """The value."""
        return self.g_per_kwh

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        """The value, for the current hour."""
        return {floor_utc(datetime.now(timezone.utc), self.update_period): self.g_per_kwh}

    @property
    def update_period(self) -> timedelta:
        """An hour, so that results are told by hour."""
        return timedelta(hours=1)

    @property
    def history_length(self) -> int:
        """A day, as other providers'; the value is for every hour."""
        return 24

    def get_intensities(self, start: datetime) -> list[CarbonIntensity]:
        """The value for every hour from that of `start` to the current one."""
        now = datetime.now(timezone.utc)
        hour = floor_utc(start, self.update_period)
        values = []
        while hour <= now:
            values.append(CarbonIntensity(self.g_per_kwh, hour, self.source, self.method, now))
            hour += self.update_period
        return values


class CarbonIntensityTable(CarbonIntensityProvider):
    """Values from a table of one's own; needs no network."""

    def __init__(
        self, g_per_kwh: dict[datetime, float], *, source: str, method: str = "table"
    ) -> None:
        """Take the values.

        Args:
            g_per_kwh: Grams of CO2eq per kilowatt-hour by the intervals' starts, which are all of
                the length of the shortest step between two.
            source: Where the table is from, stored with every number made of it.
            method: How its values were made.

        Raises:
            ValueError: there is no value, a time has no offset from UTC, or the times do not fit
            into one grid.
        """
        if not g_per_kwh:
            raise ValueError(f"cannot use the carbon intensities of {source}: there are none")
        if any(time.tzinfo is None for time in g_per_kwh):
            raise ValueError(f"cannot use the carbon intensities of {source}: a time has no offset")
        self._values = {
            time.astimezone(timezone.utc): g_per_kwh[time] for time in sorted(g_per_kwh)
        }
        self.source = source
        self.method = method
        times = list(self._values)
        steps = [later - earlier for earlier, later in itertools.pairwise(times)]
        self._period = min(steps, default=timedelta(hours=1))
        if any(floor_utc(time, self._period) != time for time in times):
            raise ValueError(
                f"cannot use the carbon intensities of {source}: its times are not whole multiples "
                f"of their step ({self._period}) after midnight UTC"
            )

    @classmethod
    def from_csv(cls, path: str | Path, *, method: str = "table") -> CarbonIntensityTable:
        """Read a file with the header `time,g_per_kwh` or `time,lb_per_mwh`.

        Times are ISO 8601 with an offset, and start the interval that their value is for.

        Raises:
            OSError: the file cannot be read.
            ValueError: a column is missing, or a line has no time or no number.
        """
        values = {}
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            columns = set(rows.fieldnames or ()) & {"g_per_kwh", "lb_per_mwh"}
            if "time" not in (rows.fieldnames or ()) or len(columns) != 1:
                raise ValueError(
                    f"cannot read {path}: its header must be time,g_per_kwh or time,lb_per_mwh"
                )
            (column,) = columns
            for row in rows:
                try:
                    value = float(row[column])
                    time = _iso8601.parse(row["time"])
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"cannot read {path}, line {rows.line_num}: {error}"
                    ) from error
                values[time] = value if column == "g_per_kwh" else g_per_kwh_from_lb_per_mwh(value)
        return cls(values, source=str(path), method=method)

    def get_current_carbon_intensity(self) -> float:
        """The value of the current interval.

        Raises:
            ZeusCarbonIntensityNotFoundError: the table has none for now.
        """
        current = floor_utc(datetime.now(timezone.utc), self._period)
        if current not in self._values:
            raise ZeusCarbonIntensityNotFoundError(f"{self.source} has no value for {current}")
        return self._values[current]

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        """All values of the table."""
        return dict(self._values)

    @property
    def update_period(self) -> timedelta:
        """The shortest step between two times of the table."""
        return self._period

    @property
    def history_length(self) -> int:
        """The number of values."""
        return len(self._values)

    def get_intensities(self, start: datetime) -> list[CarbonIntensity]:
        """All values of the table."""
        now = datetime.now(timezone.utc)
        return [
            CarbonIntensity(value, time, self.source, self.method, now)
            for time, value in self._values.items()
        ]
