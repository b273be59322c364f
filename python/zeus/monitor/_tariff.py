"""A tariff of the U.S. Utility Rate Database: a price by month, hour and kind of day, in tiers.

Field names and meanings are those of https://openei.org/services/doc/rest/util_rates: a tier's
`rate` and `adj` add up, in $/kWh; `max` is where the tier ends, in kWh of the billing month.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Tier:
    """One step of a period's price.

    Attributes:
        usd_per_kwh: Price within the tier.
        up_to_kwh: Usage of the month at which the tier ends; infinite for the last one.
    """

    usd_per_kwh: float
    up_to_kwh: float


@dataclass(frozen=True)
class Tariff:
    """A tariff that was understood whole.

    Attributes:
        periods: Tiers by number of the period.
        weekday: Period by month (0 to 11) and hour (0 to 23) from Monday to Friday.
        weekend: The same on Saturday and Sunday.
    """

    periods: Sequence[Sequence[Tier]]
    weekday: Sequence[Sequence[int]]
    weekend: Sequence[Sequence[int]]

    @classmethod
    def parse(cls, prices: Mapping[str, Any]) -> Tariff:
        """Understand what `get_current_electricity_prices` returns.

        Raises:
            ValueError: it is no tariff, or one whose steps are not in kWh of the month.
        """
        try:
            periods = [_tiers(period) for period in prices["energy_rate_structure"]]
            weekday = _schedule(prices["energy_weekday_schedule"], len(periods))
            weekend = _schedule(prices["energy_weekend_schedule"], len(periods))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"cannot read the tariff: {error!r} in its structure") from error
        return cls(periods, weekday, weekend)

    def tiers_at(self, local_time: datetime) -> Sequence[Tier]:
        """The tiers in force at a time of the tariff's own zone."""
        schedule = self.weekend if local_time.weekday() >= 5 else self.weekday
        return self.periods[schedule[local_time.month - 1][local_time.hour]]


def _tiers(period: Sequence[Mapping[str, Any]]) -> list[Tier]:
    units = {tier.get("unit", "kWh") for tier in period}
    if len(period) > 1 and units != {"kWh"}:
        raise ValueError(
            f"cannot price by the tariff: its tiers are in {sorted(units)}, not in kWh"
        )
    if not period:
        raise ValueError("cannot read the tariff: a period has no price")
    tiers = [
        Tier(float(tier["rate"]) + float(tier.get("adj", 0.0)), float(tier.get("max", math.inf)))
        for tier in period
    ]
    # Whatever is used above the last step costs as the last step does.
    return [*tiers[:-1], Tier(tiers[-1].usd_per_kwh, math.inf)]


def _schedule(months: Sequence[Sequence[int]], periods: int) -> Sequence[Sequence[int]]:
    if len(months) != 12 or any(len(hours) != 24 for hours in months):
        raise ValueError("cannot read the tariff: a schedule is not 12 months of 24 hours")
    if any(not 0 <= period < periods for hours in months for period in hours):
        raise ValueError(f"cannot read the tariff: a schedule names none of its {periods} periods")
    return months


def cost_usd(tiers: Sequence[Tier], used_kwh: float, energy_kwh: float) -> float:
    """Price of some energy after `used_kwh` of the month, over as many tiers as it takes."""
    cost = 0.0
    end_kwh = used_kwh + energy_kwh
    for tier in tiers:
        within_kwh = min(end_kwh, tier.up_to_kwh) - used_kwh
        if within_kwh > 0.0:
            cost += within_kwh * tier.usd_per_kwh
            used_kwh += within_kwh
    return cost
