"""The guide's example runs, and its queries find something in a real Prometheus."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from gateway import unused_port

from zeus.metric import EnergyCumulativeCounter, EnergyHistogram, PowerGauge

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "prometheus-python.md"
STEADY = """
[[gpu]]
model = "NVIDIA Steady"
power = { kind = "constant", watts = 100 }
energy = { update = "20ms" }
power_instant = { update = "20ms", kind = "instant" }
"""
J = "energy_monitor_gpu_energy_joules"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)


@pytest.mark.filterwarnings("ignore:.*_bucket_range")
def test_the_example_of_the_guide_runs(simulated):
    simulated(STEADY)
    (example,) = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(example, str(GUIDE), "exec"), names)
    read = names["histogram"].registry.get_sample_value
    assert read(f"{J}_count", {"window": "epoch", "index": "0"}) == 3


class Prometheus:
    """A real one that scrapes ports of this host five times a second."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, query: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def wait_for(self, query: str) -> list[dict[str, Any]]:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if found := self.ask(query):
                    return found
            assert time.monotonic() < until, f"nothing matches {query}"
            time.sleep(0.1)


@contextlib.contextmanager
def scraping(folder: pathlib.Path, ports: list[int]) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus on the PATH")
    targets = [f"127.0.0.1:{port}" for port in ports]
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "train", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = unused_port()
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield Prometheus(port)
        finally:
            process.kill()


def test_every_query_of_the_guide_matches_series_that_there_are(simulated, tmp_path):
    simulated(STEADY)
    histogram = EnergyHistogram([], [0], None, "train", gpu_bucket_range=[5, 10, 20, 50, 100])
    counter = EnergyCumulativeCounter([], [0], 0.2, None, "train")
    gauge = PowerGauge([0], 0.2, None, "train")
    metrics = [histogram, counter, gauge]
    with scraping(tmp_path, [metric.serve(0) for metric in metrics]) as prometheus:
        counter.begin_window("run")
        gauge.begin_window("run")
        prometheus.wait_for("power_monitor_gpu_power_watts")
        for _ in range(4):
            histogram.begin_window("epoch")
            time.sleep(0.25)
            histogram.end_window("epoch")
            with pytest.warns(UserWarning, match="GPU"):
                histogram.begin_window("blink")
                histogram.end_window("blink")
        queries = blocks("promql")
        assert len(queries) == 8
        found = [prometheus.wait_for(query) for query in queries]
        assert float(found[0][0]["value"][1]) == pytest.approx(100)
        assert found[1][0]["metric"] == {"job": "train", "window": "run"}
        assert float(found[1][0]["value"][1]) == pytest.approx(100)
        # What upstream's documentation asks for is no series.
        assert prometheus.ask(J) == []
    for metric in metrics:
        metric.close()
