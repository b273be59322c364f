"""Where the daemon listens, what it finds there, and how it ends."""

import os
import signal
import socket
import stat
import subprocess
import time

import daemons
import pytest
from answers import done, json_of
from test_wire_stream import stream


@pytest.fixture
def place(tmp_path):
    """A path short enough for a socket."""
    return tmp_path / "s"


def test_everything_works_over_a_unix_socket(serve, place):
    daemon = serve(uds=place)
    assert len(json_of(daemon.get("/discover"))["gpus"]) == 4
    assert json_of(daemon.get("/gpu/get_power?gpu_ids=1"))["power_mw"] == {"1": 150_000}
    done(daemon.post("/gpu/set_power_limit?gpu_ids=1&power_limit_mw=200000&block=true"))
    assert daemon.gpus[1].limit_mw == 200_000
    with stream(daemon, "/gpu/stream_power?gpu_ids=1") as s:
        assert s.event()["power_mw"] == 150_000


def test_tokens_work_over_a_unix_socket(serve, place):
    daemon = serve(uds=place, key=daemons.KEY)
    assert daemon.get("/gpu/get_power").status_code == 401
    assert daemon.get("/gpu/get_power", daemons.token(scopes=["gpu-read"])).status_code == 200


def test_the_socket_has_the_mode_and_owner_asked_for(serve, place):
    daemon = serve(
        "--socket-permissions", "640", "--socket-uid", "1", "--socket-gid", "2", uds=place
    )
    found = os.stat(daemon.path)
    assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_uid, found.st_gid) == (1, 2)


def test_the_socket_has_the_mode_of_the_daemon(serve, place):
    daemon = serve(uds=place)
    assert stat.S_IMODE(os.stat(daemon.path).st_mode) == daemon.expected("mode of the socket")


def test_upstreams_defaults_let_everybody_in(serve, which, place):
    flags = daemons.EXPECTED["flags for upstream's defaults"][which]
    assert stat.S_IMODE(os.stat(serve(*flags, uds=place).path).st_mode) == 0o666
    daemon = serve(*flags)
    for host in ("localhost", "evil.example"):
        assert daemon.send("GET", "/time", headers={"Host": host}).status_code == 200
    done(daemon.post("/gpu/set_power_limit?gpu_ids=1&power_limit_mw=200000&block=true"))


def test_missing_folders_are_made(serve, place):
    daemon = serve(uds=place / "a" / "b")
    json_of(daemon.get("/time"))


def test_a_live_socket_is_not_stolen(serve, which, zeus, tmp_path, place):
    daemon = serve(uds=place)
    status, _ = daemons.ended(
        which, zeus, tmp_path / "second", "--mode", "uds", "--socket-path", str(place)
    )
    assert status != 0
    assert place.is_socket()
    json_of(daemon.get("/time"))


def test_a_regular_file_is_neither_removed_nor_changed(which, zeus, tmp_path, place):
    place.write_text("mine")
    status, _ = daemons.ended(
        which, zeus, tmp_path / "d", "--mode", "uds", "--socket-path", str(place)
    )
    assert status != 0
    assert place.read_text() == "mine"


def test_a_stale_socket_is_replaced(which, zeus, tmp_path, place):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(place))
    expected = daemons.EXPECTED["a stale socket is replaced"][which]
    if not expected:
        status, _ = daemons.ended(
            which, zeus, tmp_path / "d", "--mode", "uds", "--socket-path", str(place)
        )
        assert status != 0 and place.is_socket()
        return
    daemon = daemons.start(which, zeus, tmp_path / "d", uds=place)
    try:
        json_of(daemon.get("/time"))
    finally:
        daemons.stop(daemon)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_daemon_and_removes_its_socket(serve, place, name):
    daemon = serve(uds=place)
    json_of(daemon.get("/time"))
    os.kill(daemon.pid, getattr(signal, name))
    assert daemon.wait(10)
    assert not place.exists()
    assert daemon.runner.returncode == 0


def test_a_reader_does_not_keep_the_daemon_from_ending(serve):
    daemon = serve()
    with stream(daemon, "/gpu/stream_power") as s:
        s.event()
        os.kill(daemon.pid, signal.SIGTERM)
        if daemon.expected("SIGTERM ends the daemon while a stream is open"):
            assert daemon.wait(10)


def test_a_taken_port_is_an_error(serve, which, zeus, tmp_path):
    daemon = serve()
    where = f"{daemon.tcp[0]}:{daemon.tcp[1]}"
    status, _ = daemons.ended(
        which, zeus, tmp_path / "second", "--mode", "tcp", "--tcp-bind-address", where
    )
    assert status != 0
    json_of(daemon.get("/time"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mode", "nonsense"],
        ["--enable", "nonsense"],
        ["--enable", "GPU-READ"],
        ["--nonsense"],
        ["--gpu-power-poll-hz", "fast"],
        ["--gpu-power-poll-hz", "-1"],
        ["--num-workers", "0"],
        ["--socket-permissions", "rw"],
        ["--tcp-bind-address", "nowhere", "--mode", "tcp"],
        ["--signing-key-path", "/nonexistent/key"],
    ],
)
def test_a_command_line_that_means_nothing_is_an_error(which, zeus, tmp_path, arguments):
    where = [] if "--mode" in arguments else ["--mode", "uds", "--socket-path", str(tmp_path / "s")]
    status, _ = daemons.ended(which, zeus, tmp_path / "d", *where, *arguments)
    assert status != 0


def test_the_version_is_told(which, zeus):
    done = subprocess.run(
        [daemons.binary(which, zeus), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("zeusd ")


def test_a_rate_of_zero_is_one(serve):
    daemon = serve("--gpu-power-poll-hz", "0", "--cpu-power-poll-hz", "0")
    with stream(daemon, "/gpu/stream_power?gpu_ids=0") as s:
        begin = time.monotonic()
        assert s.event()["power_mw"] == 150_000
        assert time.monotonic() - begin < 5


def test_a_rate_above_a_million(serve, which, zeus, tmp_path):
    rate = ["--gpu-power-poll-hz", "2000000"]
    if daemons.EXPECTED["a rate above a million is refused"][which]:
        where = ["--mode", "uds", "--socket-path", str(tmp_path / "s")]
        assert daemons.ended(which, zeus, tmp_path / "d", *where, *rate)[0] != 0
        return
    with stream(serve(*rate), "/gpu/stream_power?gpu_ids=0") as s:
        assert s.chunk() == b""  # The end of the stream, at once.
