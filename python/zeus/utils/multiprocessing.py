"""A warning for objects that a spawned process makes anew by importing the main module."""

from __future__ import annotations

import sys
import warnings


def warn_if_global_in_subprocess(self: object) -> None:
    """Warn if the constructor that calls this runs because a spawned process imports its main.

    Args:
        self: The object under construction; the warning names its class.
    """
    if not _is_global_in_spawned_child():
        return
    warnings.warn(
        f"{type(self).__name__} was instantiated during module import in a spawned subprocess; "
        'make it in a function, or under `if __name__ == "__main__":`',
        UserWarning,
        stacklevel=4,
    )


def _is_global_in_spawned_child() -> bool:
    """Tell whether a module that is being imported as `__mp_main__` is on the stack."""
    # `__mp_main__` is what multiprocessing calls the main module in the processes that it spawns.
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "<module>"
            and not code.co_filename.startswith(("<string>", "<frozen"))
            and frame.f_globals.get("__name__") == "__mp_main__"
        ):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
