"""The Python blocks of the guide run as they stand, one after the other."""

from __future__ import annotations

import json
import pathlib
import re

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "python.md"


def test_the_examples_of_the_guide_run(simulated, capsys, monkeypatch, tmp_path):
    simulated("square")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    out = capsys.readouterr().out
    assert "no number (R1" in out
    assert "backward" in out and "other" in out and "sampled" in out
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
