"""What is in deploy/, checked by the programs that it is for."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str) -> str:
    """The path of a program of a Debian package, or the reason to skip."""
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    return found or pytest.skip(f"{name} is not installed (scripts/setup deploy)")


def run(*argv, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        list(map(str, argv)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture(scope="session")
def zeusd() -> pathlib.Path:
    build = pathlib.Path(os.environ.get("ZEUS_BUILD", ROOT / "build" / "release"))
    binary = build / "bin" / "zeusd"
    if not binary.exists():
        pytest.skip(f"there is no {binary}; build it or set ZEUS_BUILD")
    return binary


@pytest.fixture(scope="session")
def serve_flags(zeusd) -> set[str]:
    """The options that `zeusd serve` takes, by its own words."""
    done = run(zeusd, "serve", "--help")
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout))


@pytest.fixture(scope="session")
def metric_names() -> set[str]:
    """Every metric of the daemon. That the page is complete is a test of src/report."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(zeusd?_\w+)`", page, re.M))
