"""Foreign clients on the simulated machine. ZEUS_BUILD names the build to use."""

import json
import os
import pathlib
import subprocess
import sys

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
