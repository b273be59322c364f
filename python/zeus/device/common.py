"""What devices of all kinds share: the privilege test, and deprecated names of methods."""

from __future__ import annotations

import abc
import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., Any])

# linux/capability.h.
_CAP_SYS_ADMIN = 21


@functools.lru_cache(maxsize=1)
def has_sys_admin() -> bool:
    """Tell whether this process has CAP_SYS_ADMIN, which GPU settings need. Asked once."""
    try:
        mask = _effective_capabilities("/proc/self/status")
    except (OSError, ValueError) as error:
        logger.info("Cannot learn capabilities from /proc/self/status: %s; asking libc", error)
        mask = None
    if mask is None:
        from zeus.device._capget import _capget

        mask = _capget()
    return mask is not None and bool(mask >> _CAP_SYS_ADMIN & 1)


def _effective_capabilities(status_path: str) -> int | None:
    """Read the mask of effective capabilities; None where the file does not tell it."""
    with open(status_path, encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("CapEff:"):
                return int(line.split(":", 1)[1], 16)
    return None


def deprecated_alias(old_name: str) -> Callable[[_F], _F]:
    """Mark a method as one that was called `old_name`: `DeprecatedAliasABCMeta` makes that name.

    Args:
        old_name: The name under which old callers call the method.
    """

    def mark(method: _F) -> _F:
        method._deprecated_alias = old_name  # type: ignore[attr-defined]
        return method

    return mark


def _make_deprecated_method(
    new_method: Callable[..., Any], old_name: str, new_name: str
) -> Callable[..., Any]:
    """Make the method `old_name`, which warns at its first call and calls `new_name`."""
    warned = False

    # Not the attributes of the method: an alias is neither abstract nor marked itself.
    @functools.wraps(new_method, updated=())
    def alias(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal warned
        if not warned:
            warned = True
            warnings.warn(
                f"{old_name}() is deprecated and will be removed; call {new_name}() instead",
                DeprecationWarning,
                stacklevel=2,
            )
        return getattr(self, new_name)(*args, **kwargs)

    alias.__name__ = old_name
    alias.__qualname__ = new_method.__qualname__.rpartition(".")[0] + "." + old_name
    return alias


class DeprecatedAliasABCMeta(abc.ABCMeta):
    """Gives a class the old names of its methods that `deprecated_alias` marks.

    An alias is made once, in the class that marks the method; subclasses inherit it, and it calls
    what they override. So an old name warns once, whichever subclass it is called on.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> DeprecatedAliasABCMeta:
        """Make the class and its aliases."""
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        for new_name in dir(cls):
            if new_name.startswith("_"):
                continue
            method = getattr(cls, new_name, None)
            old_name = getattr(method, "_deprecated_alias", None)
            if isinstance(old_name, str) and callable(method) and not hasattr(cls, old_name):
                setattr(cls, old_name, _make_deprecated_method(method, old_name, new_name))
        return cls
