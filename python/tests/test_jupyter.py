"""The magics, in a real IPython shell."""

from __future__ import annotations

import subprocess
import sys

import pytest
from simulated import environment

PROGRAM = """
%load_ext zeus.jupyter
import time
%energy time.sleep(0.3)
line = _energy
def cell(text):
    return get_ipython().run_cell(text)
good = cell("%%energy --name train --no-power\\nx = 1\\ntime.sleep(0.25)")
named = _energy
bad = cell("%%energy\\ntime.sleep(0.2)\\n1 / 0")
failed = _energy
unknown = cell("%%energy --nmae x\\npass")
import asyncio
slept = cell("%%energy\\nawait asyncio.sleep(0.3)\\ny = 2")
page = _energy._repr_html_()
shown = get_ipython().display_formatter.format
print("RESULT", line.span.name, line.time > 0.29, named.span.name, x, good.success)
print("RESULT", bad.success, failed.time > 0.19, unknown.success, slept.success, y)
print("RESULT", bool(line.power), bool(named.power), "<svg" in page)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("ipython")
    program = folder / "program.ipy"
    program.write_text(PROGRAM)
    env = environment("square") | {"IPYTHONDIR": str(folder), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_line_and_a_cell_are_measured(printed):
    assert "RESULT time.sleep(0.3) True train 1 True" in printed
    assert "train: " in printed and " J ±" in printed and "gpu:0: " in printed


def test_a_cell_that_fails_is_measured_and_fails(printed):
    assert "RESULT False True False True 2" in printed
    assert printed.count("ZeroDivisionError: division by zero") == 1
    assert "the code failed; what it used up to then is shown above" in printed
    assert "%%energy does not know '--nmae'" in printed


def test_power_is_drawn_unless_it_is_not_wanted(printed):
    assert "RESULT True False True" in printed


def test_a_machine_without_a_gpu_is_measured_too(tmp_path):
    program = tmp_path / "program.ipy"
    program.write_text("%load_ext zeus.jupyter\n%energy sum(range(10))\nprint('RESULT', _energy)\n")
    env = environment("constant") | {"IPYTHONDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert "RESULT Measurement(time=" in done.stdout, done.stdout + done.stderr
