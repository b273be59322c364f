"""The units, judged by systemd itself: no running one is needed."""

import os
import re

import pytest

from conftest import DEPLOY, run, tool

UNITS = {"zeusd.service": 30, "zeus-cpu-energy.service": 15}  # Exposure, in tenths, at most.


@pytest.fixture
def units(tmp_path):
    """The units, with a program in the place of the daemon's: systemd looks whether it is there."""
    for name in UNITS:
        text = (DEPLOY / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/zeusd", "/bin/true"))
    return tmp_path


def test_units_are_understood_whole(units):
    for name in UNITS:
        done = run(tool("systemd-analyze"), "verify", "--man=no", units / name)
        assert (done.returncode, done.stdout) == (0, "")


def test_a_word_that_systemd_does_not_know_is_found(units):
    broken = units / "zeusd.service"
    broken.write_text(broken.read_text().replace("ProtectHome=", "ProtectHouse="))
    assert "ProtectHouse" in run(tool("systemd-analyze"), "verify", "--man=no", broken).stdout


@pytest.mark.parametrize("name", UNITS)
def test_units_are_no_more_exposed_than_they_must_be(units, name):
    done = run(
        tool("systemd-analyze"), "security", "--offline=yes", f"--threshold={UNITS[name]}",
        "--no-pager", units / name,
        env={**os.environ, "SYSTEMD_UNIT_PATH": str(units), "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout


def settings(name: str) -> list[tuple[str, str, bool]]:
    """Key, value, and whether the lines above explain it."""
    out, explained = [], False
    for line in (DEPLOY / "systemd" / name).read_text().splitlines():
        if line.startswith("#"):
            explained = True
        elif match := re.match(r"(\w+)=(.*)", line):
            out.append((match[1], match[2], explained))
            explained = False
        else:
            explained = False
    return out


@pytest.mark.parametrize("name", UNITS)
def test_every_capability_and_every_loosened_line_says_why(name):
    loose = {"no", "all", "default"}
    for key, value, explained in settings(name):
        if (key == "CapabilityBoundingSet" and value) or (
            key.startswith(("Protect", "Private", "ProcSubset")) and value in loose
        ):
            assert explained, f"{name}: {key}={value}"


def test_the_unit_names_arguments_that_the_daemon_takes(serve_flags):
    text = (DEPLOY / "systemd" / "zeusd.default").read_text()
    text += (DEPLOY / "systemd" / "zeusd.service").read_text()
    named = {f for f in re.findall(r"--[a-z][a-z-]+", text) if f != "--help"}
    assert named and named <= serve_flags


def test_groups_of_the_units_are_made(tmp_path):
    made = set(re.findall(r"^g (\S+)", (DEPLOY / "systemd" / "zeusd.sysusers.conf").read_text(), re.M))
    used = {v for n in UNITS for k, v, _ in settings(n) if k == "Group"}
    assert made == used
    (tmp_path / "etc").mkdir()
    done = run(
        tool("systemd-sysusers"), f"--root={tmp_path}", DEPLOY / "systemd" / "zeusd.sysusers.conf"
    )
    assert done.returncode == 0, done.stdout
    groups = (tmp_path / "etc" / "group").read_text()
    assert all(f"{group}:" in groups for group in used)
