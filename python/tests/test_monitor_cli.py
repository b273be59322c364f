"""`python -m zeus.monitor` as a process of its own, on simulated machines."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

STEADY = """
[[gpu]]
model = "NVIDIA Steady"
power = { kind = "constant", watts = 100 }
energy = { update = "20ms" }
power_instant = { update = "20ms", kind = "instant" }
"""
# No framework, and no rich: importing one is an error.
BARE = (
    "import runpy, sys\n"
    "sys.modules.update(dict.fromkeys(['torch', 'jax', 'cupy', 'rich', 'numpy', 'httpx']))\n"
    "sys.argv[0] = 'zeus.monitor'\n"
    "runpy.run_module('zeus.monitor', run_name='__main__', alter_sys=True)\n"
)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", BARE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_the_window(process: subprocess.Popen[str]) -> None:
    """Wait until the process catches signals and has had time to open its window."""
    status = pathlib.Path(f"/proc/{process.pid}/status")
    until = time.monotonic() + 30
    while True:
        caught = re.search(r"SigCgt:\s*(\w+)", status.read_text())
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            break
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    time.sleep(1.5)


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out, err


# field failure 171
# weakness E8
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_energy_is_printed_when_a_signal_ends_it_without_any_framework(simulated, number):
    simulated(STEADY)
    with running("energy") as process:
        wait_for_the_window(process)
        out, err = end(process, number)
    found = re.fullmatch(
        r"Measurement\(time=(\S+), gpu_energy=(\{.*?\}), cpu_energy=None, dram_energy=None, "
        r"soc_energy=None\)\n",
        out,
    )
    assert found, out
    assert ast.literal_eval(found[2]) == {0: pytest.approx(100 * float(found[1]), abs=4.1)}
    assert err.splitlines() == [
        line for line in err.splitlines() if line.startswith("python -m zeus.monitor: ")
    ]


def test_energy_of_cpus_is_measured_where_there_is_no_gpu(simulated):
    simulated("xeon-2s")
    with running("energy") as process:
        wait_for_the_window(process)
        out, err = end(process, signal.SIGINT)
    assert "gpu_energy={}" in out and re.search(r"cpu_energy=\{0: [\d.]+, 1: [\d.]+\}", out)
    assert "not measured: " in err


def test_energy_of_the_gpus_that_are_named(simulated):
    simulated("h100x8")
    with running("energy", "--gpu-indices", "5", "1") as process:
        wait_for_the_window(process)
        out, _ = end(process, signal.SIGTERM)
    assert re.search(r"gpu_energy=\{5: [\d.]+, 1: [\d.]+\}", out), out


# weakness P2
def test_power_is_printed_each_period_and_integrated_to_both_edges(simulated):
    simulated(STEADY)
    with running("power", "--update-period", "0.2") as process:
        lines = read_lines(process, 3)
        out, _ = end(process, signal.SIGINT)
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \{'GPU0': 100\.0\}\n", line)
    seconds = float(re.search(r"\nTotal time \(s\): (\S+)", out)[1])
    joules = float(re.search(r"Total energy \(J\): \{'GPU0': (\S+)\}", out)[1])
    # The interval since the last sample, of 0.2 s, is told by none; the printed interval is by the
    # wall clock, and the integral by the one that never steps.
    assert 100 * (seconds - 0.5) <= joules <= 100 * (seconds + 0.05)


# field failure 167
def test_power_that_was_printed_stays_when_it_is_killed(simulated):
    simulated(STEADY)
    with running("power", "--update-period", "0.05") as process:
        lines = read_lines(process, 4)
        process.kill()
        rest = process.stdout.read()
    times = [line[:26] for line in lines + rest.splitlines(keepends=True) if line.endswith("\n")]
    assert len(times) >= 4 and times == sorted(times)
    assert rest == "" or rest.endswith("\n")


def read_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The first lines as they come, not when the process ends."""
    lines: list[str] = []
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(lines) < count:
            assert selector.select(30)
            lines.append(process.stdout.readline())
    return lines


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: energy|power"),
        (["watts"], "invalid choice: 'watts'"),
        (["energy", "--gpu-indices"], "expected at least one argument"),
        (["energy", "--gpu-indices", "2,3,i:0"], "'2,3,i:0' is no index of a GPU"),
        (["energy", "--gpu-indices", "-1"], "'-1' is no index of a GPU"),
        (["energy", "--gpu-indices", "0", "3"], "there is no GPU 3; this process sees 1"),
        (["power", "--gpu-indices", "3"], "there is no GPU 3; this process sees 1"),
        (["power", "--update-period", "0"], "'0' is no number of seconds"),
        (["power", "--update-period", "nan"], "'nan' is no number of seconds"),
        (["power", "--power-domain", "heat"], "invalid choice: 'heat'"),
    ],
)
# field failure 174
def test_wrong_arguments_are_one_sentence_and_status_2(simulated, arguments, message):
    simulated(STEADY)
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_cannot_be_measured_is_one_sentence_and_status_1(simulated):
    simulated(STEADY)
    done = run("power", "--power-domain", "memory_average")
    assert done.returncode == 1
    assert "memory_average is not supported here" in done.stderr
    done = run("power", ZEUS_HOST="sim:xeon-2s")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


def test_a_reader_that_leaves_ends_it_without_a_traceback(simulated):
    simulated(STEADY)
    with running("power", "--update-period", "0.05") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr.read() == ""


def test_importing_it_imports_neither_frameworks_nor_rich():
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys, zeus.monitor.__main__\n"
            "print([m for m in ('rich', 'torch', 'numpy', 'httpx', 'requests', 'asyncio') "
            "if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
