"""Asking other machines, so that no answer, a wrong one or a slow one ends as one sentence."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FetchError(Exception):
    """No usable answer; the message says why and holds no secret."""


def get_json(
    url: str,
    *,
    headers: dict[str, str] | None = None,
    proxy: str | None = None,
    timeout_s: float = 10.0,
    secret: str | None = None,
) -> Any:
    """GET `url` and parse its JSON.

    Args:
        url: What to ask.
        headers: Headers of the request.
        proxy: URL of an HTTP proxy; None for what the environment says.
        timeout_s: Longest wait for the connection and between two pieces of the answer.
        secret: Part of `url` that no message may show.

    Raises:
        FetchError: no connection, a status that is no success, or no JSON.
        ImportError: `requests` is not installed.
    """
    try:
        import requests
    except ImportError as error:
        raise ImportError(
            "asking for carbon intensities and prices needs requests: "
            "pip install zeus-cpp[carbon], or use a table of your own"
        ) from error

    def shown(text: object) -> str:
        return str(text).replace(secret, "***") if secret else str(text)

    options: dict[str, Any] = {"timeout": timeout_s}
    if headers:
        options["headers"] = headers
    if proxy:
        options["proxies"] = {"http": proxy, "https": proxy}
    host = url.split("?", 1)[0]
    try:
        response = requests.get(url, **options)
        # A stand-in for a response may have a body only.
        status = getattr(response, "status_code", 200)
        if not 200 <= status < 300:
            raise FetchError(f"{host} answered {status}: {shown(_start_of(response.text))}")
        return response.json()
    except (json.JSONDecodeError, requests.exceptions.JSONDecodeError) as error:
        text = _start_of(response.text)
        raise FetchError(f"{host} answered no JSON: {shown(text)}") from error
    except requests.RequestException as error:
        # Not chained: the original names the whole URL, with the key in it.
        raise FetchError(f"cannot ask {host}: {shown(error)}") from None


def _start_of(text: str) -> str:
    return " ".join(text.split())[:120]


def within(deadline_s: float, ask: Callable[[], T]) -> T:
    """Call `ask` in a thread of its own and wait for it no longer than `deadline_s`.

    A time-out of the request alone does not bound the resolution of names, nor a server that
    sends one byte at a time, nor a provider that someone else wrote.

    Raises:
        FetchError: there is no answer in time.
        Exception: what `ask` raises.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="zeus-fetch", daemon=True)
    thread.start()
    thread.join(deadline_s)
    if errors:
        raise errors[0]
    if not results:
        raise FetchError(f"no answer within {deadline_s:g} s")
    return results[0]


class Cached(Generic[T]):
    """One value that is asked for at most so often, whether the answer was good or not."""

    def __init__(self, ask: Callable[[], T], deadline_s: float, keep_s: float) -> None:
        """Keep a good answer for `keep_s`, and a failure for a minute at most."""
        self._ask = ask
        self._deadline_s = deadline_s
        self._keep_s = keep_s
        self._retry_s = min(60.0, keep_s)
        self._until_s = 0.0
        self._value: T | None = None
        self._reason: str | None = None

    def get(self) -> tuple[T | None, str | None]:
        """The value, or the last good one; and why a newer one is not to be had."""
        if time.monotonic() >= self._until_s:
            try:
                self._value = within(self._deadline_s, self._ask)
                self._reason = None
            # A provider may be anyone's code; its failure costs the number, not the energy.
            except Exception as error:
                self._reason = str(error) or type(error).__name__
            wait_s = self._retry_s if self._reason else self._keep_s
            self._until_s = time.monotonic() + wait_s
        return self._value, self._reason
