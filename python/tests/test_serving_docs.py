"""The Python blocks of the guide run as they stand, one after the other."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "serving.md"


def test_the_examples_of_the_guide_run(
    simulated: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("zeus._core")
    simulated("constant")
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    for source in names["sources"].values():  # type: ignore[attr-defined]
        source.stop()
    out = capsys.readouterr().out
    assert "J/token" in out
    assert "in truth" in out
