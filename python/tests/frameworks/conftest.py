"""Tests inside real frameworks, of `scripts/test frameworks`; elsewhere nothing is collected."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "jax", "transformers")):
    collect_ignore_glob = ["test_*.py"]

# The matrices are small: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples/train_torch"


def objects(text: str) -> Iterator[Any]:
    """The JSON objects in a text. Ranks write to one pipe, and a line may begin in another's."""
    decoder, place = json.JSONDecoder(), text.find('{"')
    while place >= 0:
        found, end = decoder.raw_decode(text, place)
        yield found
        place = text.find('{"', end)


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch finds no GPU, as there is none: it would count those of the simulated NVML."""
    import torch

    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.fixture
def python() -> Callable[..., Any]:
    """Runs code in a new interpreter; gives what its last line, JSON, says."""

    def run(code: str, *command: str | os.PathLike[str], **environment: str) -> Any:
        out = subprocess.run(
            [*command, sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **environment},
        )
        assert out.returncode == 0, out.stderr
        return json.loads(out.stdout.splitlines()[-1])

    return run


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a training script in this process, as its `__main__`; it must succeed."""

    def run(name: str, *arguments: object) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert end.value.code == 0

    return run


@pytest.fixture
def torchrun(tmp_path: pathlib.Path) -> Callable[..., list[Any]]:
    """Runs a script, or code, on several ranks of PyTorch; gives the JSON lines of all of them."""

    def run(ranks: int, script: str, *arguments: object, scenario: str) -> list[Any]:
        build = os.environ.get("ZEUS_BUILD")
        if build is None:
            pytest.skip("ZEUS_BUILD does not name a build tree")
        if "\n" in script:
            (tmp_path / "rank.py").write_text(script)
            script = str(tmp_path / "rank.py")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        out = subprocess.run(
            [
                *[f"{build}/bin/zeus", "sim", "run", scenario, "--"],
                *[*launcher, "--nproc-per-node", str(ranks), script, *map(str, arguments)],
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert out.returncode == 0, out.stderr
        return list(objects(out.stdout))

    return run
