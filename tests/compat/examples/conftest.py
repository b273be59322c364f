"""Upstream's examples, unchanged, with our package: their files are run from a checkout of upstream.

ZEUS_UPSTREAM names the checkout, ZEUS_BUILD our build; the interpreter is one with the frameworks
(`scripts/test frameworks`). Without one of them nothing runs.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

# Runs a file as its interpreter would, with names put before the built-in ones where its own flags
# cannot make it short. The file is as upstream has it.
RUN = """
import runpy, sys
exec(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], init_globals=names, run_name="__main__")
"""


@pytest.fixture
def upstream() -> pathlib.Path:
    checkout = os.environ.get("ZEUS_UPSTREAM")
    if not checkout:
        pytest.skip("ZEUS_UPSTREAM does not name a checkout of upstream")
    return pathlib.Path(checkout) / "examples"


@pytest.fixture
def run(upstream: pathlib.Path, tmp_path: pathlib.Path) -> Callable[..., str]:
    """Runs an example on a simulated machine in an empty folder; gives its output."""

    def example(
        name: str,
        *arguments: object,
        scenario: str = "constant",
        prepare: str = "names = {}",
        **environment: str,
    ) -> str:
        build = os.environ.get("ZEUS_BUILD")
        if build is None:
            pytest.skip("ZEUS_BUILD does not name a build tree")
        script = [sys.executable, "-c", RUN, prepare, upstream / name, *arguments]
        out = subprocess.run(
            [f"{build}/bin/zeus", "sim", "run", scenario, "--", *map(str, script)],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert out.returncode == 0, out.stderr
        return out.stdout

    return example
