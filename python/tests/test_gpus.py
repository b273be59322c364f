"""NVIDIA GPUs of simulated machines: units, indices, errors."""

from __future__ import annotations

import os
import warnings

import pytest

from zeus.device.gpu import get_gpus
from zeus.device.gpu import nvidia as nvidia_module
from zeus.device.gpu.common import (
    EmptyGPUs,
    ZeusGPUHeterogeneousError,
    ZeusGPUInitError,
    ZeusGPUInvalidArgError,
    ZeusGPULostError,
    ZeusGPUNoPermissionError,
    ZeusGPUNotSupportedError,
)

TWO_MODELS = """
[[gpu]]
model = "NVIDIA A"
power = { kind = "constant", watts = 100 }
energy = {}
power_usage = {}
[[gpu]]
model = "NVIDIA B"
power = { kind = "constant", watts = 50 }
power_usage = {}
"""


def test_units_are_those_of_nvml(simulated):
    simulated("constant")
    gpus = get_gpus()
    assert len(gpus) == 1
    assert gpus.get_name(0) == "Simulated 100 W"
    assert gpus.get_instant_power_usage(0) == 100_000
    assert gpus.get_average_power_usage(0) == 100_000
    assert gpus.get_power_management_limit_constraints(0) == (50_000, 200_000)
    assert gpus.get_power_management_limit(0) == 150_000
    before = gpus.get_total_energy_consumption(0)
    assert isinstance(before, int)
    assert gpus.supports_get_total_energy_consumption(0)
    assert 30 <= gpus.get_gpu_temperature(0) <= 80


def test_settings_are_made_and_reset(simulated):
    simulated("h100x8")
    gpu = get_gpus().gpus[2]
    low, high = gpu.get_power_management_limit_constraints()
    gpu.set_power_management_limit(low)
    assert gpu.get_power_management_limit() == low
    gpu.reset_power_management_limit()
    assert gpu.get_power_management_limit() == high
    gpu.set_persistence_mode(False)
    assert gpu.get_persistence_mode() is False
    gpu.set_persistence_mode(True)
    assert gpu.get_persistence_mode() is True
    gpu.set_gpu_locked_clocks(210, 1980)
    gpu.reset_locked_clocks()


# weakness D4
def test_graphics_clocks_need_no_memory_clock(simulated):
    simulated("h100x8")
    gpus = get_gpus()
    (memory,) = gpus.get_supported_memory_clocks(0)
    assert gpus.get_supported_graphics_clocks(0) == gpus.get_supported_graphics_clocks(0, memory)
    assert max(gpus.get_supported_graphics_clocks(0)) == 1980


def test_a_limit_out_of_range_is_an_invalid_argument(simulated):
    simulated("h100x8")
    with pytest.raises(ZeusGPUInvalidArgError):
        get_gpus().set_power_management_limit(0, 1)


def test_a_setting_that_is_not_allowed_is_a_missing_permission(simulated):
    simulated(
        '[nvml]\ncontrol = "nobody"\n'
        + TWO_MODELS.replace(
            "energy = {}", "energy = {}\nlimit = { min = 50, max = 200, default = 150 }"
        )
    )
    with pytest.raises(ZeusGPUNoPermissionError, match="GPU 0"):
        get_gpus().set_power_management_limit(0, 100_000)


# weakness D3
def test_power_of_old_drivers_is_read_in_the_old_way(simulated):
    simulated(TWO_MODELS)
    gpus = get_gpus()
    assert gpus.get_instant_power_usage(1) == 50_000
    with pytest.raises(ZeusGPUNotSupportedError):
        gpus.get_average_power_usage(1)


# weakness E9
def test_a_counter_is_tried_not_guessed_from_the_architecture(simulated):
    simulated(
        TWO_MODELS.replace('model = "NVIDIA B"', 'model = "NVIDIA B"\narchitecture = "hopper"')
    )
    gpus = get_gpus()
    assert gpus.supports_get_total_energy_consumption(0)
    assert not gpus.supports_get_total_energy_consumption(1)
    with pytest.raises(ZeusGPUNotSupportedError, match=r"GPU 1: .*no sensor energy"):
        gpus.get_total_energy_consumption(1)


# weakness D2
def test_homogeneity_is_checked_whenever_it_is_asked_for(simulated):
    simulated(TWO_MODELS)
    get_gpus()
    with pytest.raises(ZeusGPUHeterogeneousError, match="NVIDIA A, NVIDIA B"):
        get_gpus(ensure_homogeneous=True)


def test_a_lost_gpu_is_said_with_its_index(simulated):
    simulated(TWO_MODELS + '[[fault]]\ngpu = 0\ncall = "energy"\nat = "0s"\ncode = 15\n')
    with pytest.raises(ZeusGPULostError, match="GPU 0"):
        get_gpus().get_total_energy_consumption(0)


# weakness D1
@pytest.mark.parametrize(
    ("visible", "physical"),
    [
        ("2,0", [2, 0]),
        ("GPU-2e59595e", [1]),
        ("0,-1,3", [0]),
        ("1,GPU-b22202a9", None),
        ("0, 1", [0, 1]),
    ],
)
def test_visible_devices_are_those_of_cuda(simulated, monkeypatch, visible, physical):
    simulated("h100x8")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = get_gpus().gpus
    if physical is not None:
        assert [gpu.gpu_index for gpu in gpus] == physical
    else:  # A mixed list: what CUDA makes of it is tested in the core.
        assert gpus


def test_no_visible_gpu_is_an_error_that_names_the_variable(simulated, monkeypatch):
    simulated("h100x8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ZeusGPUInitError, match="CUDA_VISIBLE_DEVICES"):
        get_gpus()


# field failure 159
def test_a_daemon_that_does_not_answer_is_an_error_and_not_an_empty_list(monkeypatch):
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/nonexistent/zeusd.sock")
    with pytest.raises(ZeusGPUInitError, match="nonexistent"):
        get_gpus()


def test_no_gpu_is_an_error_with_the_reason(simulated):
    simulated("xeon-2s")
    with pytest.raises(ZeusGPUInitError):
        get_gpus()


def test_an_index_that_is_not_there_is_an_index_error(simulated):
    simulated("constant")
    with pytest.raises(IndexError):
        get_gpus().get_name(1)


# weakness D7
def test_without_gpus_every_question_is_a_value_error():
    gpus = EmptyGPUs()
    assert len(gpus) == 0
    for ask in (gpus.get_name, gpus.get_average_power_usage, gpus.get_average_memory_power_usage):
        with pytest.raises(ValueError, match="no GPU"):
            ask(0)
    with pytest.raises(ValueError, match="no GPU"):
        gpus._ensure_homogeneous()


def test_old_names_warn_and_work(simulated):
    simulated("constant")
    with pytest.warns(DeprecationWarning, match="getTotalEnergyConsumption"):
        assert get_gpus().getTotalEnergyConsumption(0) > 0


# weakness D5
def test_a_module_that_hides_its_gpus_power_is_said(simulated):
    simulated("grace-hopper")
    gpu = get_gpus().gpus[0]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gpu.get_instant_power_usage()
    own = "power_instant" in gpu.handle.sensors
    assert own or any("whole module" in str(w.message) for w in said)


class TestReplacedNvml:
    """Whoever replaces `zeus.device.gpu.nvidia.pynvml` is asked in the core's place."""

    class Fake:
        """The calls that are made, and nothing else."""

        class NVMLError(Exception):
            value = 15

        NVML_DEVICE_ARCH_VOLTA = 5

        def nvmlInit(self) -> None: ...
        def nvmlShutdown(self) -> None: ...
        def nvmlDeviceGetCount(self) -> int:
            return 4

        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            return f"handle{index}"

        def nvmlDeviceGetArchitecture(self, handle: str) -> int:
            return 4 if handle == "handle3" else 7

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
            if handle == "handle2":
                raise self.NVMLError("fell off the bus")
            return 1000

    # weakness D9
    def test_by_its_indices_and_errors(self, monkeypatch):
        monkeypatch.setattr(nvidia_module, "pynvml", self.Fake())
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2,0")
        gpus = nvidia_module.NVIDIAGPUs()
        assert [gpu.gpu_index for gpu in gpus.gpus] == [3, 2, 0]
        assert [gpus.supports_get_total_energy_consumption(i) for i in range(3)] == [
            False,
            True,
            True,
        ]
        assert gpus.get_total_energy_consumption(2) == 1000
        with pytest.raises(ZeusGPULostError, match="GPU 2: fell off the bus"):
            gpus.get_total_energy_consumption(1)


def test_a_forked_child_reads_its_own(simulated):
    simulated("constant")
    get_gpus().get_instant_power_usage(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if get_gpus().get_instant_power_usage(0) == 100_000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
