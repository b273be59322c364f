"""Answers of the proxy itself."""

from __future__ import annotations

import json

from zeus.serving.proxy import http

_REASONS = {
    200: "OK",
    400: "Bad Request",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def error_body(why: str) -> bytes:
    """An error as OpenAI's clients read it."""
    return json.dumps({"error": {"message": f"zeus proxy: {why}", "type": "proxy_error"}}).encode()


def own_answer(
    status: int,
    data: bytes,
    kind: str = "application/json",
    closes: bool = False,
    bodiless: bool = False,
) -> bytes:
    """A whole answer, head and body; `bodiless` to a HEAD."""
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(data))),
        ("Connection", "close" if closes else "keep-alive"),
    ]
    head = http.render(f"HTTP/1.1 {status} {_REASONS[status]}", headers)
    return head if bodiless else head + data
