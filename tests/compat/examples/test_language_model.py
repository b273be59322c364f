"""Upstream's examples that train a language model, with a tiny one and a server of our own.

They are of 2024: ZEUS_EXAMPLES_SITE names a folder with the packages of
scripts/requirements/examples.txt.
"""

from __future__ import annotations

import datetime
import http.server
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).parent
INTENSITY = 400  # g/kWh
# The script asks two sites on the internet; both are ours here.
ASK_US = """
import requests
ask = requests.get
requests.get = lambda url, **options: ask(f"http://127.0.0.1:{port}/?{{url}}", **options)
names = {{}}
"""
FLAGS = (
    "--model_name_or_path ./model --train_file train.json --validation_file eval.json --do_train "
    "--do_eval --output_dir out --num_train_epochs 2 --per_device_train_batch_size 4 "
    "--block_size 32 --report_to none --use_cpu"
)


@pytest.fixture
def site(tmp_path) -> str:
    """The packages of that time first, then ours; the model is made with them."""
    packages = os.environ.get("ZEUS_EXAMPLES_SITE")
    if not packages:
        pytest.skip("ZEUS_EXAMPLES_SITE names no folder with Transformers of 2024")
    path = os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, HERE / "tiny_model.py", tmp_path],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        timeout=200,
    )
    return path


@pytest.fixture
def port():
    """A server that tells a place, and the carbon intensity of each of the last hours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            hour = datetime.datetime.now(datetime.timezone.utc).replace(
                minute=0, second=0, microsecond=0
            )
            hours = [hour - datetime.timedelta(hours=i) for i in range(24)]
            history = [{"carbonIntensity": INTENSITY, "datetime": h.isoformat()} for h in hours]
            place = {"loc": "42.28,-83.74"}
            answer = place if "ipinfo" in self.path else {"history": history}
            answer["carbonIntensity"] = INTENSITY
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_training_tells_its_carbon(run, site, port):
    pytest.importorskip("evaluate")
    out = run(
        "carbon_emission_monitor/run_clm.py",
        *FLAGS.split(),
        scenario="h100x8",
        prepare=ASK_US.format(port=port),
        PYTHONPATH=site,
    )
    said = out[out.index("Train energy & carbon") :]
    text = re.search(r"gpu_energy=(\{.*?\}), gpu_carbon_emission=(\{.*?\})", said)
    energy, carbon = (
        {int(k): float(v) for k, v in re.findall(r"(\d+): ([\d.e+-]+|nan)", part)}
        for part in text.groups()
    )
    assert set(energy) == set(carbon) == set(range(8))
    for i, joules in energy.items():
        assert joules > 0
        assert carbon[i] == pytest.approx(joules / 3.6e6 * INTENSITY)


def test_training_finds_its_power_limit(run, site):
    pytest.importorskip("evaluate")
    if importlib.util.find_spec("zeus.optimizer") is None:
        pytest.skip("this package has no zeus.optimizer")
    run("huggingface/run_clm.py", *FLAGS.split(), scenario="h100x8", PYTHONPATH=site)
