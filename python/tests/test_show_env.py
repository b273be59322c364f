"""The diagnostic command, on machines that need it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from zeus import show_env

SECTIONS = [
    "## Package availability and versions",
    "## Device availability",
    "## CPU availability",
    "## SoC availability",
    "## What the core found",
    "## Zeusd daemon",
]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    show_env.show_env()
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("##")] == SECTIONS
    assert text.splitlines()[0] == text.splitlines()[-1] == show_env.SECTION_SEPARATOR
    return text


def run_module(*before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "zeus.show_env"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


# field failure 172
def test_a_machine_with_nothing_gives_a_reason_for_each_row(
    simulated: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    simulated('description = "empty"\n')
    text = printed(capsys)
    assert "  No GPUs available.\n    " in text
    assert "  No CPUs available.\n    " in text
    assert "no power counters of CPUs" in text
    assert "  No SoC available.\n    " in text
    assert "  No devices." in text
    assert "  missing rapl: the scenario has no power counters of CPUs" in text
    assert "  Not configured (set ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT to connect)." in text


def test_what_is_there_is_listed_and_a_simulated_machine_is_said(
    simulated: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated("h100x8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    text = printed(capsys)
    assert "  CUDA_VISIBLE_DEVICES=3,1\n  HIP_VISIBLE_DEVICES=[NOT SET]\n" in text
    assert "    GPU 3 -> GPU 0 (NVIDIA H100 80GB HBM3)\n" in text
    assert "    GPU 1 -> GPU 1 (NVIDIA H100 80GB HBM3)\n" in text
    assert "  CPU 1:\n    CPU measurements available (simulated)\n" in text
    assert "    DRAM measurements available (simulated)\n" in text
    assert "  SIMULATED: this is the scenario h100x8." in text


# field failure 172
@pytest.mark.parametrize(
    "probe",
    ["zeus.device.gpu.get_gpus", "zeus.device.cpu.get_cpus", "zeus.device.soc.get_soc"],
)
def test_a_probe_that_raises_is_a_row_and_the_rest_goes_on(
    probe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("the probe broke")

    monkeypatch.setattr(probe, fail)
    text = printed(capsys)
    assert text.count("  Error: the probe broke") == 1


# field failure 172
def test_one_broken_device_leaves_the_rows_of_the_others(
    simulated: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from zeus.device.cpu import get_cpus
    from zeus.device.gpu import get_gpus

    def fail() -> None:
        raise RuntimeError("it fell off the bus")

    simulated("h100x8")
    monkeypatch.setattr(get_cpus().cpus[0], "get_total_energy_consumption", fail)
    monkeypatch.setattr(get_gpus().gpus[2], "get_name", fail)
    text = printed(capsys)
    assert "  CPU 0:\n    CPU measurements unavailable: it fell off the bus\n" in text
    assert "  CPU 1:\n    CPU measurements available" in text
    assert "    GPU 2 -> GPU 2 (no name: it fell off the bus)\n" in text
    assert "    GPU 7 -> GPU 7 (NVIDIA" in text


# field failure 171
# weakness U1
def test_frameworks_that_are_missing_broken_or_without_a_gpu_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    torch = "import types\ncuda = types.SimpleNamespace(is_available=lambda: False)\n"
    jax = "raise OSError('libcudart.so: cannot open shared object file')\n"
    for name, text in (("torch", torch), ("jax", jax)):
        (tmp_path / f"{name}.py").write_text(text)
        info = tmp_path / f"{name}-9.8.7.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.8.7\n")
        (info / "top_level.txt").write_text(f"{name}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    try:
        text = printed(capsys)
    finally:
        sys.modules.pop("torch", None)
    assert "  PyTorch: 9.8.7 (without CUDA support)\n" in text
    assert "  JAX: installed, and cannot be used: OSError: libcudart.so: cannot open" in text


# weakness E6
def test_a_daemon_that_does_not_answer_is_a_row(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "zeusd.sock")
    done = run_module(ZEUSD_SOCK_PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"  Endpoint: {path}\n  Error: Cannot reach Zeusd at {path}" in done.stdout
    assert (
        f"  No CPUs available.\n    cannot measure CPUs where ZEUSD_SOCK_PATH={path}" in done.stdout
    )
    assert "Traceback" not in done.stderr


# field failure 175
def test_it_needs_no_extras_and_imports_no_framework(tmp_path: pathlib.Path) -> None:
    blocked = ("httpx", "requests", "pydantic", "rich", "numpy", "pandas", "torch", "jax", "cupy")
    source = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from zeus.show_env import show_env
show_env()
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "ZEUSD_SOCK_PATH": str(tmp_path / "none.sock")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Error: the client of zeusd needs httpx; pip install 'zeus-cpp[compat]'" in done.stdout


def test_inside_a_session_it_says_that_nothing_is_real(programs: pathlib.Path) -> None:
    done = run_module(str(programs / "zeus"), "sim", "run", "laptop", "--")
    assert done.returncode == 0, done.stderr
    assert "  SIMULATED: this process runs in the session " in done.stdout
    assert (
        "    CPU measurements available (/sys/class/powercap/intel-rapl/intel-rapl:0)\n"
        "    DRAM measurements available (/sys/class/powercap/intel-rapl/intel-rapl:0/"
        "intel-rapl:0:2)\n"
    ) in done.stdout
    assert "  board psys (rapl): psys\n" in done.stdout


def test_a_token_is_told_with_its_end() -> None:
    assert show_env._expiry(None) == "never"
    assert show_env._expiry(0).endswith(" (expired)")
    assert show_env._expiry(4_000_000_000).endswith(" (valid)")
