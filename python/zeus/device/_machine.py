"""The machine that this process runs on, opened once and shared by everything that reads it."""

from __future__ import annotations

import os
import threading

from zeus import _core

_lock = threading.Lock()
_opened: tuple[frozenset[tuple[str, str]], _core.Machine] | None = None


def machine() -> _core.Machine:
    """The devices that this environment tells of; opened anew where the environment has changed.

    Its GPUs are those that a CUDA program would see, in CUDA's order. Where the environment names
    a daemon (`ZEUSD_SOCK_PATH`, `ZEUSD_HOST_PORT`), what that serves stands for the same things
    here.

    Raises:
        zeus._core.Error: A daemon that is named does not answer, or a table of sensors is broken.
    """
    global _opened
    environment = frozenset(os.environ.items())
    with _lock:
        if _opened is None or _opened[0] != environment:
            _opened = (environment, _core.open(os.environ.get("ZEUS_HOST"), dict(os.environ)))
        return _opened[1]


def daemon() -> str | None:
    """What names a daemon here, as `NAME=value`; None: nothing does."""
    return _first_of("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT")


def named() -> str:
    """What names the machine, as `NAME=value: `; empty: it is this one."""
    name = _first_of("ZEUS_HOST", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT")
    return "" if name is None else f"{name}: "


def _first_of(*names: str) -> str | None:
    return next((f"{name}={os.environ[name]}" for name in names if name in os.environ), None)


def core_device(one: object) -> _core.Device | None:
    """What a GPU or CPU object is to the core; None where Python code reads it."""
    device = getattr(one, "handle", None) or getattr(one, "device", None)
    return device if isinstance(device, _core.Device) else None


def _forget_lock() -> None:
    # Another thread may have held it while this process was forked.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)
