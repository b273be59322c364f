"""Tasks whose failures are not lost."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

default_logger = logging.getLogger(__name__)


def create_task(
    coroutine: Coroutine[Any, Any, T], logger: logging.Logger | None = None
) -> asyncio.Task[T]:
    """Start a task and log the exception that ends it, should one; keep the task that it returns.

    Args:
        coroutine: What the task runs.
        logger: Where its exception goes; this module's by default.
    """
    task = asyncio.create_task(coroutine)
    task.add_done_callback(functools.partial(_log_exception, logger=logger or default_logger))
    return task


def _log_exception(task: asyncio.Task[Any], logger: logging.Logger) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        logger.error("The task %s failed", task.get_name(), exc_info=error)
