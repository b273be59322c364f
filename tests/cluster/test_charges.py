"""What a job is charged, from counters at both ends: the cases that no simulated machine shows."""

import importlib.machinery
import importlib.util

import pytest

from conftest import ROOT

_path = str(ROOT / "deploy" / "slurm" / "zeus-job-energy")
_loader = importlib.machinery.SourceFileLoader("zeus_job_energy", _path)
energy = importlib.util.module_from_spec(importlib.util.spec_from_loader("zeus_job_energy", _loader))
_loader.exec_module(energy)


def node(time, gpus, cpus=None, instance="a", uuid="GPU-1"):
    return {
        "time": time,
        "instance": instance,
        "simulation": None,
        "gpus": {str(i): {"name": "H100", "uuid": uuid, **g} for i, g in gpus.items()},
        "cpus": {str(i): c for i, c in (cpus or {}).items()},
    }


def account(before, after, gpus=("0",), others=None):
    return energy.account({"job": "7", "gpus": list(gpus), "others": others or {}, "node": before}, after)


def test_a_job_is_charged_the_rise_of_its_counters():
    out = account(node(10, {0: {"joules": 5000}}), node(20, {0: {"joules": 7500.25}}))
    assert out["gpu_joules"] == out["gpus"][0]["joules"] == 2500.25
    assert out["seconds"] == 10


def test_a_counter_that_began_again_tells_what_it_was_at_least():
    out = account(node(10, {0: {"joules": 5000}}), node(20, {0: {"joules": 40}}))
    assert out["gpu_joules"] is None
    assert out["gpus"][0]["at_least_joules"] == 40 and "began again" in out["gpus"][0]["why"]


def test_another_gpu_in_its_place_is_not_charged():
    out = account(node(0, {0: {"joules": 1}}), node(9, {0: {"joules": 9}}, uuid="GPU-2"))
    assert out["gpu_joules"] is None and "another GPU" in out["gpus"][0]["why"]


# A sum of what is known would look like the whole.
def test_one_gpu_that_is_not_known_leaves_the_sum_unknown():
    before = node(0, {0: {"joules": 1}, 1: {"why": "gpu 1 is lost"}})
    out = account(before, node(9, {0: {"joules": 9}, 1: {"joules": 5}}), gpus=("0", "1"))
    assert [g["joules"] for g in out["gpus"]] == [8, None]
    assert out["gpus"][1]["why"] == "gpu 1 is lost" and out["gpu_joules"] is None


def test_a_gpu_that_the_daemon_does_not_know_is_not_nothing():
    out = account(node(0, {}), node(9, {}), gpus=("3",))
    assert out["gpus"] == [{"id": 3, "joules": None, "why": "it was not there all the time", "shared": False}]


def test_a_gpu_that_two_jobs_have_is_marked():
    out = account(node(0, {0: {"joules": 1}}), node(9, {0: {"joules": 9}}), others={"8": ["0"]})
    assert out["gpus"][0]["shared"] is True and out["jobs_beside"] == ["8"]


@pytest.mark.parametrize("instance, joules", [("a", 30.0), ("b", None)])
def test_processors_are_known_while_one_daemon_counts_their_wraps(instance, joules):
    before = node(0, {}, {0: {"joules": 10, "dram_joules": 1}})
    after = node(9, {}, {0: {"joules": 40, "dram_joules": 31}}, instance=instance)
    (cpu,) = account(before, after, gpus=())["cpus"]
    assert (cpu["joules"], cpu["dram_joules"]) == (joules, joules)
