"""NVIDIA's own Python binding runs on the simulated library unchanged."""

READ_ALL = """
import json, time, pynvml as n
n.nvmlInit()
out = {"driver": n.nvmlSystemGetDriverVersion(), "count": n.nvmlDeviceGetCount(), "gpus": []}
for i in range(out["count"]):
    h = n.nvmlDeviceGetHandleByIndex(i)
    uuid = n.nvmlDeviceGetUUID(h)
    assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)) == i
    pci = n.nvmlDeviceGetPciInfo(h)
    assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(pci.busId)) == i
    fields = n.nvmlDeviceGetFieldValues(
        h, [n.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, n.NVML_FI_DEV_POWER_INSTANT])
    out["gpus"].append({
        "uuid": uuid, "name": n.nvmlDeviceGetName(h), "pci": pci.busId,
        "energy": n.nvmlDeviceGetTotalEnergyConsumption(h),
        "field_energy": fields[0].value.ullVal, "field_return": fields[0].nvmlReturn,
        "instant": fields[1].value.uiVal, "power": n.nvmlDeviceGetPowerUsage(h),
        "limit": n.nvmlDeviceGetPowerManagementLimit(h),
        "range": n.nvmlDeviceGetPowerManagementLimitConstraints(h),
        "temperature": n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
        "sm": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
        "utilization": n.nvmlDeviceGetUtilizationRates(h).gpu,
        "memory": n.nvmlDeviceGetMemoryInfo(h).total,
        "throttle": n.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        "architecture": n.nvmlDeviceGetArchitecture(h),
        "mig": n.nvmlDeviceGetMigMode(h) if hasattr(n, "nvmlDeviceGetMigMode") else None,
    })
n.nvmlShutdown()
try:
    n.nvmlDeviceGetCount()
    out["after"] = "answered"
except n.NVMLError as e:
    out["after"] = e.value
print(json.dumps(out))
"""


def test_reads_every_value_of_eight_gpus(on_machine):
    node = on_machine("h100x8", READ_ALL)
    assert node["count"] == 8
    assert len({g["uuid"] for g in node["gpus"]}) == 8
    assert len({g["pci"] for g in node["gpus"]}) == 8
    assert node["after"] == 1  # NVML_ERROR_UNINITIALIZED
    for g in node["gpus"]:
        assert "H100" in g["name"]
        assert g["field_return"] == 0
        assert abs(g["field_energy"] - g["energy"]) < 700_000  # One second at full power, in mJ.
        assert g["range"][0] <= g["limit"] <= g["range"][1] <= 700_000
        assert 0 < g["instant"] <= 700_000 and 0 < g["power"] <= 700_000
        assert 0 < g["temperature"] < 100 and g["sm"] > 0 and 0 <= g["utilization"] <= 100


def test_counts_exactly_a_hundred_watts(on_machine):
    source = """
import json, time, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)

def tick():
    # The instant at which the counter is seen to move.
    last = n.nvmlDeviceGetTotalEnergyConsumption(h)
    while True:
        now = n.nvmlDeviceGetTotalEnergyConsumption(h)
        if now != last:
            return time.monotonic(), now

(t0, e0) = tick()
time.sleep(2)
(t1, e1) = tick()
print(json.dumps((e1 - e0) / 1000 / (t1 - t0)))
"""
    assert abs(on_machine("constant", source) - 100) < 1


def test_refuses_a_limit_out_of_range(on_machine):
    source = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
low, high = n.nvmlDeviceGetPowerManagementLimitConstraints(h)
out = []
for limit in (low - 1, low, high + 1):
    try:
        n.nvmlDeviceSetPowerManagementLimit(h, limit)
        out.append(n.nvmlDeviceGetPowerManagementLimit(h))
    except n.NVMLError as e:
        out.append(-e.value)
print(json.dumps([out, low]))
"""
    import os

    out, low = on_machine("h100x8", source)
    if os.geteuid() == 0:
        assert out == [-2, low, -2]  # NVML_ERROR_INVALID_ARGUMENT
    else:
        assert out == [-4, -4, -4]  # NVML_ERROR_NO_PERMISSION
