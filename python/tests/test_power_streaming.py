"""Streams of power: from a real zeusd on a simulated machine, and from servers that misbehave."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from loopback import KEY, Server, begin_stream, gpu_event, running_zeusd, token, wait_until

from zeus.monitor._power_stream import EventParser
from zeus.monitor.power_streaming import CpuPowerReading, PowerReadings, PowerStreamingClient
from zeus.utils.zeusd import ZeusdCapabilityError, ZeusdConfig, ZeusdConnectionError


@pytest.fixture
def stream():
    """Give what makes clients, and stop them at the end."""
    clients = []

    def make(*servers, **options) -> PowerStreamingClient:
        options.setdefault("reconnect_delay_s", 0.01)
        client = PowerStreamingClient([getattr(s, "config", s) for s in servers], **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.stop()


def events(*chunks: bytes, then_wait: bool = True):
    """Make a stream that sends the chunks, and then is silent, or ends."""

    def send(handler):
        begin_stream(handler)
        for chunk in chunks:
            handler.wfile.write(chunk)
            handler.wfile.flush()
        if then_wait:
            handler.server.ended.wait(60)

    return send


def power_of(client: PowerStreamingClient, key: str) -> dict[int, float]:
    readings = client.get_power().get(key)
    return {} if readings is None else readings.gpu_power_w


@pytest.fixture(scope="module")
def zeusd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zeusd")
    with running_zeusd(folder, "--gpu-power-poll-hz", "100") as (socket_path, _, _):
        yield ZeusdConfig.uds(socket_path)


def test_a_real_daemon_streams_all_its_devices(stream, zeusd):
    client = stream(zeusd)
    key = zeusd.endpoint
    wait_until(lambda: key in client.get_power())
    wait_until(
        lambda: (
            len(client.get_power()[key].gpu_power_w) == 8
            and len(client.get_power()[key].cpu_power_w) == 2
        )
    )
    readings = client.get_power()[key]
    assert all(20 < watts < 800 for watts in readings.gpu_power_w.values())
    assert all(cpu.cpu_w > 0 and cpu.dram_w is not None for cpu in readings.cpu_power_w.values())
    assert abs(readings.timestamp_s - time.time()) < 30
    assert not readings.stale and readings.age_s is not None
    assert set(readings.gpu_age_s) == set(range(8)) and set(readings.cpu_age_s) == {0, 1}
    assert sorted(thread.name for thread in client._threads) == [
        f"cpu-power-stream-{key}",
        f"gpu-power-stream-{key}",
    ]
    assert client.bad_events == {}


def test_only_the_devices_that_are_named_are_streamed(stream, zeusd):
    path = zeusd.endpoint
    client = stream(ZeusdConfig.uds(path, gpu_indices=[2, 5], cpu_indices=[]))
    wait_until(lambda: set(power_of(client, path)) == {2, 5})
    assert client.get_power()[path].cpu_power_w == {}
    assert len(client._threads) == 1


# field failure 165
def test_constant_power_of_a_real_daemon_is_fresh(stream, tmp_path):
    """The simulated GPU draws exactly 100 W: upstream's daemon would send one event."""
    with running_zeusd(tmp_path, "--enable", "gpu-read", host="sim:constant") as (path, _, _):
        client = stream(ZeusdConfig.uds(path))
        seen = []
        for readings in client:
            seen.append(readings[path])
            if len(seen) == 3:
                break
        assert [one.gpu_power_w for one in seen] == [{0: 100.0}] * 3
        assert len({one.timestamp_s for one in seen}) == 3
        assert not any(one.stale for one in seen)


def test_a_daemon_that_is_asked_for_what_it_has_not_is_an_error(zeusd):
    with pytest.raises(ValueError, match=r"no GPU \[9\]"):
        PowerStreamingClient([ZeusdConfig.uds(zeusd.endpoint, gpu_indices=[0, 9])])
    with pytest.raises(ValueError, match="twice"):
        PowerStreamingClient([zeusd, zeusd])


def test_a_daemon_that_fails_leaves_no_thread_of_the_others(zeusd, tmp_path):
    before = threading.active_count()
    with pytest.raises(ZeusdConnectionError, match="Cannot reach Zeusd"):
        PowerStreamingClient([zeusd, ZeusdConfig.uds(str(tmp_path / "none"))])
    assert threading.active_count() == before


def test_without_anything_to_stream_a_warning_says_so(stream, caplog):
    with Server() as server:
        server.discovery["enabled_api_groups"] = []
        client = stream(server)
        assert "no power to stream" in caplog.text
        assert client.get_power() == {} and client._threads == []


def test_what_may_not_be_read_is_skipped_unless_it_was_named(stream, tmp_path):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    with running_zeusd(tmp_path, "--signing-key-path", str(tmp_path / "key")) as (path, _, _):
        bearer = token(["cpu-read"])
        client = stream(ZeusdConfig.uds(path, token=bearer))
        assert [thread.name.split("-")[0] for thread in client._threads] == ["cpu"]
        with pytest.raises(ZeusdCapabilityError, match="scope gpu-read"):
            PowerStreamingClient([ZeusdConfig.uds(path, token=bearer, gpu_indices=[0])])
        with pytest.raises(ZeusdCapabilityError, match="no token was provided"):
            PowerStreamingClient([ZeusdConfig.uds(path, gpu_indices=[0])])


# weakness S1
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_ends_the_thread_with_one_line(stream, caplog, status):
    with Server(lambda handler: handler.answer(status, {"error": "expired, says the daemon"})) as s:
        client = stream(s)
        (thread,) = client._threads
        thread.join(20)
        assert not thread.is_alive() and s.connected == 1
        (line,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert f"HTTP {status}" in line.getMessage() and "expired, says" in line.getMessage()
        assert line.exc_info is None


# weakness S1
def test_a_token_that_expires_ends_the_stream_of_a_real_daemon(stream, caplog, tmp_path):
    """A token is good for 60 s after its time, so this one has about two seconds left."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    with running_zeusd(tmp_path, "--signing-key-path", str(tmp_path / "key")) as (path, _, _):
        bearer = token(["gpu-read"], exp=int(time.time()) - 58)
        client = stream(ZeusdConfig.uds(path, token=bearer))
        (thread,) = client._threads
        wait_until(lambda: power_of(client, path) != {})
        thread.join(30)
        assert not thread.is_alive()
        assert "HTTP 401" in caplog.text
        assert client.get_power()[path].stale


# weakness S1, field failure 166
def test_a_server_that_closes_at_once_is_asked_less_and_less(stream, monkeypatch):
    with Server(events(then_wait=False)) as server:
        waited = []

        class Event(threading.Event):
            def wait(self, timeout=None):
                waited.append(timeout)
                return super().wait(0)

        monkeypatch.setattr(threading, "Event", Event)
        client = stream(server, reconnect_delay_s=2.0)
        server.wait_for_connections(7)
        client.stop()
        # The delays that were asked for; the event of this test ends them at once.
        delays = [timeout for timeout in waited if timeout is not None]
        assert delays[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 32.0]


# weakness S1
def test_a_server_that_brings_something_is_asked_again_after_the_first_delay(stream, monkeypatch):
    with Server(events(gpu_event(1000), then_wait=False)) as server:
        waited = []

        class Event(threading.Event):
            def wait(self, timeout=None):
                waited.append(timeout)
                return super().wait(0)

        monkeypatch.setattr(threading, "Event", Event)
        client = stream(server, reconnect_delay_s=2.0)
        server.wait_for_connections(5)
        client.stop()
        assert {timeout for timeout in waited if timeout is not None} == {2.0}


def test_a_problem_that_stays_is_logged_once(stream, caplog):
    with Server(lambda handler: handler.answer(404, "not here")) as server:
        stream(server, reconnect_delay_s=0.0)
        server.wait_for_connections(4)
        wait_until(lambda: bool(caplog.records))
        assert len([r for r in caplog.records if "HTTP 404: not here" in r.getMessage()]) == 1


# field failure 163
def test_a_daemon_that_is_gone_leaves_stale_readings_whose_age_grows(stream, tmp_path):
    with running_zeusd(tmp_path) as (path, _, process):
        client = stream(ZeusdConfig.uds(path))
        wait_until(lambda: power_of(client, path) != {})
        assert not client.get_power()[path].stale
        process.kill()
        process.wait()
        wait_until(lambda: not any(one.health.connected for one in client._streams))
        first = client.get_power()[path]
        assert first.stale and first.gpu_power_w != {}
        time.sleep(0.05)
        later = client.get_power()[path]
        assert later.age_s >= first.age_s + 0.05
        assert later.gpu_age_s[0] >= first.gpu_age_s[0] + 0.05


def test_a_daemon_that_comes_back_is_fresh_again(stream, tmp_path):
    with running_zeusd(tmp_path, "--enable", "gpu-read") as (path, _, process):
        client = stream(ZeusdConfig.uds(path))
        wait_until(lambda: power_of(client, path) != {})
        process.kill()
        process.wait()
        wait_until(lambda: client.get_power()[path].stale)
    with running_zeusd(tmp_path, "--enable", "gpu-read"):
        wait_until(lambda: not client.get_power()[path].stale)
        assert client.get_power()[path].age_s < 20


# field failure 165
def test_a_peer_that_falls_silent_is_given_up_and_another_connection_is_made(stream):
    """The first connection sends one event and then neither bytes nor an end."""
    with Server(events(gpu_event(50_000)), events(gpu_event(60_000))) as server:
        client = stream(server, silence_timeout_s=0.3)
        server.wait_for_connections(2)
        wait_until(lambda: power_of(client, server.key) == {0: 60.0})


# field failure 165
def test_heartbeats_keep_a_silent_stream_alive(stream):
    def beat(handler):
        events(gpu_event(50_000), then_wait=False)(handler)
        while not server.ended.wait(0.05):
            handler.wfile.write(b": heartbeat 1700000000000\n\n")
            handler.wfile.flush()

    with Server(beat) as server:
        client = stream(server, silence_timeout_s=1.0)
        wait_until(lambda: power_of(client, server.key) == {0: 50.0})
        heard_at = client._streams[0].health.heard_at
        wait_until(lambda: client._streams[0].health.heard_at > heard_at + 1.2)
        assert server.connected == 1
        readings = client.get_power()[server.key]
        assert not readings.stale and readings.age_s < 1.0 < readings.gpu_age_s[0]
        assert client.bad_events == {}


def test_a_daemon_with_heartbeats_is_given_up_after_three_and_others_never(stream):
    with Server(events()) as ours, Server(events()) as upstreams:
        ours.discovery["features"] = ["heartbeat"]
        client = stream(ours, upstreams)
        assert [one.silence_s for one in client._streams] == [15.0, None]


# field failure 165
def test_tcp_is_told_to_look_for_a_peer_that_is_gone(stream):
    with Server(events(gpu_event(1000))) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) != {})
        (sock,) = client._connections._sockets
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10


# field failure 165
def test_a_device_that_a_repeating_daemon_does_not_tell_any_more_is_stale(stream):
    """The daemon lives, and tells one of its two GPUs."""

    def tell(handler):
        events(gpu_event(1000), gpu_event(1000, gpu_id=1), then_wait=False)(handler)
        while not server.ended.wait(0.02):
            handler.wfile.write(gpu_event(2000))
            handler.wfile.flush()

    with Server(tell) as server:
        server.discovery["features"] = ["heartbeat"]
        client = stream(server, silence_timeout_s=0.5)
        wait_until(lambda: set(power_of(client, server.key)) == {0, 1})
        wait_until(lambda: client.get_power()[server.key].stale)
        ages = client.get_power()[server.key].gpu_age_s
        assert ages[1] > 0.5 and ages[0] < ages[1]
        assert server.connected == 1


# field failure 162
def test_the_clock_of_a_daemon_is_measured_again_after_a_reconnect(stream):
    def now_of(server):
        return int((time.time() + server.ahead_s) * 1000)

    def first(handler):
        begin_stream(handler)
        handler.wfile.write(gpu_event(1000, now_of(server)))
        handler.wfile.flush()
        go_on.wait(20)
        server.ahead_s = 7200.0

    def second(handler):
        events(gpu_event(2000, now_of(server)))(handler)

    go_on = threading.Event()
    with Server(first, second) as server:
        server.ahead_s = -3.0
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 1.0})
        assert client._clock_offsets[server.key] == pytest.approx(3.0, abs=2.0)
        assert client.get_power()[server.key].timestamp_s == pytest.approx(time.time(), abs=10)
        go_on.set()
        wait_until(lambda: power_of(client, server.key) == {0: 2.0})
        assert client._clock_offsets[server.key] == pytest.approx(-7200.0, abs=2.0)
        assert client.get_power()[server.key].timestamp_s == pytest.approx(time.time(), abs=10)


# field failure 162
def test_a_step_of_a_daemons_clock_does_not_leave_readings_in_the_future(stream):
    """It steps an hour ahead while connected; only another measurement of it can tell."""

    def first(handler):
        server.ahead_s = 3600.0
        ahead = gpu_event(1000, int((time.time() + server.ahead_s) * 1000))
        events(ahead, then_wait=False)(handler)
        hang_up.wait(20)

    hang_up = threading.Event()
    with Server(first, events()) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 1.0})
        assert client.get_power()[server.key].timestamp_s > time.time() + 3000
        hang_up.set()
        server.wait_for_connections(2)
        assert client.get_power()[server.key].timestamp_s == pytest.approx(time.time(), abs=20)


BAD = [
    b'data: {"gpu_id": null}\n\n',
    b"data: []\n\n",
    b"data: null\n\n",
    b"data: 7\n\n",
    b'data: "text"\n\n',
    b"data: {\n\n",
    b"data: " + b"[" * 100_000 + b"\n\n",
    b"data: \xff\xfe\n\n",
    b'data: {"timestamp_ms": 1, "gpu_id": 0}\n\n',
    gpu_event(None),
    gpu_event("75000"),
    gpu_event(True),
    gpu_event(-1),
    gpu_event(float("nan")),
    gpu_event(float("inf")),
    gpu_event(10**400),
    gpu_event(1, timestamp_ms=None),
    gpu_event(1, gpu_id="0"),
    gpu_event(1, gpu_id=0.5),
    gpu_event(1, gpu_id=[0]),
    gpu_event(1, gpu_id=-1),
]


# field failure 166
def test_bad_events_are_skipped_and_counted(stream, caplog):
    with Server(events(*BAD, gpu_event(75_000))) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) != {})
        assert power_of(client, server.key) == {0: 75.0}
        assert client.bad_events == {server.key: len(BAD)}
        assert server.connected == 1
        warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warnings) == 1 and "Skipped an event" in warnings[0].getMessage()


def test_an_event_without_an_end_does_not_fill_the_memory(stream):
    endless = [b"data: " + b"x" * 65536] * 17
    with Server(events(*endless), events(gpu_event(1000))) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 1.0})
        assert server.connected == 2


# weakness S1
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("space", [" ", ""])
def test_every_line_end_and_a_missing_space_are_understood(end, space):
    text = f": a comment{end}{end}event: power{end}data:{space}[1,{end}data:{space}2]{end}{end}"
    # A line end of one carriage return is known by what follows it.
    wire = (text + f"data:{space}3{end}{end}:").encode()
    assert list(EventParser().feed(wire)) == ["[1,\n2]", "3"]
    parser = EventParser()
    cut = [data for byte in wire for data in parser.feed(bytes([byte]))]
    assert cut == ["[1,\n2]", "3"]


def test_an_event_over_the_wire_with_crlf_is_taken(stream):
    wire = gpu_event(75_000).replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    with Server(events(wire)) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 75.0})


# weakness S1
def test_an_iterator_gives_what_came_while_its_user_was_busy(stream):
    sent = threading.Event()

    def send(handler):
        events(gpu_event(1000, 1), then_wait=False)(handler)
        sent.wait(20)
        for i in range(2, 6):
            handler.wfile.write(gpu_event(1000 * i, i))
            handler.wfile.flush()
        server.ended.wait(60)

    with Server(send) as server:
        client = stream(server)
        iterator = iter(client)
        assert next(iterator)[server.key].gpu_power_w == {0: 1.0}
        sent.set()
        # The user is busy until all has come; nothing comes after it that could wake the iterator.
        wait_until(lambda: power_of(client, server.key) == {0: 5.0})
        assert next(iterator)[server.key].gpu_power_w == {0: 5.0}


def test_an_iterator_begins_with_what_is_there(stream):
    with Server(events(gpu_event(1000))) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) != {})
        assert next(iter(client))[server.key].gpu_power_w == {0: 1.0}

        async def first():
            async for readings in client:
                return readings

        assert asyncio.run(first())[server.key].gpu_power_w == {0: 1.0}


# field failure 163
def test_an_iterator_tells_that_readings_have_become_stale(stream):
    hang_up = threading.Event()

    def send(handler):
        events(gpu_event(1000), then_wait=False)(handler)
        hang_up.wait(20)

    with Server(send, lambda handler: handler.answer(503, "away")) as server:
        iterator = iter(stream(server))
        assert not next(iterator)[server.key].stale
        hang_up.set()
        assert next(iterator)[server.key].stale


# weakness S1
def test_stopping_does_not_wait_for_a_silent_server(stream):
    head_only = threading.Event()

    def no_head(handler):
        head_only.set()
        handler.server.ended.wait(60)

    with Server(events(gpu_event(1000))) as silent, Server(no_head) as mute:
        client = stream(silent, mute)
        wait_until(lambda: power_of(client, silent.key) != {})
        assert head_only.wait(20)
        begun = time.monotonic()
        client.stop()
        # Far below any timeout of the connection: the threads were woken.
        assert time.monotonic() - begun < 1.0
        assert not any(thread.is_alive() for thread in client._threads)
        client.stop()
        assert list(client) == []
        assert power_of(client, silent.key) == {0: 1.0}


def test_stopping_from_within_the_iteration_ends_it(stream, zeusd):
    client = stream(zeusd)
    count = 0
    for _ in client:
        count += 1
        client.stop()
    assert count == 1


def test_a_client_that_nobody_uses_ends_its_threads():
    with Server(events(gpu_event(1000))) as server:
        clients = [PowerStreamingClient([server.config])]
        wait_until(lambda: power_of(clients[0], server.key) != {})
        (thread,) = clients[0]._threads
        clients.clear()
        gc.collect()
        thread.join(20)
        assert not thread.is_alive()


def test_a_forked_child_neither_hangs_nor_ends_the_streams_of_its_parent(stream, zeusd):
    client = stream(zeusd)
    wait_until(lambda: power_of(client, zeusd.endpoint) != {})
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                readings = client.get_power()[zeusd.endpoint]
                client.stop()
                code = 0 if readings.stale and list(client) == [] else 2
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    before = client.get_power()[zeusd.endpoint].timestamp_s
    wait_until(lambda: client.get_power()[zeusd.endpoint].timestamp_s > before)
    assert not client.get_power()[zeusd.endpoint].stale
    assert client._streams[0].health.connected


def test_a_forked_child_that_exits_does_not_end_the_streams_of_its_parent(stream):
    """It runs the finalizers of the interpreter, as `os._exit` does not."""
    go_on = threading.Event()

    def send(handler):
        events(gpu_event(1000), then_wait=False)(handler)
        go_on.wait(20)
        handler.wfile.write(gpu_event(2000))
        handler.wfile.flush()
        server.ended.wait(60)

    with Server(send) as server:
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 1.0})
        child = os.fork()
        if child == 0:
            client._stopping()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        go_on.set()
        wait_until(lambda: power_of(client, server.key) == {0: 2.0})
        assert server.connected == 1


def test_a_program_that_ends_without_stopping_ends_at_once(zeusd):
    code = f"""
from zeus.monitor.power_streaming import PowerStreamingClient
from zeus.utils.zeusd import ZeusdConfig
client = PowerStreamingClient([ZeusdConfig.uds({zeusd.endpoint!r})])
next(iter(client))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_a_daemon_of_another_version_is_said_in_the_log(stream, caplog):
    def newer(handler):
        server.headers = {"Zeus-Protocol": "2"}
        handler.answer(400, {"error": "version"})

    with Server(newer) as server:
        stream(server)
        wait_until(lambda: "version 2 of the wire" in caplog.text)


def test_the_fields_of_upstream_come_first_and_alone_are_compared_with_staleness():
    readings = PowerReadings(1.0, {0: 2.0}, {0: CpuPowerReading(3.0, None)})
    assert (readings.timestamp_s, readings.gpu_power_w) == (1.0, {0: 2.0})
    assert readings == PowerReadings(1.0, {0: 2.0}, {0: CpuPowerReading(3.0)}, age_s=5.0)
    assert readings != PowerReadings(1.0, {0: 2.0}, {0: CpuPowerReading(3.0)}, stale=True)


def test_a_stream_that_has_not_begun_makes_nothing_stale(stream):
    def of_cpu(handler):
        server.ended.wait(60)

    with Server(events(gpu_event(1000))) as server:
        server.discovery["cpus"] = [{"id": 0, "dram_available": False}]
        server.discovery["enabled_api_groups"] = ["gpu-read", "cpu-read"]
        server.routes["/cpu/stream_power"] = of_cpu
        client = stream(server)
        wait_until(lambda: power_of(client, server.key) == {0: 1.0})
        assert [one.health.connected for one in client._streams] == [True, False]
        assert not client.get_power()[server.key].stale
