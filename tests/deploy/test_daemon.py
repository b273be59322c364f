"""The daemon as the unit runs it, without systemd: its capabilities, its messages, its page."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess

import pytest

from conftest import DEPLOY, run, tool

UNIT = (DEPLOY / "systemd" / "zeusd.service").read_text()


class Local(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def get(folder, target: str) -> tuple[int, str]:
    connection = Local(folder / "zeusd.sock")
    connection.request("GET", target)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Manager:
    """What systemd is to a daemon: it listens to its messages."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(20)

    def hears(self, message: str) -> bool:
        with contextlib.suppress(TimeoutError):
            while message not in self.socket.recv(4096).decode():
                pass
            return True
        return False


@pytest.fixture
def daemon(zeusd, tmp_path):
    """zeusd on a simulated machine with what the unit leaves it, once it has said that it is ready."""
    if os.geteuid() != 0:
        pytest.skip("the unit runs the daemon as root")
    manager = Manager(tmp_path)
    kept = re.findall(r"^CapabilityBoundingSet=CAP_(\w+)$", UNIT, re.M)
    bound = ",".join(["-all", *(f"+{name.lower()}" for name in kept)])
    process = subprocess.Popen(
        [tool("setpriv"), f"--bounding-set={bound}", "--inh-caps=-all", "--no-new-privs", zeusd, "serve",
         "--host=sim:a100x4", "--allow-simulated", f"--socket-path={tmp_path / 'zeusd.sock'}",
         f"--journal={tmp_path / 'journal'}"],
        env={**os.environ, "TMPDIR": str(tmp_path), "NOTIFY_SOCKET": str(manager.path),
             "WATCHDOG_USEC": "1000000"},
    )  # fmt: skip
    try:
        assert manager.hears("READY=1")
        yield process, manager, tmp_path
    finally:
        process.kill()
        process.wait()


def test_it_reads_and_controls_with_the_capabilities_of_the_unit(daemon):
    _, _, folder = daemon
    status, text = get(folder, "/discover")
    assert status == 200
    for group in ("gpu-control", "gpu-read"):
        assert f'"{group}"' in text


def test_it_feeds_the_watchdog_and_says_when_it_stops(daemon):
    process, manager, _ = daemon
    assert re.search(r"^Type=notify$", UNIT, re.M) and re.search(r"^WatchdogSec=", UNIT, re.M)
    assert manager.hears("WATCHDOG=1")
    process.send_signal(signal.SIGTERM)
    assert manager.hears("STOPPING=1")
    limit = int(re.search(r"^TimeoutStopSec=(\d+)s$", UNIT, re.M)[1])
    assert process.wait(limit) == 0


def test_its_page_is_one_that_prometheus_has_nothing_to_say_about(daemon, metric_names):
    _, _, folder = daemon
    get(folder, "/gpu/get_power")
    status, page = get(folder, "/metrics")
    assert status == 200
    done = run(tool("promtool"), "check", "metrics", input=page)
    assert (done.returncode, done.stdout) == (0, "")
    served = set(re.findall(r"^# TYPE (\w+)", page, re.M))
    assert {"zeus_energy_joules_total", "zeus_up", "zeusd_http_requests_total"} <= served
    assert served <= metric_names


def test_its_probes_answer(daemon):
    _, _, folder = daemon
    manifest = (DEPLOY / "kubernetes" / "zeusd.yaml").read_text()
    probed = set(re.findall(r"httpGet: \{path: (\S+),", manifest)) | set(
        re.findall(r"prometheus.io/path: (\S+)", manifest)
    )
    assert len(probed) == 2
    for path in probed:
        assert get(folder, path)[0] == 200


def test_its_socket_is_closed_to_others(daemon):
    _, _, folder = daemon
    assert (folder / "zeusd.sock").stat().st_mode & 0o777 == 0o660


def allowed_calls() -> set[str]:
    """The system calls that the unit's filter lets through, its sets resolved by systemd."""

    def members(name: str) -> set[str]:
        lines = run(tool("systemd-analyze"), "syscall-filter", "--no-pager", name).stdout.split("\n")
        words = {line.strip() for line in lines if line.strip() and not line.strip().startswith("#")}
        words.discard(name)
        return {c for w in words for c in (members(w) if w.startswith("@") else {w})}

    calls: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.M):
        named = {c for word in line.lstrip("~").split() for c in members(word)}
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def test_the_filter_of_the_unit_holds_back_nothing_that_it_calls(zeusd, tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "zeusd.sock"
    manager = Manager(tmp_path)
    process = subprocess.Popen(
        [tool("strace"), "-f", "-qq", "-o", trace, zeusd, "serve", "--enable=gpu-read",
         f"--socket-path={path}", "--mode=uds,tcp", "--tcp-bind-address=127.0.0.1:0",
         f"--journal={tmp_path / 'journal'}"],
        env={**os.environ, "NOTIFY_SOCKET": str(manager.path)},
        start_new_session=True,
    )  # fmt: skip
    try:
        assert manager.hears("READY=1")
        for target in ("/discover", "/metrics", "/gpu/get_power", "/healthz"):
            assert get(tmp_path, target)[0] == 200
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
    called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))
    assert {"socket", "sendto", "openat"} <= called
    # Those that systemd itself makes before the filter, and the linker.
    assert called - allowed_calls() <= {"execve", "arch_prctl"}
