"""Three daemons on simulated machines, and a real Prometheus that scrapes them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.parse

import pytest

from network import Network, Program, Refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
WATTS = (100.0, 250.0, 400.0)  # Of the one GPU of each node.
PACKAGE_WATTS = 50.0  # Of the one socket of each node.
SCRAPE_S = 1.0

SCENARIO = """
description = "One GPU and one socket at constant power, with counters."
[[gpu]]
model = "Simulated {watts} W"
architecture = "hopper"
power = {{ kind = "constant", watts = {watts} }}
limit = {{ min = 50, max = 700, default = 500 }}
energy = {{ update = "20ms", quantum = 0.001 }}
power_instant = {{ update = "20ms", kind = "boxcar" }}
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = {{ kind = "constant", watts = {package} }}
"""

PROMETHEUS = """
global: {{scrape_interval: {scrape}s, scrape_timeout: {scrape}s, evaluation_interval: {scrape}s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: zeusd
    static_configs: [{{targets: [{targets}]}}]
"""

# Run inside the namespace: prints what a URL answers.
GET = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"


def wait_for(what: str, condition, seconds: float = 30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds:g} s in vain for {what}")


class Cluster:
    def __init__(self, network: Network, folder: pathlib.Path, zeusd: pathlib.Path):
        self.network, self.folder, self.zeusd = network, folder, zeusd
        self.daemons, self.prometheus = [], None

    def start_all(self, prometheus: str):
        for n in range(len(WATTS)):
            self.daemons.append(self.start(n))
        for n in range(len(WATTS)):
            self.wait_until_up(n)
        config = self.folder / "prometheus.yml"
        config.write_text(
            PROMETHEUS.format(
                scrape=int(SCRAPE_S),
                rules=ROOT / "deploy" / "prometheus" / "rules.yml",
                targets=", ".join(f'"{self.instance(n)}"' for n in range(len(WATTS))),
            )
        )
        self.prometheus = Program(
            self.network.argv(
                self.network.hub,
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                "--web.listen-address=10.77.0.1:9090",
            ),
            self.folder / "prometheus.log",
        )

    def instance(self, n: int) -> str:
        return f"{self.network.address(n)}:4938"

    def start(self, n: int) -> Program:
        home = self.folder / f"node{n}"
        home.mkdir(exist_ok=True)
        machine = home / "machine.toml"
        machine.write_text(SCENARIO.format(watts=WATTS[n], package=PACKAGE_WATTS))
        return Program(
            self.network.on(
                n,
                self.zeusd,
                "serve",
                "--mode=tcp",
                f"--tcp-bind-address={self.instance(n)}",
                f"--host=sim:{machine}",
                "--allow-simulated",
                "--enable=gpu-read,cpu-read",
            ),
            home / "zeusd.log",
            env={**os.environ, "TMPDIR": str(home)},
        )

    def wait_until_up(self, n: int):
        def answers():
            assert self.daemons[n].runs(), self.daemons[n].output()
            return self.get(f"http://{self.instance(n)}/metrics")

        return wait_for(f"zeusd of node {n}", answers)

    def kill(self, n: int):
        self.daemons[n].kill()

    def restart(self, n: int):
        self.daemons[n] = self.start(n)
        self.wait_until_up(n)

    def get(self, url: str) -> str:
        """What a GET from inside the cluster answers; empty where it fails."""
        done = subprocess.run(
            self.network.argv(self.network.hub, sys.executable, "-c", GET, url),
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout if done.returncode == 0 else ""

    def query(self, expression: str, at: float | None = None) -> list[dict]:
        ask = {"query": expression, **({"time": f"{at:.3f}"} if at else {})}
        text = self.get("http://10.77.0.1:9090/api/v1/query?" + urllib.parse.urlencode(ask))
        answer = json.loads(text) if text else {"status": self.prometheus.output()}
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def value(self, expression: str, at: float | None = None) -> float:
        (only,) = self.query(expression, at)
        return float(only["value"][1])

    def samples(self, selector: str, at: float, seconds: int) -> list[tuple[float, float]]:
        """Every sample of the one series in the seconds before `at`, as it was scraped."""
        (only,) = self.query(f"{selector}[{seconds}s]", at)
        return [(t, float(v)) for t, v in only["values"]]

    def close(self):
        for program in filter(None, [self.prometheus, *self.daemons]):
            program.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    build = pathlib.Path(os.environ.get("ZEUS_BUILD", ROOT / "build" / "release"))
    zeusd, prometheus = build / "bin" / "zeusd", shutil.which("prometheus")
    if not zeusd.exists():
        pytest.skip(f"there is no {zeusd}; build it or set ZEUS_BUILD")
    if prometheus is None or shutil.which("nsenter") is None or shutil.which("ip") is None:
        pytest.skip("prometheus or iproute2 is not installed (scripts/setup deploy)")
    try:
        network = Network(len(WATTS))
    except Refused as why:
        pytest.skip(f"no network namespaces here: {why}")
    made = Cluster(network, tmp_path_factory.mktemp("cluster"), zeusd)
    try:
        made.start_all(prometheus)
        yield made
    finally:
        made.close()
        network.close()
