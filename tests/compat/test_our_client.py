"""Our command line reads a node through zeusd: through ours and through upstream's released one."""

import json
import os
import subprocess

import daemons
import pytest


@pytest.fixture(scope="session")
def remote(zeus):
    """Runs `zeus --host zeusd:ADDRESS ...` where this build knows that scheme."""
    probe = subprocess.run(
        [zeus, "--host", f"zeusd:127.0.0.1:{daemons.free_port()}", "env"],
        capture_output=True,
        text=True,
    )
    if "this build opens" in probe.stderr:
        pytest.skip("this build of zeus opens no zeusd: addresses")

    def run(daemon, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        where = daemon.path or f"{daemon.tcp[0]}:{daemon.tcp[1]}"
        return subprocess.run(
            [zeus, "--host", f"zeusd:{where}", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def told(done: subprocess.CompletedProcess) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_command_is_measured_through_a_daemon(remote, daemon, tmp_path):
    # The command's own output has standard output to itself.
    done = remote(daemon, "run", "--json", "-o", str(tmp_path / "r.json"), "--", "sleep", "0.5")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    seconds = report["window"]["duration_s"]
    domains = {d["domain"]: d for d in report["domains"]}
    watts = {f"gpu:{i}": 150 for i in range(4)} | {"package:0": 60, "dram:0": 8}
    assert set(watts) <= set(domains)
    for name, watt in watts.items():
        low, high = domains[name]["low_j"], domains[name]["high_j"]
        assert low <= watt * seconds, (name, low)
        # Who is known by a number only has no power limit, and so no bound above.
        assert high is None if daemon.which == "upstream" and "gpu" in name else watt * seconds <= high


def test_the_machine_behind_a_daemon_is_listed(remote, daemon):
    report = told(remote(daemon, "env", "--json"))
    gpus = [d for d in report["devices"] if d["kind"] == "gpu"]
    assert [g["index"] for g in gpus] == [0, 1, 2, 3]
    assert {g["model"] for g in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert report["host"]["address"].startswith("zeusd:")


def test_a_unix_socket_and_a_token_lead_to_the_same_machine(remote, serve, tmp_path):
    daemon = serve(uds=tmp_path / "s", key=daemons.KEY)
    bearer = daemons.token(scopes=["gpu-read", "cpu-read"])
    report = told(remote(daemon, "env", "--json", ZEUSD_TOKEN=bearer))
    assert len([d for d in report["devices"] if d["kind"] == "gpu"]) == 4


def test_a_token_that_is_not_good_is_said(remote, guarded):
    done = remote(guarded, "run", "--", "true", ZEUSD_TOKEN="garbage")
    assert "token" in done.stderr or "token" in done.stdout


def test_a_daemon_that_is_not_there_is_an_error(remote, zeus):
    where = f"zeusd:127.0.0.1:{daemons.free_port()}"
    done = subprocess.run([zeus, "--host", where, "env"], capture_output=True, text=True)
    assert done.returncode != 0 and where.removeprefix("zeusd:") in done.stderr
