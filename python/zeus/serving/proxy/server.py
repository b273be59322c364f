"""The proxy: passes requests on, and adds joules to what completions say of their usage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from zeus.serving.account import Account
from zeus.serving.proxy import http
from zeus.serving.proxy.answers import error_body, own_answer
from zeus.serving.proxy.energy import METHOD, Flight, Overlap
from zeus.serving.proxy.metrics import CONTENT_TYPE, Metrics
from zeus.serving.proxy.rewrite import Events, Usage, find_usage

log = logging.getLogger(__name__)
ACCOUNTED = ("/v1/chat/completions", "/v1/completions")
_GONE = (OSError, http.Ended)
_LATE = (TimeoutError, asyncio.TimeoutError)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    Attributes:
        request_bytes: Body of a request; larger ones are refused.
        answer_bytes: Body of an answer that is held until it is whole, to add its energy; what is
            larger passes as it is.
        head_s: For a request's head to arrive, and for the next request on a kept connection.
        connect_s: To reach the upstream.
        silence_s: Without a byte from the upstream, or of a client that does not read.
        connections: Clients at once; further ones are answered 503.
    """

    request_bytes: int = 64 * 1024 * 1024
    answer_bytes: int = 16 * 1024 * 1024
    head_s: float = 60.0
    connect_s: float = 10.0
    silence_s: float = 600.0
    connections: int = 4096


class Upstream:
    """Where requests go: http:// or https://, host, port and a path that stands before all."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"upstream {url!r} is no http:// or https:// address of a server")
        self.host, self.path = parts.hostname, parts.path.rstrip("/")
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.name = parts.netloc.rpartition("@")[2]
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None

    async def connect(self, limits: Limits) -> http.Stream:
        """A connection of its own for each request."""
        async with http.Deadline(limits.connect_s):
            reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self._ssl)
        return http.Stream(reader, writer, limits.silence_s)


class _Refused(Exception):
    """The answer is ours."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Exchange:
    """One request and its answer."""

    def __init__(self, client: http.Stream, head: http.Head) -> None:
        self.client, self.head = client, head
        self.answering = False  # whether the client has had a byte of the answer
        self.flight: Flight | None = None
        self.model = "unknown"
        self.account: Account | None = None
        self.usage: Usage | None = None
        self.outcome = "error"

    @property
    def accounted(self) -> bool:
        return self.head.method == "POST" and self.head.target.partition("?")[0] in ACCOUNTED


class Proxy:
    """A server on `listen`, before an OpenAI-style server at `upstream`.

    Args:
        upstream: Its address, without /v1.
        overlap: The energy.
        limits: Sizes and times.
    """

    def __init__(self, upstream: Upstream, overlap: Overlap, limits: Limits | None = None) -> None:
        self._upstream, self._overlap = upstream, overlap
        self._limits = limits or Limits()
        self._metrics = Metrics()
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port."""
        await self._overlap.start()
        self._server = await asyncio.start_server(self._client, host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_s: float = 5.0) -> None:
        """Takes no more clients, gives those there are some time, and ends."""
        if self._server is not None:
            self._server.close()
        if self._clients:
            await asyncio.wait(self._clients, timeout=grace_s)
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._overlap.stop()

    # --- a client ---

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        stream = http.Stream(reader, writer, self._limits.silence_s)
        self._clients.add(task)
        try:
            if len(self._clients) > self._limits.connections:
                await stream.send(own_answer(503, error_body("too many connections"), closes=True))
            else:
                while await self._request(stream):
                    pass
            await stream.close()
        except _GONE + _LATE as error:
            log.debug("a client went away: %s", error)
            stream.abort()
        except BaseException:
            stream.abort()
            raise
        finally:
            self._clients.discard(task)

    async def _request(self, client: http.Stream) -> bool:
        """Serves one request; returns whether the connection goes on."""
        try:
            try:
                raw = await client.head(self._limits.head_s)
            except _LATE:
                return False  # an idle connection
            if raw is None:
                return False
            head = http.parse_request(raw)
            framing = http.request_body(head)
            body = await self._body(client, head, framing)
        except http.Malformed as error:
            await client.send(own_answer(error.status, error_body(str(error)), closes=True))
            return False
        path = head.target.partition("?")[0]
        if path in ("/metrics", "/healthz"):
            await client.send(self._own(head, path))
            return head.keeps_alive
        return await self._forward(_Exchange(client, head), body)

    async def _body(self, client: http.Stream, head: http.Head, framing: http.Body) -> bytes:
        most = self._limits.request_bytes
        if isinstance(framing, int) and framing > most:
            raise http.Malformed(f"a body of more than {most} bytes", 413)
        if framing and "100-continue" in head.tokens("expect"):
            await client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        async for data in client.body(framing):
            body += data
            if len(body) > most:
                raise http.Malformed(f"a body of more than {most} bytes", 413)
        return bytes(body)

    def _own(self, head: http.Head, path: str) -> bytes:
        if head.method not in ("GET", "HEAD"):
            return own_answer(
                405, error_body(f"{path} can only be read"), closes=not head.keeps_alive
            )
        if path == "/metrics":
            text, kind, status = self._metrics.render(self._overlap), CONTENT_TYPE, 200
        else:
            errors = self._overlap.problems()
            kind, status = "application/json", 503 if errors else 200
            text = json.dumps({"status": "unmeasured" if errors else "ok", "devices": errors})
        data = text.encode()
        return own_answer(status, data, kind, not head.keeps_alive, head.method == "HEAD")

    # --- passing on ---

    async def _forward(self, exchange: _Exchange, body: bytes) -> bool:
        """Passes a request on and its answer back, unless the client goes away first."""
        client = exchange.client
        if exchange.accounted:
            exchange.model = self._metrics.model(_model_of(body))
            exchange.flight = await self._overlap.begin()
        work = asyncio.ensure_future(self._exchange(exchange, body))
        gone = asyncio.ensure_future(client.wait_gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                exchange.outcome = "cancelled"
                return False
            return await work
        except _Refused as error:
            exchange.outcome = "error"
            if exchange.answering:
                client.abort()
                return False
            closes = not exchange.head.keeps_alive
            await client.send(own_answer(error.status, error_body(str(error)), closes=closes))
            return not closes
        except _GONE + _LATE:
            exchange.outcome = "cancelled"
            raise
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            await self._count(exchange)

    async def _count(self, exchange: _Exchange) -> None:
        """Counts a completion, and ends its flight if that has not been done."""
        if not exchange.accounted:
            return
        if exchange.flight is not None:
            await self._land(exchange, exchange.outcome)
        self._metrics.count(exchange.model, exchange.outcome, exchange.account, exchange.usage)

    async def _land(self, exchange: _Exchange, reason: str = "finished") -> None:
        if exchange.flight is not None:
            flight, exchange.flight = exchange.flight, None
            exchange.account = await self._overlap.end(flight, reason)

    async def _exchange(self, exchange: _Exchange, body: bytes) -> bool:
        try:
            upstream = await self._upstream.connect(self._limits)
        except (*_LATE, OSError) as error:
            status = 504 if isinstance(error, _LATE) else 502
            raise _Refused(
                status, f"cannot reach the upstream {self._upstream.name}: {error}"
            ) from error
        try:
            return await self._speak(exchange, upstream, body)
        finally:
            upstream.abort()

    async def _speak(self, exchange: _Exchange, upstream: http.Stream, body: bytes) -> bool:
        head = exchange.head
        without = ["host", "content-length", "expect"]
        headers = [("Host", self._upstream.name), ("Connection", "close")]
        if exchange.accounted:  # what is compressed cannot be added to
            without.append("accept-encoding")
            headers.append(("Accept-Encoding", "identity"))
        if body or head.all("content-length") or head.all("transfer-encoding"):
            headers.append(("Content-Length", str(len(body))))
        first = f"{head.method} {self._upstream.path}{head.target} HTTP/1.1"
        with _from_upstream(self._upstream.name):
            await upstream.send(http.render(first, headers + head.forwarded(*without)) + body)
            answer = http.Head(status=100)
            while answer.status < 200:
                raw = await upstream.head(self._limits.silence_s)
                if raw is None:
                    raise http.Ended("before it answered")
                answer = http.parse_response(raw)
                if answer.status == 101:
                    raise http.Malformed("it switches protocols")
            framing = http.response_body(answer, head.method)
        pieces = self._pieces(upstream, framing)
        kind = answer.get("content-type").partition(";")[0].strip()
        plain = not answer.get("content-encoding") and framing != 0
        exchange.outcome = "error" if answer.status >= 400 else "cancelled"
        if exchange.accounted and plain and kind == "text/event-stream":
            pieces = self._with_events(exchange, pieces)
            framing = "chunked"
        elif exchange.accounted and plain and kind == "application/json":
            framing, pieces = await self._with_energy(exchange, framing, pieces)
        goes_on = await self._answer(exchange, answer, framing, pieces)
        if answer.status < 400:
            exchange.outcome = "finished"
        return goes_on

    async def _pieces(self, upstream: http.Stream, framing: http.Body) -> AsyncIterator[bytes]:
        with _from_upstream(self._upstream.name):
            async for data in upstream.body(framing):
                yield data

    async def _answer(
        self,
        exchange: _Exchange,
        answer: http.Head,
        framing: http.Body,
        pieces: AsyncIterator[bytes],
    ) -> bool:
        """Sends an answer's head and its body as it comes; returns whether the client stays."""
        client, head = exchange.client, exchange.head
        chunked = framing in ("chunked", "close") and head.minor == 1
        goes_on = head.keeps_alive and (chunked or isinstance(framing, int))
        without = ["content-length"]
        headers = [("Connection", "keep-alive" if goes_on else "close")]
        if chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        elif head.method == "HEAD" or answer.status == 304:
            without.clear()  # it speaks of a body that is not sent
        elif isinstance(framing, int) and answer.status != 204:
            headers.append(("Content-Length", str(framing)))
        first = f"HTTP/1.1 {answer.status} {answer.reason}"
        exchange.answering = True
        await client.send(http.render(first, answer.forwarded(*without) + headers))
        async for data in pieces:
            await client.send(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if chunked:
            await client.send(b"0\r\n\r\n")
        return goes_on

    # --- adding energy ---

    async def _with_energy(
        self, exchange: _Exchange, framing: http.Body, pieces: AsyncIterator[bytes]
    ) -> tuple[http.Body, AsyncIterator[bytes]]:
        """A JSON answer with its energy; as it is where it has no usage or is too large."""
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > self._limits.answer_bytes:
                return framing, _chain(bytes(data), pieces)
        await self._land(exchange)
        exchange.usage = find_usage(bytes(data))
        if exchange.usage is not None:
            data = bytearray(exchange.usage.with_energy(energy_of(exchange)))
        return len(data), _chain(bytes(data))

    async def _with_events(
        self, exchange: _Exchange, pieces: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """A stream of events, with the energy in the chunk that has the usage."""
        events = Events()
        async for data in pieces:
            before = events.seen
            out = events.feed(data)
            if exchange.flight is not None:
                exchange.flight.seen += events.seen - before
            for piece in out:
                if isinstance(piece, bytes):
                    yield piece
                    continue
                begin, usage, end = piece
                await self._land(exchange)
                exchange.usage = usage
                yield begin + usage.with_energy(energy_of(exchange)) + end
        if rest := events.rest():
            yield rest


def energy_of(exchange: _Exchange) -> dict[str, object]:
    """What is added to `usage`. A number that could not be had is null."""
    account = exchange.account
    if account is None or not account.measured:
        return {"total_j": None, "u_j": None, "method": METHOD, "modelled": True}
    energy: dict[str, object] = {
        "total_j": round(account.energy_j, 9),
        "u_j": float(f"{account.u_j:.3g}"),
        "method": METHOD,
        "modelled": True,
    }
    if account.flags:
        energy["flags"] = list(account.flags)
    return energy


@contextlib.contextmanager
def _from_upstream(name: str) -> Iterator[None]:
    """What goes wrong in here is the upstream's doing: 502 or 504."""
    try:
        yield
    except http.Malformed as error:
        raise _Refused(502, f"the upstream {name} answered no HTTP: {error}") from error
    except _LATE as error:
        raise _Refused(504, f"the upstream {name} was silent: {error}") from error
    except _GONE as error:
        raise _Refused(502, f"the upstream {name} ended: {error}") from error


async def _chain(first: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    yield first
    if rest is not None:
        async for data in rest:
            yield data


def _model_of(body: bytes) -> object:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None  # the upstream will say what it thinks of it
    return request.get("model") if isinstance(request, dict) else None
