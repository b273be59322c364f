"""Measures and lowers the energy of deep learning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus._measure import measure as measure

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # `import zeus` loads nothing; the first use of this loads the extension.
    if name != "measure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zeus._measure import measure

    globals()[name] = measure
    return measure
