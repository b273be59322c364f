"""Starts a zeusd, ours or the released one of upstream, on a simulated machine of its own.

Both get the same command line. What a test may expect of the one and not of the other stands in
`EXPECTED`, with the reason; docs/compatibility.md says the same in words.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import httpx

UPSTREAM_VERSION = "0.5.0"
KEY = b"integration-test-signing-key!!!!"
GROUPS = ("gpu-control", "gpu-read", "cpu-read")
GPUS = 4

# Four GPUs that draw exactly 150 W, with a limit of 100 to 300 W, and one package with DRAM.
MACHINE = """
name = "wire"
[nvml]
driver = "550.54.15"
[[gpu]]
count = 4
model = "NVIDIA H100 80GB HBM3"
sm_clocks = [210, 1980]
memory_clocks = [2619, 1500]
power = { kind = "constant", watts = 150 }
limit = { min = 100, max = 300, default = 300 }
energy = { update = "20ms", quantum = 1e-3, start = 500 }
power_instant = { update = "20ms", quantum = 1e-3 }
power_usage = { update = "20ms", quantum = 1e-3 }
[[zone]]
path = "intel-rapl:0"
name = "package-0"
range_uj = 262143328850
start_uj = 1e9
mode = "0400"
power = { watts = 60 }
[[zone]]
path = "intel-rapl:0:0"
name = "dram"
range_uj = 65712999613
start_uj = 5e8
mode = "0400"
power = { watts = 8 }
"""

# By name: what ours answers, and what the released 0.5.0 answers instead.
EXPECTED = {
    # 0.5.0 is older than these two keys of upstream's master.
    "keys of a GPU in /discover": {
        "ours": {"id", "name", "pci_address", "cumulative_energy_available"},
        "upstream": {"id", "name"},
    },
    # 0.5.0 is older than this route of upstream's master.
    "POST /gpu/reset_locked_clocks": {"ours": 200, "upstream": 404},
    # Upstream judges the path as it was sent and routes the path as decoded.
    "encoded control path with a token to read": {"ours": 403, "upstream": 200},
    "encoded group with a token without a scope": {"ours": 403, "upstream": 200},
    "encoded path of a disabled group without a token": {"ours": 404, "upstream": 401},
    # Upstream sends the last value that was published, however old, to who comes later.
    "a late reader gets a sample of its own": {"ours": True, "upstream": False},
    # Upstream notices that a reader left only when it next writes.
    "polling ends with the last reader of constant power": {"ours": True, "upstream": False},
    # 0.5.0 refuses any file at the path of the socket, stale or not.
    "a stale socket is replaced": {"ours": True, "upstream": False},
    # Ours keeps other users out unless told otherwise (--compat, --socket-permissions).
    "mode of the socket": {"ours": 0o660, "upstream": 0o666},
    # Ours decodes a path once and judges the result; what walks or doubles a slash is no path.
    "/gpu//get_power": {"ours": 400, "upstream": 404},
    "//gpu/get_power": {"ours": 400, "upstream": 404},
    "/gpu/../discover": {"ours": 400, "upstream": 404},
    "/gpu%2Fget_power": {"ours": 200, "upstream": 404},
    # A request's target has no fragment; upstream cuts it off.
    "?gpu_ids=0#x": {"ours": 400, "upstream": 200},
    # Upstream frames a stream in chunks for clients of HTTP/1.0 too, who know none.
    "a stream over HTTP/1.0 comes in chunks": {"ours": False, "upstream": True},
    # A period of less than a microsecond ends upstream's poller at its first reader.
    "a rate above a million is refused": {"ours": True, "upstream": False},
    # 0.5.0 reads heads of up to 128 KiB.
    "a query of 20 kB": {"ours": 200, "upstream": 200},
    # With a subscriber upstream obeys SIGTERM at once or after 30 s, by which thread serves it.
    "SIGTERM ends the daemon while a stream is open": {"ours": True, "upstream": None},
    # Ours takes requests over TCP for this host only, unless told otherwise.
    "a request for another host": {"ours": 403, "upstream": 200},
    "flags for upstream's defaults": {"ours": ("--compat",), "upstream": ()},
}


def released() -> pathlib.Path:
    """Where scripts/peers puts upstream's daemon."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "zeus" / "peers" / f"zeusd-{UPSTREAM_VERSION}" / "bin" / "zeusd"


def binary(which: str, zeus: str) -> pathlib.Path:
    return pathlib.Path(zeus).with_name("zeusd") if which == "ours" else released()


def token(sub: str = "testuser", scopes=GROUPS, key: bytes = KEY, header=None, **claims) -> str:
    """A JWS compact token signed with HMAC-SHA256, made here so that no daemon judges its own."""

    def part(value) -> bytes:
        text = json.dumps(value, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=")

    signed = part(header or {"typ": "JWT", "alg": "HS256"}) + b"."
    signed += part({"sub": sub, "scopes": scopes, **claims})
    mac = hmac.new(key, signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


class Gpu:
    """One simulated GPU as its vendor library shows it, without a daemon between."""

    def __init__(self, library: ctypes.CDLL, index: int):
        self._nvml = library
        self._handle = ctypes.c_void_p()
        assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._handle)) == 0

    def _ask(self, name: str, *arguments) -> int:
        out = ctypes.c_uint()
        assert getattr(self._nvml, name)(self._handle, *arguments, ctypes.byref(out)) == 0
        return out.value

    @property
    def limit_mw(self) -> int:
        return self._ask("nvmlDeviceGetPowerManagementLimit")

    @property
    def persistence(self) -> bool:
        return self._ask("nvmlDeviceGetPersistenceMode") == 1

    @property
    def sm_mhz(self) -> int:
        return self._ask("nvmlDeviceGetClockInfo", 1)

    @property
    def memory_mhz(self) -> int:
        return self._ask("nvmlDeviceGetClockInfo", 2)

    @property
    def pci_address(self) -> str:
        """Domain, bus and device as the daemon prints them; NVML knows no function."""
        info = (ctypes.c_uint * 17)()  # nvmlPciInfo_t: 16 characters, then domain, bus, device
        assert self._nvml.nvmlDeviceGetPciInfo_v3(self._handle, info) == 0
        return f"{info[4]:04x}:{info[5]:02x}:{info[6]:02x}.0"

    @property
    def energy_mj(self) -> int:
        out = ctypes.c_ulonglong()
        assert self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(out)) == 0
        return out.value


@dataclasses.dataclass
class Daemon:
    which: str
    pid: int
    session: pathlib.Path
    log: pathlib.Path
    tcp: tuple[str, int] | None
    path: str | None
    runner: subprocess.Popen
    started: float  # No earlier than the machine, by the monotonic clock.

    def expected(self, what: str):
        return EXPECTED[what][self.which]

    @property
    def url(self) -> str:
        return f"http://{self.tcp[0]}:{self.tcp[1]}" if self.tcp else "http://localhost"

    def client(self, bearer: str | None = None, **options) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=self.path) if self.path else None
        headers = {"Authorization": f"Bearer {bearer}"} if bearer is not None else {}
        return httpx.Client(
            base_url=self.url, transport=transport, headers=headers, trust_env=False, **options
        )

    def send(self, method: str, target: str, bearer: str | None = None, **options):
        with self.client(bearer) as client:
            return client.request(method, target, **options)

    def get(self, target: str, bearer: str | None = None) -> httpx.Response:
        return self.send("GET", target, bearer)

    def post(self, target: str, bearer: str | None = None, **options) -> httpx.Response:
        return self.send("POST", target, bearer, **options)

    def connect(self, timeout_s: float = 5) -> socket.socket:
        if self.path:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout_s)
            s.connect(self.path)
            return s
        return socket.create_connection(self.tcp, timeout_s)

    @property
    def gpus(self) -> list[Gpu]:
        library = ctypes.CDLL(str(self.session / "lib" / "libnvidia-ml.so.1"))
        assert library.nvmlInit_v2() == 0
        return [Gpu(library, i) for i in range(GPUS)]

    def wait_for_second(self, second: float) -> None:
        """Waits until the machine has run for that long: then its faults have begun."""
        time.sleep(max(0.0, self.started + second + 0.1 - time.monotonic()))

    def wait(self, timeout_s: float) -> bool:
        """Whether the daemon has ended by then."""
        try:
            self.runner.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _daemon_below(runner: subprocess.Popen) -> int | None:
    """The daemon that `zeus sim run` started, once it is no longer the fork of that."""
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{runner.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                name = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                if name.startswith("zeusd"):
                    return int(child)
    return None


def _until(deadline: float, runner: subprocess.Popen, log: pathlib.Path, what):
    while True:
        if (found := what()) is not None:
            return found
        if runner.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no daemon (status {runner.poll()}):\n{log.read_text()}")
        time.sleep(0.01)


def _answers(tcp, path) -> bool | None:
    try:
        if path:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
        else:
            socket.create_connection(tcp, 1).close()
    except OSError:
        return None
    return True


def command(which: str, zeus: str, *arguments: str) -> list[str]:
    """The command line of `zeusd serve`; ours, as root, serves a simulated machine only when told."""
    own = ["--allow-simulated"] if which == "ours" else []
    workers = [] if "--num-workers" in arguments else ["--num-workers", "2"]
    return [str(binary(which, zeus)), "serve", *own, *workers, *arguments]


def launch(which: str, zeus: str, folder: pathlib.Path, *arguments: str, machine: str = MACHINE):
    """Starts the daemon on a machine of its own and waits for nothing; answers runner and log."""
    folder.mkdir(parents=True, exist_ok=True)
    scenario, log = folder / "machine.toml", folder / "log"
    scenario.write_text(machine)
    with log.open("wb") as out:
        runner = subprocess.Popen(
            [zeus, "sim", "run", str(scenario), "--", *command(which, zeus, *arguments)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1", "TMPDIR": str(folder)},
        )
    return runner, log


def ended(which: str, zeus: str, folder: pathlib.Path, *arguments: str) -> tuple[int, str]:
    """Status and output of a daemon that ends by itself; raises TimeoutExpired if it does not."""
    runner, log = launch(which, zeus, folder, *arguments)
    try:
        return runner.wait(20), log.read_text()
    finally:
        _end(runner)


def start(
    which: str,
    zeus: str,
    folder: pathlib.Path,
    *arguments: str,
    machine: str = MACHINE,
    uds: pathlib.Path | None = None,
    key: bytes | None = None,
) -> Daemon:
    """Answers once the daemon accepts connections; raises RuntimeError with its log if it ends."""
    tcp = None if uds else ("127.0.0.1", free_port())
    where = (
        ["--mode", "uds", "--socket-path", str(uds)]
        if uds
        else ["--mode", "tcp", "--tcp-bind-address", f"{tcp[0]}:{tcp[1]}"]
    )
    if key is not None:
        folder.mkdir(parents=True, exist_ok=True)
        secret = folder / "key"
        secret.write_bytes(key)
        secret.chmod(0o600)
        where += ["--signing-key-path", str(secret)]
    runner, log = launch(which, zeus, folder, *where, *arguments, machine=machine)
    try:
        deadline = time.monotonic() + 20
        _until(deadline, runner, log, lambda: _answers(tcp, uds and str(uds)))
        pid = _until(deadline, runner, log, lambda: _daemon_below(runner))
        seen = time.monotonic()
    except BaseException:
        _end(runner)
        raise
    session = re.search(r"session (\S+)$", log.read_text(), re.M)[1]
    return Daemon(
        which, pid, pathlib.Path(session), log, tcp, str(uds) if uds else None, runner, seen
    )


def stop(daemon: Daemon) -> None:
    _end(daemon.runner)


def _end(runner: subprocess.Popen) -> None:
    """Ends the daemon at once, so that the runner cleans its machine up."""
    while runner.poll() is None:
        if (pid := _daemon_below(runner)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        else:
            runner.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            runner.wait(2)
