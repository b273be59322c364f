"""Power streams: their bytes, who gets which events, and that nobody is polled in vain."""

import contextlib
import json
import re
import time

from answers import json_of
from daemons import GPUS, MACHINE

# Every GPU steps between 100 and 250 W, so that each poll at 20 Hz sees another value.
STEPPING = MACHINE.replace(
    'power = { kind = "constant", watts = 150 }',
    'power = { kind = "levels", levels = [[0.05, 100], [0.05, 150], [0.05, 200], [0.05, 250]], '
    "repeat = true }",
)


class Stream:
    """The bytes of one stream, chunk by chunk, as they lie on the connection."""

    def __init__(self, daemon, target: str, version: str = "HTTP/1.1"):
        self._socket = daemon.connect()
        self._file = self._socket.makefile("rb")
        self._socket.sendall(f"GET {target} {version}\r\nHost: localhost\r\n\r\n".encode())
        self.status = self._file.readline().split()[1]
        self.headers = {}
        while (line := self._file.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def deadline(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def chunk(self) -> bytes:
        size = int(self._file.readline(), 16)
        data = self._file.read(size)
        assert self._file.read(2) == b"\r\n"
        return data

    def lines(self, count: int) -> bytes:
        return b"".join(self._file.readline() for _ in range(count))

    def event(self) -> dict:
        """The next event; comments, which a daemon may send, are passed over."""
        while (data := self.chunk()).startswith(b":"):
            pass
        assert data.startswith(b"data: ") and data.endswith(b"\n\n") and data.count(b"\n") == 2
        return json.loads(data[6:])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def stream(daemon, target: str):
    return contextlib.closing(Stream(daemon, target))


GPU_EVENT = rb'data: \{"timestamp_ms":\d+,"gpu_id":0,"power_mw":150000\}\n\n'
CPU_EVENT = rb'data: \{"timestamp_ms":\d+,"cpu_id":0,"cpu_mw":\d+,"dram_mw":(\d+|null)\}\n\n'


def test_the_head_of_a_stream(daemon):
    for target in ("/gpu/stream_power?gpu_ids=0", "/cpu/stream_power"):
        with stream(daemon, target) as s:
            assert s.status == b"200"
            assert s.headers["content-type"] == "text/event-stream"
            assert s.headers["cache-control"] == "no-cache"
            assert s.headers["transfer-encoding"] == "chunked"
            assert "content-length" not in s.headers


def test_the_first_chunk_is_one_whole_event(daemon):
    for target, event in (
        ("/gpu/stream_power?gpu_ids=0", GPU_EVENT),
        ("/cpu/stream_power?cpu_ids=0", CPU_EVENT),
    ):
        with stream(daemon, target) as s:
            s.deadline(2)  # Of the protocol's own test.
            assert re.fullmatch(event, s.chunk())


def test_a_stream_over_http_1_0(daemon):
    with contextlib.closing(Stream(daemon, "/gpu/stream_power?gpu_ids=0", "HTTP/1.0")) as s:
        assert s.status == b"200" and s.headers["content-type"] == "text/event-stream"
        if daemon.expected("a stream over HTTP/1.0 comes in chunks"):
            assert re.fullmatch(GPU_EVENT, s.chunk())
        else:
            assert "transfer-encoding" not in s.headers
            assert re.fullmatch(GPU_EVENT, s.lines(2))


def test_cpu_events_say_null_for_dram_that_is_not_there(shared):
    daemon = shared(machine=MACHINE[: MACHINE.rindex("[[zone]]")])
    with stream(daemon, "/cpu/stream_power") as s:
        assert s.event()["dram_mw"] is None


def test_streamed_power_is_the_power_of_the_machine(daemon):
    before = time.time_ns() // 1_000_000
    with stream(daemon, "/cpu/stream_power") as s:
        events = [s.event() for _ in range(3)]
    for e in events:
        # 60 and 8 W; a poll that is late or early shifts energy between neighbours.
        assert 30_000 < e["cpu_mw"] < 120_000 and 4_000 < e["dram_mw"] < 16_000
    stamps = [e["timestamp_ms"] for e in events]
    assert stamps == sorted(stamps) and stamps[-1] >= before


def test_several_gpus_share_one_stream(shared):
    daemon = shared(machine=STEPPING)
    for query, ids in (("?gpu_ids=3,1", {1, 3}), ("?gpu_ids=1%2C3", {1, 3}), ("", {0, 1, 2, 3})):
        with stream(daemon, f"/gpu/stream_power{query}") as s:
            events = [s.event() for _ in range(40)]
        assert {e["gpu_id"] for e in events} == ids
        for i in ids:
            mine = [e for e in events if e["gpu_id"] == i]
            assert len(mine) > 40 / len(ids) / 2  # None starves.
            stamps = [e["timestamp_ms"] for e in mine]
            assert stamps == sorted(stamps)
            assert all(100_000 <= e["power_mw"] <= 250_000 for e in mine)


def test_a_reader_that_does_not_read_is_kept(shared):
    daemon = shared("--gpu-power-poll-hz", "200", machine=STEPPING)
    with stream(daemon, "/gpu/stream_power") as idle, stream(daemon, "/gpu/stream_power") as s:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            s.event()
        events = [idle.event() for _ in range(20)]
    assert all(set(e) == {"timestamp_ms", "gpu_id", "power_mw"} for e in events)


def test_streams_refuse_devices_that_are_not_there(daemon):
    told = json_of(daemon.get("/gpu/stream_power?gpu_ids=9,1"), 400)
    assert "[9]" in told["error"] and "[0, 1, 2, 3]" in told["error"]
    told = json_of(daemon.get("/cpu/stream_power?cpu_ids=7"), 400)
    assert "[7]" in told["error"] and "[0]" in told["error"]


def test_a_stream_of_no_devices_is_silent(shared):
    zones = MACHINE[MACHINE.index("[[zone]]") :]
    daemon = shared(machine='name = "none"\n[nvml]\n' + zones)
    with stream(daemon, "/gpu/stream_power") as s:
        assert s.status == b"200"
        assert s.headers["content-type"] == "text/event-stream"


def test_every_reader_of_constant_power_gets_an_event(daemon):
    with stream(daemon, "/gpu/stream_power?gpu_ids=2") as early:
        first = early.event()
        with stream(daemon, "/gpu/stream_power?gpu_ids=2") as late:
            second = late.event()
    assert first["power_mw"] == second["power_mw"] == 150_000
    own = second["timestamp_ms"] > first["timestamp_ms"]
    assert own is daemon.expected("a late reader gets a sample of its own")


def counted(gpu: int, reads: int) -> str:
    """From then on that GPU says 7 W, by which the test knows how often somebody asked."""
    return f'\n[[fault]]\ngpu = {gpu}\ncall = "power"\nafter_calls = {reads}\nvalue = 7000\n'


def power(daemon, gpu: int) -> int:
    return json_of(daemon.get(f"/gpu/get_power?gpu_ids={gpu}"))["power_mw"][str(gpu)]


def test_only_gpus_with_a_reader_are_polled(serve):
    machine = MACHINE + "".join(counted(gpu, 20) for gpu in range(GPUS))
    daemon = serve("--gpu-power-poll-hz", "100", machine=machine)
    time.sleep(0.5)  # 50 polls, were there any.
    assert power(daemon, 0) == 150_000
    with stream(daemon, "/gpu/stream_power?gpu_ids=1") as s:
        assert s.event()["power_mw"] == 150_000
        while s.event()["power_mw"] != 7000:  # After 20 polls, and more of them follow.
            pass
        time.sleep(0.5)
        assert power(daemon, 0) == 150_000
    assert power(daemon, 1) == 7000


def test_polling_ends_with_the_last_reader(serve):
    daemon = serve("--gpu-power-poll-hz", "100", machine=MACHINE + counted(0, 60))
    with stream(daemon, "/gpu/stream_power?gpu_ids=0") as s:
        s.event()
    time.sleep(1)  # 100 polls, were there any.
    ended = power(daemon, 0) == 150_000
    assert ended is daemon.expected("polling ends with the last reader of constant power")


def test_a_reader_whose_power_changes_is_missed_when_it_leaves(serve):
    # Both daemons write each change, and so both notice that nobody reads.
    machine = STEPPING + counted(0, 200)
    daemon = serve("--gpu-power-poll-hz", "100", machine=machine)
    with stream(daemon, "/gpu/stream_power?gpu_ids=0") as s:
        for _ in range(3):
            s.event()
    time.sleep(3)  # 300 polls, were there any.
    assert power(daemon, 0) != 7000


def test_streams_of_two_readers_do_not_end_together(shared):
    daemon = shared(machine=STEPPING)
    with stream(daemon, "/gpu/stream_power?gpu_ids=0") as stays:
        with stream(daemon, "/gpu/stream_power?gpu_ids=0") as leaves:
            leaves.event()
        for _ in range(20):
            assert stays.event()["gpu_id"] == 0


def test_a_stream_needs_its_group(shared):
    daemon = shared("--enable", "gpu-control")
    assert set(json_of(daemon.get("/gpu/stream_power"), 404)) == {"error"}
    daemon = shared("--enable", "gpu-read")
    assert set(json_of(daemon.get("/cpu/stream_power"), 404)) == {"error"}
