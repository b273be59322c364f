"""The example in examples/serving: its batching computes what requests alone would, and adds up."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "serving"
pytest.importorskip("numpy")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def outputs(prompts: list[str], seats: int, budget: int) -> dict[str, list[int]]:
    from engine import Engine, Request  # type: ignore[import-not-found]
    from model import Model  # type: ignore[import-not-found]

    engine = Engine(Model(width=48, layers=2, heads=3, longest=128), seats, budget)
    for i, prompt in enumerate(prompts):
        engine.add(Request(str(i), list(prompt.encode()), 4 + 3 * i))
    out = {}
    while engine.busy:
        event, ended = engine.step()
        assert sum(item.tokens for item in event.items) <= max(budget, seats)
        out.update({request.name: request.output for request in ended})
    return out


def test_a_batch_generates_what_each_request_would_alone(example: None) -> None:
    prompts = ["Why is the sky blue?", "a", "Explain how a heat pump works.", "Name the moons."]
    alone = {}
    for i in range(len(prompts)):
        alone[str(i)] = outputs(prompts[: i + 1], 1, 1000)[str(i)]
    assert outputs(prompts, 3, 7) == alone


def test_the_example_prints_joules_per_request_and_token() -> None:
    pytest.importorskip("zeus._core")
    done = subprocess.run(
        [sys.executable, str(HERE / "serve.py"), "--requests", "4", "--rate", "20"],
        env={**os.environ, "ZEUS_HOST": "sim:constant"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "J/token" in done.stdout
    assert "per token" in done.stdout
