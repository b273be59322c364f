"""What upstream's examples print and send, against what the simulated machine draws."""

from __future__ import annotations

import http.server
import re
import threading

import pytest

# PyTorch without CUDA cannot do what these scripts ask of a GPU: it stays on the processor.
ON_CPU = """
import torch
torch.cuda.set_device = lambda device: None
torch.nn.Module.cuda = lambda self, device=None: self
torch.Tensor.cuda = lambda self, *_, **__: self
names = {}
"""


def test_jax_measures_the_power_of_its_gpu_over_its_time(run):
    pytest.importorskip("jax")
    # 50000 products take an hour here.
    out = run("jax/measure_energy.py", prepare="names = {'range': lambda n: range(n // 2000)}")
    seconds = float(re.search(r"Took (\S+) seconds", out)[1])
    joules = float(re.search(r"GPU 0 consumed (\S+) Joules", out)[1])
    # 100 W, by a counter that is updated every 100 ms.
    assert abs(joules - 100 * seconds) <= 10.01
    assert out.startswith("Measurement object: Measurement(time=")


@pytest.fixture
def gateway():
    """A push gateway where the example looks for one; gives what was pushed, by path."""
    pushed: dict[str, list[str]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            pushed.setdefault(self.path, []).append(body)
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_PUT

        def log_message(self, *_):
            pass

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 9091), Handler)
    except OSError as error:
        pytest.skip(f"port 9091, which the example has in its source, is taken: {error}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield pushed
    server.shutdown()
    server.server_close()


def test_training_pushes_energy_and_power_to_a_gateway(run, tmp_path, gateway):
    pytest.importorskip("torchvision")
    pytest.importorskip("zeus.metric")
    image = pytest.importorskip("PIL.Image")
    for split in ("train", "val"):
        for label, color in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            for i in range(2):
                image.new("RGB", (256, 256), color).save(folder / f"{i}.png")
    flags = ["-j", 0, "--epochs", 1, "-b", 2, "-a", "resnet18"]
    out = run(
        "prometheus/train_single.py",
        tmp_path / "images",
        *flags,
        scenario="h100x8",
        prepare=ON_CPU,
    )
    assert "Top-1 accuracy" in out
    jobs = "training_energy_histogram", "training_power_gauge", "training_energy_counter"
    for job in jobs:
        assert any(f"/job/{job}" in path for path in gateway), job
