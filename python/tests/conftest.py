"""What all tests share: nothing found by one test is known to the next."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

_FOREIGN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT")


@pytest.fixture(autouse=True)
def nothing_found_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Devices are found anew in each test, whatever the environment of the test run says."""
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)
    forget_devices()
    yield
    forget_devices()


def forget_devices() -> None:
    """Forget what was found."""
    import zeus.device.cpu
    import zeus.device.gpu
    import zeus.device.soc

    zeus.device.gpu._gpus = None
    zeus.device.cpu._cpus = None
    zeus.device.soc._soc = None
    zeus.device.gpu.nvml_is_available.cache_clear()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Callable[[str], None]:
    """Puts this process on a simulated machine: a built-in one, or the text of a scenario."""

    def enter(scenario: str) -> None:
        if "\n" in scenario:
            file = tmp_path / "scenario.toml"
            file.write_text(scenario)
            scenario = str(file)
        monkeypatch.setenv("ZEUS_HOST", f"sim:{scenario}")
        forget_devices()

    return enter


@pytest.fixture(scope="session")
def programs() -> pathlib.Path:
    """Where `zeus` and `zeusd` were built."""
    build = os.environ.get("ZEUS_BUILD")
    if build is None:
        pytest.skip("ZEUS_BUILD does not name a build tree")
    return pathlib.Path(build) / "bin"


@pytest.fixture
def truth(programs: pathlib.Path) -> Callable[[float, float], dict[str, float]]:
    """The exact joules of the simulated devices, by UUID or zone, between two monotonic times."""

    def ask(begin_s: float, end_s: float) -> dict[str, float]:
        from zeus.device._machine import machine

        session = machine().session
        assert session is not None
        command = [programs / "zeus", "sim", "truth", "--json", "--session", session]
        nanoseconds = ["--begin", str(round(begin_s * 1e9)), "--end", str(round(end_s * 1e9))]
        out = subprocess.run([*command, *nanoseconds], capture_output=True, text=True, check=True)
        return {d.get("uuid", d["id"]): d["energy_j"] for d in json.loads(out.stdout)["devices"]}

    return ask
