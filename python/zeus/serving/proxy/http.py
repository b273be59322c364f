"""The part of HTTP/1.1 that a proxy needs (RFC 9112), over asyncio's streams.

What is ambiguous is refused, never guessed: a proxy that reads a message otherwise than the server
behind it lets requests be smuggled through (RFC 9112, 11.2).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Literal

HEAD_LIMIT = 64 * 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_REQUEST = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.([01])\Z")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?\Z")
_LENGTH = re.compile(r"[0-9]{1,18}\Z")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
# RFC 9110, 7.6.1: of one connection, not of the message.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization"} | {
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


class Malformed(Exception):
    """The other side does not speak HTTP as it should, or too much of it."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class Ended(Exception):
    """The other side ended in the middle of a message."""


@dataclass(slots=True)
class Head:
    """First line and headers. Header names keep their spelling; they compare without case."""

    method: str = ""
    target: str = ""
    status: int = 0
    reason: str = ""
    minor: int = 1
    headers: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        """Values of all headers of that name (in lower case)."""
        return [value for key, value in self.headers if key.lower() == name]

    def get(self, name: str) -> str:
        """Values joined by commas, in lower case; empty if there is none."""
        return ", ".join(self.all(name)).lower()

    def tokens(self, name: str) -> set[str]:
        """The comma-separated words of a header."""
        return {word.strip() for word in self.get(name).split(",") if word.strip()}

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection goes on after this message."""
        words = self.tokens("connection")
        return "close" not in words and (self.minor == 1 or "keep-alive" in words)

    def forwarded(self, *without: str) -> list[tuple[str, str]]:
        """The headers that are passed on: not those of this connection, nor `without`."""
        own = HOP_BY_HOP | self.tokens("connection") | set(without)
        return [(key, value) for key, value in self.headers if key.lower() not in own]


Body = int | Literal["chunked", "close"]


def parse_request(raw: bytes) -> Head:
    """A request's head.

    Raises:
        Malformed: It is none.
    """
    first, headers = _lines(raw)
    match = _REQUEST.match(first)
    if match is None:
        raise Malformed(f"the first line is no HTTP/1.x request: {first[:80]!r}")
    head = Head(method=match[1], target=match[2], minor=int(match[3]), headers=headers)
    if not (head.target.startswith("/") or head.target == "*"):
        raise Malformed("only a path can be asked for: this is no proxy to anywhere else")
    return head


def parse_response(raw: bytes) -> Head:
    """An answer's head.

    Raises:
        Malformed: It is none.
    """
    first, headers = _lines(raw)
    match = _STATUS.match(first)
    if match is None:
        raise Malformed(f"the first line is no HTTP/1.x status: {first[:80]!r}")
    return Head(status=int(match[2]), reason=match[3] or "", minor=int(match[1]), headers=headers)


def _lines(raw: bytes) -> tuple[str, list[tuple[str, str]]]:
    first, *rest = raw.decode("latin-1").split("\r\n")
    headers = []
    for line in (first, *rest):
        if any(c in line for c in "\r\n\0"):
            raise Malformed("the head has a bare CR, LF or NUL")
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.match(name):
            raise Malformed(f"no header: {line[:80]!r}")
        headers.append((name, value.strip(" \t")))
    return first, headers


def request_body(head: Head) -> Body:
    """How a request's body is framed.

    Raises:
        Malformed: Ambiguously.
    """
    framed = _framed(head)
    return 0 if framed is None else framed


def response_body(head: Head, method: str) -> Body:
    """How the body of an answer to `method` is framed.

    Raises:
        Malformed: Ambiguously.
    """
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        return 0
    framed = _framed(head)
    return "close" if framed is None else framed


def _framed(head: Head) -> Body | None:
    lengths, coding = set(head.all("content-length")), head.get("transfer-encoding")
    if coding:
        if coding != "chunked" or lengths or head.minor == 0:
            raise Malformed("a transfer coding that is not plainly chunked, or a length beside it")
        return "chunked"
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not _LENGTH.match(length):
        raise Malformed("the content length is no number, or two of them")
    return int(length)


def render(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """A head as bytes."""
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Deadline:
    """Cancels what is inside after so many seconds, and raises TimeoutError in its place.

    What `asyncio.timeout` does from Python 3.11 on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._handle.cancel()
        if self._expired and kind is asyncio.CancelledError:
            uncancel = getattr(self._task, "uncancel", None)
            if uncancel is not None:
                uncancel()
            raise TimeoutError(f"nothing for {self._seconds:g} s")


class Stream:
    """A connection, with what was read ahead of need."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float
    ) -> None:
        self._reader, self._writer, self._wait_s = reader, writer, wait_s
        self._ahead = bytearray()

    async def head(self, wait_s: float) -> bytes | None:
        """The next head, without the empty line; None where the other side ended before it.

        Raises:
            Malformed: Too long a head.
            Ended: In the middle of it.
            TimeoutError: Nothing for `wait_s`.
        """
        async with Deadline(wait_s):
            while (end := self._ahead.find(b"\r\n\r\n")) < 0:
                if len(self._ahead) > HEAD_LIMIT:
                    break
                if not await self._fill():
                    if self._ahead.strip(b"\r\n"):
                        raise Ended("in the middle of a head")
                    return None
                while self._ahead.startswith(b"\r\n"):  # RFC 9112, 2.2: before a request line
                    del self._ahead[:2]
        if not 0 <= end <= HEAD_LIMIT:
            raise Malformed(f"a head of more than {HEAD_LIMIT} bytes", 431)
        raw = bytes(self._ahead[:end])
        del self._ahead[: end + 4]
        return raw

    async def body(self, framing: Body) -> AsyncIterator[bytes]:
        """The body's bytes as they come, without their framing.

        Raises:
            Ended: Before it was complete.
            Malformed: A chunk that is none.
            TimeoutError: Nothing came for the stream's time-out.
        """
        if framing == "chunked":
            async for data in self._chunks():
                yield data
        elif framing == "close":
            while self._ahead or await self._fill_in_time():
                yield self._take(len(self._ahead))
        else:
            async for data in self._exactly(framing):
                yield data

    async def wait_gone(self) -> None:
        """Returns when the other side has ended; keeps what it says until then."""
        while len(self._ahead) < HEAD_LIMIT:
            if not await self._fill():
                return
        await asyncio.Event().wait()  # it talks on: writing to it will show when it is gone

    async def send(self, data: bytes) -> None:
        """Writes, as fast as the other side reads.

        Raises:
            ConnectionError: It is gone.
            TimeoutError: It did not read for the stream's time-out.
        """
        self._writer.write(data)
        async with Deadline(self._wait_s):
            await self._writer.drain()

    def abort(self) -> None:
        """Ends at once, so that the other side sees that the message is incomplete."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Ends after what was written."""
        self._writer.close()
        try:
            async with Deadline(5.0):
                await self._writer.wait_closed()
        except (ConnectionError, TimeoutError, asyncio.TimeoutError, OSError):
            self.abort()  # the other side is gone, or does not read

    async def _fill(self) -> bool:
        data = await self._reader.read(65536)
        self._ahead += data
        return bool(data)

    async def _fill_in_time(self) -> bool:
        async with Deadline(self._wait_s):
            return await self._fill()

    def _take(self, most: int) -> bytes:
        data = bytes(self._ahead[:most])
        del self._ahead[:most]
        return data

    async def _exactly(self, length: int) -> AsyncIterator[bytes]:
        while length:
            if not self._ahead and not await self._fill_in_time():
                raise Ended(f"{length} bytes before the end of the body")
            data = self._take(length)
            length -= len(data)
            yield data

    async def _line(self) -> bytes:
        while (end := self._ahead.find(b"\r\n")) < 0:
            if len(self._ahead) > HEAD_LIMIT:
                raise Malformed("a line of a chunked body is too long")
            if not await self._fill_in_time():
                raise Ended("between chunks")
        return self._take(end + 2)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            match = _CHUNK.match(await self._line())
            if match is None:
                raise Malformed("a chunk without a size")
            size = int(match[1], 16)
            if size == 0:
                break
            async for data in self._exactly(size):
                yield data
            if await self._line() != b"\r\n":
                raise Malformed("a chunk that is longer than its size")
        for _ in range(100):  # trailers, which are not passed on
            if await self._line() == b"\r\n":
                return
        raise Malformed("too many trailers")
