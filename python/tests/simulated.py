"""Programs of a test's own on a simulated machine."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import zeus

# Where the package that is tested lies: in the checkout, or where a wheel was unpacked.
PACKAGE = pathlib.Path(zeus.__file__).resolve().parents[1]
SQUARE = """
[[gpu]]
model = "Square"
architecture = "hopper"
power = { kind = "square", low = 100, high = 400, period = "1s", duty = 0.5 }
limit = { min = 100, max = 500, default = 500 }
energy = { update = "20ms", quantum = 0.001 }
power_instant = { update = "20ms", kind = "boxcar" }
"""


def environment(scenario: str) -> dict[str, str]:
    """The environment of a program on a simulated machine."""
    paths = [str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "ZEUS_HOST": f"sim:{scenario}", "PYTHONPATH": path}


def run(code: str, scenario: str = "constant", folder: pathlib.Path | None = None) -> str:
    """Run a program to its end, which must be a good one; returns what it printed.

    Args:
        code: Its text; it may be indented.
        scenario: The machine.
        folder: Where it is written to a file, as spawned processes need it; None: no file.
    """
    code = textwrap.dedent(code)
    command = [sys.executable, "-c", code]
    if folder is not None:
        file = folder / "program.py"
        file.write_text(code)
        command = [sys.executable, str(file)]
    done = subprocess.run(
        command, env=environment(scenario), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def start(code: str, scenario: str = "constant") -> subprocess.Popen[str]:
    """Start a program, to be read from."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(
        command, env=environment(scenario), stdout=subprocess.PIPE, text=True, bufsize=1
    )


def children(pid: int) -> list[int]:
    """Processes that a process started and that live."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def threads(pid: int) -> int:
    """Threads of a process, the core's included."""
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))
