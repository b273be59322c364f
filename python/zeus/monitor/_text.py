"""Numbers with their uncertainty, written as JCGM 100:2008 7.2 has it."""

from __future__ import annotations

import math

UNKNOWN = "nothing is known about its error"


def finite(value: float) -> float | None:
    """The number; None where JSON has none for it."""
    return value if math.isfinite(value) else None


def written(value: float, u: float, spec: str = "", why: str = "", unit: str = "J") -> str:
    """Write a value: "" as "85.4 J ± 12.0 J (k = 2)", "c" as "85.4(60) J" (k = 1).

    u has two significant digits, and the value as many decimals.

    Args:
        value: Its best estimate; NaN: there is none.
        u: Its standard uncertainty; NaN: unknown.
        spec: "" or "c".
        why: Why there is no value.
        unit: Of both.

    Raises:
        ValueError: There is no such format.
    """
    if spec not in ("", "c"):
        raise ValueError(f"cannot format an energy as {spec!r}: give '' or 'c'")
    if math.isnan(value):
        return f"no number ({why or 'nobody says why'})"
    if not math.isfinite(u):
        return f"{value:.6g} {unit} ± unknown"
    if u <= 0:
        return f"{value:.6g} {unit}" if spec else f"{value:.6g} {unit} ± 0 {unit} (k = 2)"
    # Rounding may carry into another digit: 0.0996 is 0.10 to two digits.
    exponent = int(f"{u:.1e}".partition("e")[2])
    decimals = max(0, 1 - exponent)
    step = 10.0 ** max(0, exponent - 1)
    if step > 1:
        value, u = round(value / step) * step, round(u / step) * step
    if spec:
        return f"{value:.{decimals}f}({round(u * 10**decimals)}) {unit}"
    return f"{value:.{decimals}f} {unit} ± {2 * u:.{decimals}f} {unit} (k = 2)"
