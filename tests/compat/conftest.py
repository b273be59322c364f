"""Foreign clients on the simulated machine. ZEUS_BUILD names the build to use."""

import json
import os
import pathlib
import subprocess
import sys

import daemons
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def zeus() -> str:
    build = pathlib.Path(os.environ.get("ZEUS_BUILD", ROOT / "build" / "release"))
    binary = build / "bin" / "zeus"
    assert binary.exists(), f"there is no {binary}; build it or set ZEUS_BUILD"
    return str(binary)


@pytest.fixture
def on_machine(zeus, tmp_path):
    """Runs Python source in a process of its own on a simulated machine; answers what it printed."""

    def run(scenario: str, source: str, **environment: str):
        script = tmp_path / "client.py"
        script.write_text(source)
        done = subprocess.run(
            [zeus, "sim", "run", scenario, "--", sys.executable, str(script)],
            env={**os.environ, "ZEUS_BIN": zeus, "TMPDIR": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


# --- zeusd: ours and the released one of upstream ---


@pytest.fixture(scope="session", params=["ours", "upstream"])
def which(request, zeus) -> str:
    path = daemons.binary(request.param, zeus)
    if not path.exists():
        way = "build zeusd" if request.param == "ours" else "run scripts/peers"
        pytest.skip(f"there is no {path}; {way}")
    if os.geteuid() != 0:
        pytest.skip("a daemon that controls GPUs needs root")
    return request.param


@pytest.fixture(scope="session")
def shared(which, zeus, tmp_path_factory):
    """A daemon that several tests use, by its options; all end with the session."""
    running: dict[tuple, daemons.Daemon] = {}

    def serve(*arguments: str, **options) -> daemons.Daemon:
        name = (arguments, tuple(sorted(options.items())))
        if name not in running or running[name].wait(0):
            folder = tmp_path_factory.mktemp("d")
            running[name] = daemons.start(which, zeus, folder, *arguments, **options)
        return running[name]

    yield serve
    for daemon in running.values():
        daemons.stop(daemon)


@pytest.fixture
def daemon(shared) -> daemons.Daemon:
    """All groups, TCP, no authentication, pollers at 10 Hz: the rig of upstream's own tests."""
    return shared("--gpu-power-poll-hz", "10")


@pytest.fixture
def guarded(shared) -> daemons.Daemon:
    """The same with a signing key."""
    return shared(key=daemons.KEY)


@pytest.fixture
def serve(which, zeus, tmp_path):
    """Daemons of this test alone."""
    running = []

    def start(*arguments: str, **options) -> daemons.Daemon:
        folder = tmp_path / f"d{len(running)}"
        running.append(daemons.start(which, zeus, folder, *arguments, **options))
        return running[-1]

    yield start
    for daemon in running:
        daemons.stop(daemon)
