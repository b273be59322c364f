"""Packages that only some functions need."""

from __future__ import annotations

import importlib
from typing import Any


def extra(module: str, what: str) -> Any:
    """Import a package of the extra `frames`.

    Raises:
        ImportError: It is not installed; the sentence says what to do.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {module}, which is not installed: pip install zeus-cpp[frames]",
            name=module,
        ) from error
