"""Puts an energy beside the token counts of an OpenAI-style answer, and changes no other byte."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder()
LINE_LIMIT = 4 * 1024 * 1024


@dataclass(slots=True)
class Usage:
    """The `usage` object of an answer and where in its text it ends.

    Attributes:
        text: The whole JSON text.
        end: Offset of the closing brace of `usage`.
        empty: Whether `usage` has no member.
        values: The object.
        last: Whether nothing follows this: an answer as a whole, or the last chunk of a stream.
    """

    text: str
    end: int
    empty: bool
    values: dict[str, object]
    last: bool

    def count(self, name: str) -> int:
        """A token count; 0 if the answer has none that is a number."""
        value = self.values.get(name)
        return value if type(value) is int and value > 0 else 0

    def with_energy(self, energy: dict[str, object]) -> bytes:
        """The text with `"energy": {...}` as the last member of `usage`."""
        member = ("" if self.empty else ", ") + '"energy": ' + json.dumps(energy)
        return (self.text[: self.end] + member + self.text[self.end :]).encode()


def find_usage(data: bytes) -> Usage | None:
    """Finds `usage` in a JSON object; None where it has none, or is no JSON object at all."""
    try:
        text = data.decode()
        return _find(text)
    except (ValueError, RecursionError, IndexError):
        return None  # not JSON: it passes as it is


def _find(text: str) -> Usage | None:
    at = _skip(text, 0)
    if text[at] != "{":
        return None
    found, choices, at = None, None, _skip(text, at + 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at] != ":":
            return None
        value, end = _decoder.raw_decode(text, _skip(text, at + 1))
        if name == "usage" and isinstance(value, dict):
            found = (end - 1, value)
        if name == "choices":
            choices = value
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    if found is None or _skip(text, at + 1) != len(text):
        return None
    return Usage(text, found[0], not found[1], found[1], _is_last(choices))


def _is_last(choices: object) -> bool:
    """The chunk with the usage has no choices; servers that count in all chunks end a choice."""
    if not isinstance(choices, list):
        return True
    return not choices or any(isinstance(c, dict) and c.get("finish_reason") for c in choices)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


class Events:
    """Cuts a stream of server-sent events into lines as it passes.

    What is not yet a whole line is kept back until it is, unless it grows too long to be looked at.
    """

    def __init__(self) -> None:
        self._partial = b""
        self._opaque = False  # within a line that is too long
        self.seen = 0  # data lines: about one per token

    def feed(self, data: bytes) -> list[bytes | tuple[bytes, Usage, bytes]]:
        """What may be passed on now: bytes, and lines with a usage as (before, usage, after)."""
        out: list[bytes | tuple[bytes, Usage, bytes]] = []
        *whole, self._partial = (self._partial + data).split(b"\n")
        plain = bytearray()
        for line in whole:
            usage = None if self._opaque else self._look(line)
            self._opaque = False
            if usage is None:
                plain += line + b"\n"
                continue
            body = line[5:]
            begin = line[: 5 + len(body) - len(body.lstrip())]
            out += [bytes(plain), (begin, usage, b"\r\n" if line.endswith(b"\r") else b"\n")]
            plain.clear()
        if self._opaque or len(self._partial) > LINE_LIMIT:
            plain += self._partial
            self._partial, self._opaque = b"", True
        out.append(bytes(plain))
        return [piece for piece in out if piece]

    def rest(self) -> bytes:
        """What is left when the stream ends."""
        partial, self._partial = self._partial, b""
        return partial

    def _look(self, line: bytes) -> Usage | None:
        if not line.startswith(b"data:"):
            return None
        body = line[5:].strip()
        if body == b"[DONE]":
            return None
        self.seen += 1
        usage = find_usage(body) if b'"usage"' in body else None
        return usage if usage is not None and usage.last else None
