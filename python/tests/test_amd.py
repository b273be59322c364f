"""AMD GPUs over a stand-in for AMD SMI's binding: order, visibility, counters, messages."""

import itertools
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loopback import Server

from zeus.device.gpu.common import (
    ZeusGPUInitError,
    ZeusGPUNotSupportedError,
    ZeusGPUUnknownError,
)


class LibraryError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_info(self) -> str:
        return f"status {self.code}"


class Card:
    """One GPU of the stand-in; its counter follows its power by the clock."""

    def __init__(self, hip: int, name: str = "Instinct MI300X", power: Any = 100) -> None:
        self.hip, self.name, self.power = hip, name, power
        self.average: Any = "N/A"
        self.resolution_uj = 15.3
        self.factor = 1.0
        self.start_s = time.monotonic()
        self.counts: Callable[[], int] = self._counted
        self.cap_uw = 750_000_000

    def _counted(self) -> int:
        power_w = self.power if isinstance(self.power, int) else 100
        joules = power_w * (time.monotonic() - self.start_s) * self.factor
        return int(joules * 1e6 / self.resolution_uj)


def stand_in(cards: list[Card]) -> types.ModuleType:
    module: Any = types.ModuleType("amdsmi")
    module.AmdSmiLibraryException = LibraryError
    module.AmdSmiInitFlags = types.SimpleNamespace(INIT_AMD_GPUS=2)
    module.AmdSmiClkType = types.SimpleNamespace(MEM=4, GFX=1)
    module.AmdSmiTemperatureType = types.SimpleNamespace(HOTSPOT=1)
    module.AmdSmiTemperatureMetric = types.SimpleNamespace(CURRENT=0)
    module.AmdSmiDevPerfLevel = types.SimpleNamespace(AUTO=0)
    module.amdsmi_init = lambda flags: None
    module.amdsmi_shut_down = lambda: None
    module.amdsmi_get_processor_handles = lambda: cards
    module.amdsmi_get_gpu_enumeration_info = lambda card: {
        "hip_id": card.hip,
        "hip_uuid": f"GPU-{card.hip:016x}",
    }
    module.amdsmi_get_gpu_device_bdf = lambda card: f"0000:{cards.index(card):02x}:00.0"
    module.amdsmi_get_gpu_asic_info = lambda card: {"market_name": card.name}
    module.amdsmi_get_power_info = lambda card: {
        "current_socket_power": card.power,
        "average_socket_power": card.average,
    }
    module.amdsmi_get_energy_count = lambda card: {
        "energy_accumulator": card.counts(),
        "counter_resolution": card.resolution_uj,
    }
    module.amdsmi_get_power_cap_info = lambda card: {
        "min_power_cap": 0,
        "max_power_cap": 750_000_000,
        "power_cap": card.cap_uw,
        "default_power_cap": 750_000_000,
    }
    module.amdsmi_set_power_cap = lambda card, sensor, cap: setattr(card, "cap_uw", cap)
    module.amdsmi_get_temp_metric = lambda card, sensor, metric: 45_000
    module.amdsmi_get_clock_info = lambda card, kind: {"max_clk": 2100, "min_clk": 500}
    return module  # type: ignore[no-any-return]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Card]], Any]]:
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ZEUSD_SOCK_PATH", raising=False)
    monkeypatch.delenv("ZEUSD_HOST_PORT", raising=False)

    def loader(cards: list[Card]) -> Any:
        monkeypatch.setitem(sys.modules, "amdsmi", stand_in(cards))
        monkeypatch.delitem(sys.modules, "zeus.device.gpu.amd", raising=False)
        import zeus.device.gpu.amd as amd

        return amd

    yield loader
    sys.modules.pop("zeus.device.gpu.amd", None)


# field failure 62
def test_gpus_come_in_hip_order(load: Callable[[list[Card]], Any]) -> None:
    amd = load([Card(hip, name=f"hip {hip}") for hip in (3, 1, 0, 2)])
    assert [gpu.get_name() for gpu in amd.AMDGPUs().gpus] == ["hip 0", "hip 1", "hip 2", "hip 3"]


# weakness A2
@pytest.mark.parametrize(
    ("environment", "hips"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "3"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, [2, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000002,0"}, [2, 0]),
        ({"HIP_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"HIP_VISIBLE_DEVICES": " 1 , 9 , 2"}, [1]),
    ],
)
def test_visible_devices_are_filtered_as_the_runtimes_do(
    load: Callable[[list[Card]], Any],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    hips: list[int],
) -> None:
    amd = load([Card(hip) for hip in (3, 1, 0, 2)])
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert [gpu.gpu_index for gpu in amd.AMDGPUs().gpus] == hips


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HIP_VISIBLE_DEVICES", "", "hides all 2"),
        ("ROCR_VISIBLE_DEVICES", "-1", "hides all 2"),
        ("HIP_VISIBLE_DEVICES", "0,0", "twice"),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", "neither an index"),
    ],
)
def test_a_list_that_leaves_no_clear_gpus_is_an_init_error(
    load: Callable[[list[Card]], Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    message: str,
) -> None:
    amd = load([Card(0), Card(1)])
    monkeypatch.setenv(name, value)
    with pytest.raises(ZeusGPUInitError, match=message):
        amd.AMDGPUs()


# weakness A1
# field failure 56
# field failure 70
def test_a_frozen_counter_is_not_used_and_the_gpu_still_opens(
    load: Callable[[list[Card]], Any],
) -> None:
    frozen, good = Card(0), Card(1)
    frozen.counts = lambda: 8_152_136
    gpus = load([frozen, good]).AMDGPUs()
    assert not gpus.supports_get_total_energy_consumption(0)
    assert gpus.supports_get_total_energy_consumption(1)
    with pytest.raises(ZeusGPUNotSupportedError, match="GPU 0: the energy counter gave 0 mJ"):
        gpus.get_total_energy_consumption(0)


# field failure 55
def test_a_counter_in_another_unit_than_it_claims_is_not_used(
    load: Callable[[list[Card]], Any],
) -> None:
    card = Card(0)
    card.factor = 15.3
    assert not load([card]).AMDGPUs().supports_get_total_energy_consumption(0)


# weakness A1
def test_a_gpu_without_a_counter_opens_and_says_why(load: Callable[[list[Card]], Any]) -> None:
    card = Card(0)

    def unsupported() -> int:
        raise LibraryError(2)

    card.counts = unsupported
    gpus = load([card]).AMDGPUs()
    assert not gpus.supports_get_total_energy_consumption(0)
    with pytest.raises(ZeusGPUNotSupportedError, match="GPU 0: amdsmi_get_energy_count: status 2"):
        gpus.get_total_energy_consumption(0)


# field failure 70
def test_an_idle_gpu_keeps_its_counter_until_it_stands_still_under_power(
    load: Callable[[list[Card]], Any],
) -> None:
    card = Card(0, power=0)
    card.counts = lambda: 1000
    gpus = load([card]).AMDGPUs()
    assert gpus.supports_get_total_energy_consumption(0)
    assert gpus.get_total_energy_consumption(0) == 15  # 1000 counts of 15.3 uJ
    card.power = 400
    time.sleep(0.6)
    with pytest.raises(ZeusGPUNotSupportedError, match="stood still"):
        gpus.get_total_energy_consumption(0)
    assert not gpus.supports_get_total_energy_consumption(0)


# weakness A2
def test_a_counter_that_wraps_or_restarts_is_carried_on(
    load: Callable[[list[Card]], Any],
) -> None:
    amd = load([Card(0)])
    readings = iter([2**32 - 1000, 1000, 500, 1500])
    amd.amdsmi.amdsmi_get_energy_count = lambda card: {
        "power": next(readings),
        "counter_resolution": 1000.0,
    }
    gpu = amd.AMDGPU(0)
    start = gpu.get_total_energy_consumption()
    # Counts of 1 mJ: 2000 over the 32 bits, then 500 since a reset, then 1000 more.
    assert [gpu.get_total_energy_consumption() - start for _ in range(3)] == [2000, 2500, 3500]


# field failure 57
# field failure 61
def test_a_power_that_is_not_a_number_is_not_a_reading(load: Callable[[list[Card]], Any]) -> None:
    amd = load([Card(0, power=717)])
    gpu = amd.AMDGPU(0)
    assert gpu.get_instant_power_usage() == 717_000
    with pytest.raises(ZeusGPUNotSupportedError, match="GPU 0: no average power"):
        gpu.get_average_power_usage()


# weakness A3
# field failure 58
def test_the_unmetered_die_of_an_mi250_names_the_die_that_reports_for_it(
    load: Callable[[list[Card]], Any],
) -> None:
    # By PCI address: metered, unmetered; their HIP indices are turned round.
    metered, second = Card(1, "Instinct MI250X", 237), Card(0, "Instinct MI250X", "N/A")
    gpus = load([metered, second]).AMDGPUs()
    for read in (gpus.gpus[0].get_instant_power_usage, gpus.gpus[0].get_total_energy_consumption):
        with pytest.raises(ZeusGPUNotSupportedError, match=r"GPU 0: .* GPU 1 \(HIP index\)"):
            read()
    assert not gpus.supports_get_total_energy_consumption(0)
    assert gpus.supports_get_total_energy_consumption(1)


# field failure 60
def test_limits_are_milliwatts_and_temperatures_degrees(
    load: Callable[[list[Card]], Any],
) -> None:
    card = Card(0)
    gpu = load([card]).AMDGPU(0)
    gpu._disable_sys_admin_warning = True
    assert gpu.get_power_management_limit_constraints() == (0, 750_000)
    assert gpu.get_gpu_temperature() == 45
    gpu.set_power_management_limit(300_000)
    assert card.cap_uw == 300_000_000
    gpu.reset_power_management_limit()
    assert card.cap_uw == 750_000_000
    assert gpu.get_supported_graphics_clocks() == [2100, 500]


# field failure 66
def test_unexpected_data_names_the_device_and_the_likely_cause(
    load: Callable[[list[Card]], Any],
) -> None:
    amd = load([Card(0)])

    def broken(card: Card) -> None:
        raise LibraryError(43)

    amd.amdsmi.amdsmi_get_power_info = broken
    with pytest.raises(ZeusGPUUnknownError, match=r"GPU 0: amdsmi_get_power_info: .*older"):
        amd.AMDGPU(0).get_instant_power_usage()


# field failure 64
def test_two_threads_are_never_inside_the_library(load: Callable[[list[Card]], Any]) -> None:
    amd = load([Card(0), Card(1)])
    inside, most = itertools.count(), [0]
    busy: set[int] = set()

    def power(card: Card) -> dict[str, int]:
        me = next(inside)
        busy.add(me)
        most[0] = max(most[0], len(busy))
        time.sleep(0.001)
        busy.discard(me)
        return {"current_socket_power": 1, "average_socket_power": 1}

    amd.amdsmi.amdsmi_get_power_info = power
    gpus = [amd.AMDGPU(0), amd.AMDGPU(1)]
    threads = [
        threading.Thread(target=lambda gpu=gpu: [gpu.get_instant_power_usage() for _ in range(20)])
        for gpu in gpus
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert most[0] == 1


# weakness D6
def test_a_daemon_is_asked_by_the_pci_address_of_the_gpu(
    load: Callable[[list[Card]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(0)
    amd = load([card])
    amd.amdsmi.amdsmi_get_gpu_device_bdf = lambda card: "0000:C1:00.0"
    with Server() as server:
        monkeypatch.setenv("ZEUSD_HOST_PORT", server.key)
        other = {"name": "x", "cumulative_energy_available": True}
        server.discovery["gpus"] = [
            {"id": 0, "pci_address": "0000:a1:00.0", **other},
            {"id": 5, "pci_address": "0000:c1:00.0", **other},
        ]
        (gpu,) = amd.AMDGPUs().gpus
        assert gpu.supports_nonblocking_setters
        gpu.set_power_management_limit(300_000, block=False)
        method, path, _ = server.requests[-1]
        assert method == "POST"
        assert path.startswith("/gpu/set_power_limit?gpu_ids=5&")
        assert card.cap_uw == 750_000_000
        server.discovery["gpus"].pop()
        with pytest.raises(ZeusGPUInitError, match=r"0 GPUs of zeusd .* 0000:c1:00.0"):
            amd.AMDGPUs()


# weakness E6
def test_a_daemon_that_may_not_set_leaves_the_reading_here(
    load: Callable[[list[Card]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    amd = load([Card(0)])
    with Server() as server:
        monkeypatch.setenv("ZEUSD_HOST_PORT", server.key)
        server.discovery["enabled_api_groups"] = ["gpu-read"]
        with pytest.warns(UserWarning, match="set without zeusd"):
            (gpu,) = amd.AMDGPUs().gpus
    assert gpu.get_instant_power_usage() == 100_000
    with pytest.raises(ZeusGPUInitError, match="Cannot reach Zeusd"):
        amd.AMDGPUs()


# field failure 65
@pytest.mark.parametrize("error", ["ImportError", "OSError", "KeyError", "AttributeError"])
def test_an_import_that_prints_and_fails_is_quiet_and_means_no_gpus(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    (tmp_path / "amdsmi.py").write_text(f"print('noise')\nraise {error}('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.delitem(sys.modules, "zeus.device.gpu.amd", raising=False)
    import zeus.device.gpu.amd as amd

    assert not amd.amdsmi_is_available()
    assert capsys.readouterr().out == ""
    with pytest.raises(RuntimeError, match="broken"):
        amd.amdsmi.amdsmi_init()
    sys.modules.pop("zeus.device.gpu.amd", None)
