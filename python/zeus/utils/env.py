"""Typed environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


def get_env(name: str, valtype: type[T], default: T | None = None) -> T:
    """Read an environment variable.

    Args:
        name: Of the variable.
        valtype: What makes a value of the text; for `bool` the text is true or false, in any case.
        default: Taken where the variable is not set; None means that it must be.

    Raises:
        ValueError: It is not set and there is no default, or its text is no `valtype`.
    """
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise ValueError(f"the environment variable {name} is not set; set it")
        return default
    if valtype is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"the environment variable {name} is {text!r}; set it true or false")
        return cast(T, text.lower() == "true")
    return cast(Callable[[str], T], valtype)(text)
