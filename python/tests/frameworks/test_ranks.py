"""`zeus.distributed` over real ranks of PyTorch."""

from __future__ import annotations

import pytest

RANK = """
import json, os, time, torch.distributed as dist
from zeus.distributed import gather
from zeus.monitor import ZeusMonitor
dist.init_process_group("gloo")
rank = dist.get_rank()
monitor = ZeusMonitor(gpu_indices=GPUS, cpu_indices=[])
dist.barrier()
with monitor.window() as window:
    time.sleep(0.8 + 0.2 * rank)
total = gather(window.measurement, monitor)
print(json.dumps({
    "rank": rank,
    "own": window.measurement.gpu_energy[0 if GPUS is None else rank],
    "time": window.measurement.time,
    "total": total.total.value_j,
    "u": total.total.u_j,
    "devices": [[d.device, d.energy.value_j, d.time_s, list(d.ranks)] for d in total.devices],
    "problems": total.problems,
}), flush=True)
dist.destroy_process_group()
"""
GPU = """
[[gpu]]
model = "GPU"
power = {{ kind = "constant", watts = {watts} }}
energy = {{ update = "20ms", quantum = 0.001 }}
"""


@pytest.fixture
def scenario(tmp_path):
    """Two GPUs that draw 100 W and 200 W."""
    file = tmp_path / "two.toml"
    file.write_text("".join(GPU.format(watts=watts) for watts in (100, 200)))
    return str(file)


# field failure 150
# field failure 151
def test_ranks_that_watch_their_own_gpu_are_added_up(torchrun, scenario):
    script = RANK.replace("GPUS", "[rank]")
    first, second = sorted(torchrun(2, script, scenario=scenario), key=lambda r: r["rank"])
    assert first["devices"] == second["devices"]
    assert [d[3] for d in first["devices"]] == [[0], [1]]
    assert first["total"] == pytest.approx(first["own"] + second["own"])
    expected = 100 * first["time"] + 200 * second["time"]
    assert abs(first["total"] - expected) <= 4 * first["u"]


# field failure 151
# field failure 152
def test_ranks_that_all_watch_all_gpus_count_each_of_them_once(torchrun, scenario):
    script = RANK.replace("GPUS", "None")
    first, second = sorted(torchrun(2, script, scenario=scenario), key=lambda r: r["rank"])
    assert first["devices"] == second["devices"] and not first["problems"]
    assert [d[3] for d in first["devices"]] == [[0, 1], [0, 1]]
    longest = second["time"]
    assert all(d[2] == longest for d in first["devices"])
    assert abs(first["total"] - 300 * longest) <= 4 * first["u"]
    # Neither added up over ranks nor divided by their number.
    assert first["u"] < 0.1 * first["total"]
