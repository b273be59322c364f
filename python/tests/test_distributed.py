"""Devices of several ranks are added up once each: closed forms, and simulated machines."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import time

import pytest

from zeus.distributed import ClusterMeasurement, DeviceEnergy, combine, gather, readings
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.energy import Uncertain

_HIDDEN = ["transformers", "lightning", "pytorch_lightning"]


def gpu(
    rank: int,
    joules: float,
    *,
    device: str = "GPU-0",
    node: str = "a",
    u: float = 1.0,
    u_cmp: float = 1.0,
    begin: float = 0.0,
    seconds: float = 10.0,
    kind: str = "gpu",
    refusal: str = "",
) -> DeviceEnergy:
    energy = Uncertain(joules, u, u_cmp, (joules - 5, joules + 5), refusal=refusal)
    host = "" if kind == "gpu" else node
    return DeviceEnergy(host, node, device, kind, energy, begin, seconds, (rank,))


# field failure 151
def test_four_ranks_that_all_watch_four_gpus_count_each_of_them_once():
    parts = [[gpu(rank, 100.0 * (i + 1), device=f"GPU-{i}") for i in range(4)] for rank in range(4)]
    total = combine(parts)
    assert [d.device for d in total.devices] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert all(d.ranks == (0, 1, 2, 3) for d in total.devices)
    assert total.total.value_j == 1000
    assert total.world_size == 4 and not total.problems


# field failure 151
def test_four_ranks_that_each_watch_their_own_gpu_make_the_same_sum():
    total = combine([[gpu(i, 100.0 * (i + 1), device=f"GPU-{i}")] for i in range(4)])
    assert total.total.value_j == 1000
    assert [d.ranks for d in total.devices] == [(0,), (1,), (2,), (3,)]


# field failure 152
def test_devices_are_told_one_by_one_and_add_up_to_their_nodes_and_these_to_the_total():
    parts = [
        [gpu(i, 100.0 * (i + 1), device=f"GPU-{i}", node="a" if i < 4 else "b")] for i in range(8)
    ]
    total = combine(parts)
    assert [d.energy.value_j for d in total.devices] == [100.0 * (i + 1) for i in range(8)]
    assert {node: e.value_j for node, e in total.by_node.items()} == {"a": 1000, "b": 2600}
    assert total.total.value_j == 3600
    assert total.total.bound_j == (3560, 3640)


def test_packages_of_the_same_name_on_two_machines_are_two():
    parts = [[gpu(i, 50, device="package-0", node=n, kind="cpu")] for i, n in enumerate("aab")]
    total = combine(parts)
    assert [(d.node, d.ranks) for d in total.devices] == [("a", (0, 1)), ("b", (2,))]
    assert total.total.value_j == 100


def test_random_errors_add_in_quadrature_and_gains_linearly():
    # u^2 = u_cmp^2 + u_gain^2 of each device: (3, 4) and (6, 8).
    total = combine([[gpu(0, 100, u=5, u_cmp=3), gpu(0, 200, device="GPU-1", u=10, u_cmp=6)]]).total
    assert total.u_cmp_j == pytest.approx(math.hypot(3, 6))
    assert total.u_j == pytest.approx(math.hypot(3, 6, 4 + 8))


def test_of_windows_that_differ_in_length_the_longest_counts():
    parts = [[gpu(0, 1000, begin=0, seconds=10)], [gpu(1, 1050, begin=-0.25, seconds=10.5)]]
    total = combine(parts)
    assert total.total.value_j == 1050
    assert total.time_s == 10.5
    assert total.devices[0].ranks == (0, 1)
    assert not total.problems


def test_ranks_that_contradict_each_other_are_named_and_make_the_sum_less_certain():
    total = combine([[gpu(0, 1000)], [gpu(1, 1300)]])
    assert total.problems == (
        "ranks 0 and 1 contradict each other about GPU-0 on a: "
        "1000 J in 10.000 s and 1300 J in 10.000 s",
    )
    assert "disagree" in total.total.flags
    assert total.total.u_j == pytest.approx(math.hypot(1, 150 / math.sqrt(3)))


def test_an_uncertainty_that_nobody_knows_excuses_no_contradiction():
    parts = [[gpu(0, 1000, u=math.nan, u_cmp=math.nan)], [gpu(1, 1300, u=math.nan, u_cmp=math.nan)]]
    assert combine(parts).problems


def test_a_number_counts_before_none_and_none_is_never_zero():
    nothing = gpu(0, math.nan, seconds=11, refusal="R8: lost")
    assert combine([[nothing], [gpu(1, 900)]]).total.value_j == 900
    total = combine([[nothing, gpu(0, 100, device="GPU-1")]]).total
    assert math.isnan(total.value_j)
    assert total.refusal == "gpu GPU-0 on a: R8: lost"
    assert math.isnan(combine([]).total.value_j)


def test_what_a_rank_read_can_be_sent_to_another(simulated):
    simulated("h100x8")
    monitor = ZeusMonitor()
    monitor.begin_window("w")
    time.sleep(0.3)
    own = readings(monitor.end_window("w"), monitor, rank=3)
    # By their texts: what is not known is NaN, which is not equal to itself.
    assert repr(pickle.loads(pickle.dumps(own))) == repr(own)
    assert [d.kind for d in own].count("gpu") == 8
    assert {d.device for d in own if d.kind == "cpu"} == {"package-0", "package-1"}
    assert all(d.device.startswith("GPU-") and not d.host for d in own if d.kind == "gpu")
    assert all(d.host for d in own if d.kind != "gpu")


def test_without_ranks_it_is_the_process_own_measurement(simulated):
    simulated("constant")
    monitor = ZeusMonitor()
    monitor.begin_window("w")
    time.sleep(0.5)
    measured = monitor.end_window("w")
    everything = gather(measured, monitor)
    assert everything.total.value_j == measured.energy
    assert everything.total.u_j == pytest.approx(measured.total.u_j)
    assert everything.world_size == 1
    assert str(everything).endswith(f"on 1 node(s), 1 rank(s); 1 x gpu: {measured.total}")


def test_a_measurement_made_by_hand_has_no_devices_to_ask(simulated):
    simulated("constant")
    assert isinstance(gather(Measurement(1.0, {0: 5.0}), ZeusMonitor()), ClusterMeasurement)


# field failure 150
# field failure 158
def test_ranks_with_gpus_of_their_own_read_each_its_own(programs):
    """Four processes, each of which sees one GPU, in an order that is not NVML's."""
    code = (
        "import json, time\n"
        "from zeus.monitor import ZeusMonitor\n"
        "from zeus.distributed import readings\n"
        "m = ZeusMonitor(cpu_indices=[])\n"
        "with m.window() as w: time.sleep(0.4)\n"
        "print(json.dumps([d.device for d in readings(w.measurement, m)]))\n"
    )
    run = "for i in 3 1 0 2; do CUDA_VISIBLE_DEVICES=$i {} -c {}; done"
    import shlex

    script = run.format(shlex.quote(sys.executable), shlex.quote(code))
    command = [programs / "zeus", "sim", "run", "a100x4", "--", "sh", "-c", script]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seen = [json.loads(line) for line in out.splitlines()]
    assert all(len(one) == 1 for one in seen) and len({one[0] for one in seen}) == 4
    command = [programs / "zeus", "sim", "run", "a100x4", "--", sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    order = json.loads(out)
    assert [one[0] for one in seen] == [order[i] for i in (3, 1, 0, 2)]


@pytest.mark.parametrize(
    "module, wanted", [("huggingface", "transformers"), ("lightning", "lightning")]
)
def test_a_callback_without_its_framework_says_what_to_install(module, wanted):
    code = f"import sys; sys.modules.update(dict.fromkeys({_HIDDEN!r})); import zeus.callbacks."
    command = [sys.executable, "-c", code + module]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
    assert f"pip install {wanted}" in said.splitlines()[-1]
