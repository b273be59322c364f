"""One stream of power from a daemon: its thread, its connection, and the parser of its events."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from zeus.exception import ZeusBaseError
from zeus.utils._zeusd_wire import (
    ZeusdConfig,
    ZeusdConnectionError,
    check_protocol,
    import_httpx,
)

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

# A daemon with heartbeats lets at most 5 s pass without a byte; three of them lost is silence.
HEARTBEAT_SILENCE_S = 15.0

# The delay between attempts doubles with each that brings nothing, up to this multiple.
_LONGEST_DELAY = 16
_SHORTEST_DELAY_S = 0.05

# What TCP itself asks a silent peer: after 10 s, every 5 s, and gives up after 3 without answer.
_KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)

# A carriage return at the end may be half of a line end: it waits for the next byte.
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
_LONGEST_EVENT = 1 << 20


class EventParser:
    """Cuts a stream of server-sent events into its events (WHATWG HTML, section 9.2.6).

    Line ends may be any of the three kinds, and the space after the colon may be missing. Comments
    are dropped.
    """

    def __init__(self) -> None:
        """Begin at the beginning of a stream."""
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Give the data of each event that the chunk completes.

        Raises:
            ValueError: An event is longer than a mebibyte.
        """
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data).decode(errors="replace")
                self._data.clear()
        if len(self._rest) + sum(map(len, self._data)) > _LONGEST_EVENT:
            raise ValueError(f"an event is longer than {_LONGEST_EVENT} bytes")


def event_number(event: dict[str, Any], key: str) -> float:
    """Give a number of an event that is not negative; whatever else is there is a ValueError."""
    value = event[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} is no number")
    if not 0 <= value <= 2**63 or not math.isfinite(value):
        raise ValueError(f"{key} is out of range")
    return value


def event_index(event: dict[str, Any], key: str) -> int:
    """Give an index of an event; whatever else is there is a ValueError."""
    value = event_number(event, key)
    if not isinstance(value, int):
        raise ValueError(f"{key} is no whole number")
    return value


@dataclass
class StreamHealth:
    """Whether a stream lives. Written by its thread alone, read by all.

    Attributes:
        heard_at: When its last byte came, on the monotonic clock; None before the first.
        connected: Whether it is connected now.
    """

    heard_at: float | None = None
    connected: bool = False


@dataclass
class Connections:
    """The sockets of the streams of one process, to be shut from another thread.

    Attributes:
        stopped: Set when they are shut; streams then end.
    """

    stopped: threading.Event
    _pid: int = field(default_factory=os.getpid)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sockets: set[socket.socket] = field(default_factory=set)

    def add(self, sock: socket.socket) -> None:
        """Take a socket that has connected; shut it if it comes too late."""
        with self._lock:
            self._sockets.add(sock)
            if self.stopped.is_set():
                _shut(sock)

    def discard(self, sock: socket.socket) -> None:
        """Forget a socket before it is closed."""
        with self._lock:
            self._sockets.discard(sock)

    def shut(self) -> None:
        """Wake all threads that wait for a socket. A forked child must leave them to its parent."""
        if os.getpid() != self._pid:
            return
        self.stopped.set()
        with self._lock:
            for sock in self._sockets:
                _shut(sock)

    def abandon(self) -> None:
        """Close a forked child's copies, which would keep the connections open after the parent."""
        for sock in self._sockets:
            sock.close()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError as error:  # The peer was faster; the thread wakes all the same.
        logger.debug("A power stream was closed already: %s", error)


class StreamClient(Protocol):
    """What a stream needs of the client that owns it."""

    def _take_event(self, kind: str, data: str, key: str) -> None: ...

    def _measure_clock(self, key: str) -> None: ...

    def _tell(self) -> None: ...


@dataclass(frozen=True)
class Stream:
    """What to stream, and from where.

    Attributes:
        kind: `gpu` or `cpu`.
        config: The daemon.
        indices: The devices; None is all.
        silence_s: How long the daemon may be silent before the connection is given up; None is for
            ever.
        repeats: Whether the daemon tells a power again that stays the same.
        delay_s: Before the next attempt to connect.
        owner: Gives the client, or None when nobody uses it any more.
        connections: Of the client.
        health: Of this stream.
    """

    kind: str
    config: ZeusdConfig
    indices: list[int] | None
    silence_s: float | None
    repeats: bool
    delay_s: float
    owner: Callable[[], StreamClient | None]
    connections: Connections
    health: StreamHealth = field(default_factory=StreamHealth)

    def start(self) -> threading.Thread:
        """Start the thread."""
        name = f"{self.kind}-power-stream-{self.config.endpoint}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        return thread

    def stale(self, now: float, oldest: float | None) -> bool:
        """Tell whether what the stream brought may no longer be so.

        Args:
            now: On the monotonic clock.
            oldest: When the event came that is longest ago, of each device's last.
        """
        if self.health.heard_at is None:
            return False  # It has brought nothing.
        heard_at = oldest if self.repeats else self.health.heard_at
        silent = heard_at is not None and now - heard_at > (self.silence_s or math.inf)
        return silent or not self.health.connected

    def _run(self) -> None:
        """Connect until told to stop, slower and slower while nothing comes."""
        httpx = import_httpx()
        attempts, said = 0, ""
        while not self.connections.stopped.is_set():
            heard_before = self.health.heard_at
            try:
                if attempts > 0 and not self._call(lambda owner: owner._measure_clock(self._key)):
                    return
                if not self._connect():
                    return
                problem = "the daemon ended it"
            except (httpx.HTTPError, ZeusBaseError, OSError, ValueError) as error:
                problem = str(error) or type(error).__name__
            finally:
                self.health.connected = False
            if not self._call(lambda owner: owner._tell()) or self.connections.stopped.is_set():
                return
            attempts = 1 if self.health.heard_at != heard_before else attempts + 1
            delay_s = max(_SHORTEST_DELAY_S, self.delay_s) * min(
                2 ** (attempts - 1), _LONGEST_DELAY
            )
            # Once for each problem: a daemon may be away for days.
            level = logging.DEBUG if problem == said else logging.WARNING
            said = problem
            logger.log(level, "%s: %s; connecting again in %g s", self, problem, delay_s)
            self.connections.stopped.wait(delay_s)

    def __str__(self) -> str:
        """Name the stream for the log."""
        return f"The stream of {self.kind.upper()} power from {self._key}"

    @property
    def _key(self) -> str:
        return self.config.endpoint

    def _call(self, use: Callable[[StreamClient], object]) -> bool:
        """Use the client, which may be gone: then the thread ends, and does not keep it alive."""
        owner = self.owner()
        if owner is None:
            return False
        use(owner)
        return True

    def _connect(self) -> bool:
        """Stream until the connection ends; False says that another one would be no use."""
        module = import_httpx()
        sockets: list[socket.socket] = []

        def trace(event: str, info: dict[str, Any]) -> None:
            if ".connect_" in event and event.endswith(".complete"):
                sock = info["return_value"].get_extra_info("socket")
                sockets.append(sock)
                _keep_alive(sock)
                self.connections.add(sock)

        url = self.config.url(f"/{self.kind}/stream_power")
        if self.indices is not None:
            url += f"?{self.kind}_ids=" + ",".join(map(str, self.indices))
        # A client of its own: a stream takes its connection with it, and a new one is traced.
        with self.config.make_client() as client:
            try:
                with client.stream(
                    "GET",
                    url,
                    timeout=module.Timeout(5.0, read=self.silence_s),
                    extensions={"trace": trace},
                ) as response:
                    return self._read(response)
            finally:
                for sock in sockets:
                    self.connections.discard(sock)

    def _read(self, response: httpx.Response) -> bool:
        check_protocol(response, self._key)
        if response.status_code in (401, 403):
            response.read()
            logger.error(
                "%s is refused (HTTP %d: %s) and has ended; give ZeusdConfig a token that is good",
                self,
                response.status_code,
                response.text[:500],
            )
            return False
        if response.status_code != 200:
            response.read()
            raise ZeusdConnectionError(f"HTTP {response.status_code}: {response.text[:500]}")
        self.health.connected = True
        parser = EventParser()
        for chunk in response.iter_bytes():
            if self.connections.stopped.is_set():
                return False
            self.health.heard_at = time.monotonic()
            for data in parser.feed(chunk):
                owner = self.owner()
                if owner is None:
                    return False
                owner._take_event(self.kind, data, self._key)
                # Waiting for the next one must not keep the client alive.
                del owner
        return True


def _keep_alive(sock: socket.socket) -> None:
    """Let TCP find a peer that is gone without a word."""
    if sock.family == socket.AF_UNIX:
        return
    for level, name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(level, option, value)
