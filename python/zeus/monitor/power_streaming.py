"""Power of GPUs and CPUs, as daemons stream it."""

from __future__ import annotations

import copy
import json
import logging
import os
import statistics
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeus.monitor._power_stream import (
    HEARTBEAT_SILENCE_S,
    Connections,
    EventParser,
    Stream,
    event_index,
    event_number,
)
from zeus.utils.zeusd import ZeusdCapabilityError, ZeusdClient, ZeusdConfig

logger = logging.getLogger(__name__)

_CLOCK_QUESTIONS = 5
# How long an iterator waits before it looks whether readings have become stale.
_LOOK_S = 0.5
# All threads together; they are woken first, so only one that is connecting takes longer.
_JOIN_S = 0.8


@dataclass
class CpuPowerReading:
    """Power of a CPU package and of its DRAM, in watts; None where DRAM is not measured."""

    cpu_w: float = 0.0
    dram_w: float | None = None


@dataclass
class PowerReadings:
    """The last power that a daemon told of its devices.

    A daemon of upstream is silent while power stays the same, so `age_s` may grow there without
    anything being wrong; ours is heard from at least every five seconds.

    Attributes:
        timestamp_s: Of the newest of them, by this machine's clock (Unix, seconds).
        gpu_power_w: Watts, by the daemon's index of the GPU.
        cpu_power_w: The same of CPU packages.
        stale: A stream is not connected, or silent for too long, or ours has not told a device's
            power in that time: what is here may no longer be so.
        age_s: Seconds since the daemon was last heard, on the more silent of its streams, when
            this was taken; None where nobody listens.
        gpu_age_s: Seconds since each GPU's power came, when this was taken.
        cpu_age_s: The same of CPU packages.
    """

    timestamp_s: float = 0.0
    gpu_power_w: dict[int, float] = field(default_factory=dict)
    cpu_power_w: dict[int, CpuPowerReading] = field(default_factory=dict)
    stale: bool = False
    age_s: float | None = field(default=None, compare=False)
    gpu_age_s: dict[int, float] = field(default_factory=dict, compare=False)
    cpu_age_s: dict[int, float] = field(default_factory=dict, compare=False)


class PowerStreamingClient:
    """Keeps the newest power of the devices of several daemons, by one thread a stream.

    Threads reconnect until `stop()`, or until the client is garbage. A child of `os.fork()` has
    none: what it sees is stale.
    """

    _streams: list[Stream]
    _arrivals: dict[str, dict[tuple[str, int], float]]
    _bad_events: Counter[str]
    _daemon_clients: dict[str, ZeusdClient]
    _stopping: weakref.finalize[[], PowerStreamingClient] | None

    def __new__(cls, *_args: Any, **_kwargs: Any) -> PowerStreamingClient:
        """Make what no daemon is needed for."""
        self = super().__new__(cls)
        self._streams = []
        self._arrivals = {}
        self._bad_events = Counter()
        self._daemon_clients = {}
        self._stopping = None
        return self

    def __init__(
        self,
        servers: Sequence[ZeusdConfig],
        reconnect_delay_s: float = 1.0,
        *,
        silence_timeout_s: float | None = None,
    ) -> None:
        """Ask the daemons what they have, and start to stream.

        Args:
            servers: The daemons. Of each, all devices that may be read are streamed, or those that
                its `gpu_indices` and `cpu_indices` name.
            reconnect_delay_s: Before the first attempt to connect again. It doubles with each that
                brings nothing, up to sixteen times.
            silence_timeout_s: How long a daemon may be silent before its connection is given up.
                By default 15 s for daemons that send heartbeats, as ours do; for others there is
                none, since constant power is silent there, and TCP's own keep-alive finds a peer
                that is gone after 25 s.

        Raises:
            ValueError: Two daemons are the same, or one has not what was named.
            ZeusdConnectionError: A daemon cannot be reached.
            ZeusdCapabilityError: One does not allow to read what was named.
        """
        keys = [server.endpoint for server in servers]
        if len(set(keys)) != len(keys):
            raise ValueError(f"cannot stream from one daemon twice: {sorted(keys)}")
        self._servers = list(servers)
        self._reconnect_delay = reconnect_delay_s
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._readings: dict[str, PowerReadings] = {}
        self._clock_offsets: dict[str, float] = {}
        self._threads: list[threading.Thread] = []
        self._stop_event = threading.Event()
        self._daemon_clients = {server.endpoint: ZeusdClient(server) for server in servers}

        self._connections = Connections(self._stop_event)
        for server in self._servers:
            client = self._daemon_clients[server.endpoint]
            repeats = "heartbeat" in client._features
            silence_s = silence_timeout_s
            if silence_s is None and repeats:
                silence_s = HEARTBEAT_SILENCE_S
            self._streams += [
                Stream(
                    kind,
                    server,
                    indices,
                    silence_s,
                    repeats,
                    reconnect_delay_s,
                    weakref.ref(self),
                    self._connections,
                )
                for kind, indices in _choose(server, client)
            ]
        for stream in self._streams:
            if stream.config.endpoint not in self._clock_offsets:
                self._measure_clock(stream.config.endpoint)
        if not self._streams:
            logger.warning("There is no power to stream from %s", ", ".join(keys) or "no daemon")
        # Only now that nothing can fail any more.
        self._stopping = weakref.finalize(self, self._connections.shut)
        _alive.add(self)
        self._threads += [stream.start() for stream in self._streams]

    @property
    def bad_events(self) -> dict[str, int]:
        """How many events could not be understood and were skipped, by endpoint."""
        return dict(self._bad_events)

    def get_power(self) -> dict[str, PowerReadings]:
        """Give a copy of the newest readings of each daemon that has sent any, by endpoint."""
        with self._lock:
            return self._snapshot()

    def stop(self) -> None:
        """End the threads and the iterators. What was read stays."""
        self._stop_event.set()
        if self._stopping is not None:
            self._stopping()
        with self._condition:
            self._condition.notify_all()
        until = time.monotonic() + _JOIN_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            for client in self._daemon_clients.values():
                client.close()

    def __iter__(self) -> Iterator[dict[str, PowerReadings]]:
        """Yield the readings whenever they differ from what was yielded last, until `stop()`.

        What changed while the caller was busy comes at once; of several changes, the last.
        """
        last: dict[str, PowerReadings] = {}
        while not self._stop_event.is_set():
            now = self._changed(last)
            if now is not None:
                last = now
                yield copy.deepcopy(now)

    async def __aiter__(self) -> AsyncIterator[dict[str, PowerReadings]]:
        """Do the same without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        last: dict[str, PowerReadings] = {}
        while not self._stop_event.is_set():
            now = await loop.run_in_executor(None, self._changed, last)
            if now is not None:
                last = now
                yield copy.deepcopy(now)

    def _changed(self, last: dict[str, PowerReadings]) -> dict[str, PowerReadings] | None:
        """Wait a while for readings that are not `last`; None if there are none, or at the end."""
        with self._condition:
            now = self._snapshot()
            if now == last and not self._stop_event.is_set():
                self._condition.wait(_LOOK_S)
                now = self._snapshot()
            return None if now == last or self._stop_event.is_set() else now

    def _snapshot(self) -> dict[str, PowerReadings]:
        """Copy the readings and say how old they are. The lock is held."""
        snapshot = copy.deepcopy(self._readings)
        now = time.monotonic()
        for key, readings in snapshot.items():
            arrivals = self._arrivals.get(key, {})
            readings.gpu_age_s = {
                i: now - at for (kind, i), at in arrivals.items() if kind == "gpu"
            }
            readings.cpu_age_s = {
                i: now - at for (kind, i), at in arrivals.items() if kind == "cpu"
            }
            for stream in self._streams:
                if stream.config.endpoint != key:
                    continue
                at = [at for (kind, _), at in arrivals.items() if kind == stream.kind]
                readings.stale |= stream.stale(now, min(at, default=None))
                if stream.health.heard_at is not None:
                    readings.age_s = max(readings.age_s or 0.0, now - stream.health.heard_at)
        return snapshot

    def _measure_clock(self, key: str) -> None:
        """Learn by how much this machine's clock is ahead of a daemon's, in seconds."""
        client = self._daemon_clients[key]
        offsets = []
        for _ in range(_CLOCK_QUESTIONS):
            asked_s = time.time()
            theirs_s = client.get_time()
            offsets.append((asked_s + time.time()) / 2 - theirs_s)
        offset = statistics.median(offsets)
        with self._condition:
            if key in self._readings:
                self._readings[key].timestamp_s += offset - self._clock_offsets[key]
            self._clock_offsets[key] = offset

    def _tell(self) -> None:
        """Let iterators look again."""
        with self._condition:
            self._condition.notify_all()

    def _process_gpu_event(self, event: str, key: str) -> None:
        """Take an event of a GPU as it stands on the wire."""
        for data in EventParser().feed(event.encode() + b"\n\n"):
            self._take_event("gpu", data, key)

    def _process_cpu_event(self, event: str, key: str) -> None:
        """Take an event of a CPU package as it stands on the wire."""
        for data in EventParser().feed(event.encode() + b"\n\n"):
            self._take_event("cpu", data, key)

    def _take_event(self, kind: str, data: str, key: str) -> None:
        """Take the data of an event, or count it among the bad ones."""
        try:
            event = json.loads(data)
            device = event_index(event, f"{kind}_id")
            timestamp_s = event_number(event, "timestamp_ms") / 1000.0
            if kind == "gpu":
                gpu_w = event_number(event, "power_mw") / 1000.0
            else:
                cpu = _cpu_power(event)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            self._skip(data, key, error)
            return
        with self._condition:
            readings = self._readings.setdefault(key, PowerReadings())
            if kind == "gpu":
                readings.gpu_power_w[device] = gpu_w
            else:
                readings.cpu_power_w[device] = cpu
            offset_s = self._clock_offsets.get(key, 0.0)
            readings.timestamp_s = max(readings.timestamp_s, timestamp_s + offset_s)
            self._arrivals.setdefault(key, {})[kind, device] = time.monotonic()
            self._condition.notify_all()

    def _skip(self, data: str, key: str, why: Exception) -> None:
        with self._lock:
            self._bad_events[key] += 1
            # The first is enough for the log; `bad_events` counts the others.
            level = logging.WARNING if self._bad_events[key] == 1 else logging.DEBUG
        logger.log(level, "Skipped an event of %s: %r: %s", key, data[:200], why)


def _cpu_power(event: dict[str, Any]) -> CpuPowerReading:
    dram = None if event.get("dram_mw") is None else event_number(event, "dram_mw") / 1000.0
    return CpuPowerReading(event_number(event, "cpu_mw") / 1000.0, dram)


def _choose(server: ZeusdConfig, client: ZeusdClient) -> Iterator[tuple[str, list[int] | None]]:
    """Give the streams to open of a daemon: a kind, and the devices or None for all."""
    for kind, wanted, there, allowed in (
        ("gpu", server.gpu_indices, client.gpu_ids, client.can_read_gpu),
        ("cpu", server.cpu_indices, client.cpu_ids, client.can_read_cpu),
    ):
        if wanted is None:
            if there and allowed:
                yield kind, None
            else:
                logger.info("%s has no %s that may be streamed", server.endpoint, kind.upper())
            continue
        missing = sorted(set(wanted) - set(there))
        if missing:
            raise ValueError(
                f"cannot stream from {server.endpoint}: it has no {kind.upper()} {missing}, "
                f"only {there}"
            )
        if wanted and not allowed:
            raise ZeusdCapabilityError(
                client.auth_error
                or f"cannot stream from {server.endpoint}: it does not allow to read "
                f"{kind.upper()}s; it needs the scope {kind}-read"
            )
        if wanted:
            yield kind, sorted(set(wanted))


_alive: weakref.WeakSet[PowerStreamingClient] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Make the child's clients usable: their threads are gone, and may have held the locks."""
    for client in _alive:
        client._lock = threading.Lock()
        client._condition = threading.Condition(client._lock)
        client._stop_event = threading.Event()
        client._threads = []
        client._connections.abandon()
        for stream in client._streams:
            stream.health.connected = False


os.register_at_fork(after_in_child=_after_fork_in_child)
