"""Times as ISO 8601 text."""

from __future__ import annotations

from datetime import datetime


def parse(text: str) -> datetime:
    """Read a date and time with its offset from UTC, which may be `Z`.

    Raises:
        ValueError: the text is none, or has no offset: it would mean another hour elsewhere.
    """
    # Python 3.10 does not know the Z.
    time = datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))
    if time.tzinfo is None:
        raise ValueError(f"cannot place {text!r} in time: it has no offset from UTC")
    return time
