"""The names of pydantic 1, whichever pydantic is installed."""

from __future__ import annotations

try:
    from pydantic.v1 import *  # noqa: F403
except ImportError:
    try:
        from pydantic import *  # type: ignore[assignment, no-redef]  # noqa: F403
    except ImportError as error:
        raise ImportError(
            "zeus.utils.pydantic_v1 needs pydantic; pip install 'zeus-cpp[compat]'"
        ) from error
