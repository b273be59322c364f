"""`zeus.utils.framework` with the frameworks themselves, which find no GPU here.

The tests with stand-ins show what is done with GPUs; these, that the names which are used exist and
behave as the stand-ins do.
"""

from __future__ import annotations

import pytest

from zeus.monitor import ZeusMonitor
from zeus.utils import framework

LINE = "import json; "


@pytest.fixture(autouse=True)
def asked_anew():
    """What is available is asked once in a process."""
    yield
    framework.torch_is_available.cache_clear()
    framework.jax_is_available.cache_clear()


# field failure 149
def test_a_process_without_any_framework_is_alone_and_imports_none(python):
    code = (
        "import json, sys\n"
        "from zeus.utils.framework import *\n"
        "from zeus.utils import framework as f\n"
        "f.sync_execution([0])\n"
        "print(json.dumps([f.is_distributed(), f.get_rank(), f.get_world_size(),"
        " f.all_reduce([1.5], 'sum'), [m for m in ('torch', 'jax', 'cupy') if m in sys.modules]]))"
    )
    assert python(code) == [False, 0, 1, [1.5], []]


# weakness U1
def test_jax_on_cpus_without_torch_is_one_process(python):
    code = (
        "import json, jax, sys\n"
        "from zeus.utils import framework as f\n"
        "asked = [f.is_distributed(), f.get_rank(), f.get_world_size(), f.all_reduce([2], 'max')]\n"
        "print(json.dumps([*asked, f.jax_is_available(ensure_cuda=False), 'torch' in sys.modules]))"
    )
    assert python(code) == [False, 0, 1, [2], True, False]


# weakness U1
def test_many_devices_of_jax_in_one_process_are_no_ranks_but_cannot_be_reduced(python):
    code = (
        "import json, jax\n"
        "from zeus.utils import framework as f\n"
        "try: f.all_reduce([1], 'sum'); said = ''\n"
        "except NotImplementedError as error: said = str(error)\n"
        "print(json.dumps([f.is_distributed(), f.get_world_size(), 'PyTorch only' in said]))"
    )
    flags = "--xla_force_host_platform_device_count=4"
    assert python(code, XLA_FLAGS=flags) == [True, 1, True]


# weakness E8
def test_waiting_opens_neither_cuda_nor_the_devices_of_jax(python):
    code = (
        "import json, torch, jax\n"
        "from jax._src import xla_bridge\n"
        "from zeus.utils import framework as f\n"
        "f.sync_execution([0], sync_with='torch')\n"
        "f.sync_execution([0], sync_with='jax')\n"
        "before = xla_bridge.backends_are_initialized()\n"
        "jax.devices()\n"
        "after = xla_bridge.backends_are_initialized()\n"
        "print(json.dumps([torch.cuda.is_initialized(), before, after]))"
    )
    assert python(code) == [False, False, True]


def test_waiting_for_jax_ends_after_its_work():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def work(x):
        return jax.lax.fori_loop(0, 40, lambda _, y: y @ x, x)

    work(jnp.eye(300)).block_until_ready()
    result = work(jnp.eye(300))
    framework.sync_execution([0], sync_with="jax")
    assert result.is_ready()


def test_frameworks_without_gpus_say_so_where_one_is_needed():
    assert framework.torch_is_available(ensure_cuda=False)
    assert framework.jax_is_available(ensure_cuda=False)
    with pytest.raises(RuntimeError, match="PyTorch was imported, and finds no"):
        framework.torch_is_available()
    with pytest.raises(RuntimeError, match="JAX was imported, and finds no"):
        framework.jax_is_available()


# weakness E8
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_window_needs_no_gpu_of_the_framework(simulated, name):
    simulated("constant")
    __import__(name)
    monitor = ZeusMonitor(sync_execution_with=name)
    with monitor.window() as window:
        pass
    assert window.measurement.time < 5


def test_lists_are_reduced_over_ranks_in_double_precision(torchrun):
    script = """
import json, torch.distributed as dist
from zeus.utils import framework as f
dist.init_process_group("gloo")
rank = f.get_rank()
result = {
    "sum": f.all_reduce([16777217.0 + rank, 0.5], "sum"),
    "max": f.all_reduce([rank, -rank], "max"),
    "ranks": [f.is_distributed(), f.get_world_size(), rank],
}
print(json.dumps(result), flush=True)
dist.destroy_process_group()
"""
    results = sorted(torchrun(2, script, scenario="constant"), key=lambda r: r["ranks"][2])
    assert [r["ranks"] for r in results] == [[True, 2, 0], [True, 2, 1]]
    for result in results:
        # 2^24 + 1 is the first integer that single precision does not have.
        assert result["sum"] == [33554435, 1]
        assert result["max"] == [1, 0]


SEEN = """
import json, os, sys, torch, zeus.device.gpu
raw = torch.cuda._raw_device_uuid_nvml()
forms = [None, "3,1", "2", "0,2,-1,1", "", "0,0", f"{raw[2]},{raw[0]}", f"{raw[3][:12]}"]
answers = []
for form in forms:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if form is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = form
    seen = torch.cuda._parse_visible_devices()
    if seen and isinstance(seen[0], str):
        seen = torch.cuda._transform_uuid_to_ordinals(seen, raw)
    zeus.device.gpu._gpus = None
    try:
        ours = [gpu.handle.id for gpu in zeus.device.gpu.get_gpus().gpus]
    except zeus.device.gpu.ZeusGPUInitError:
        ours = []
    count = torch.cuda._device_count_nvml()
    answers.append([form, [raw[i] for i in seen if i < len(raw)], count, ours])
print(json.dumps(answers))
"""


# field failure 158
def test_gpus_are_those_that_torch_would_see_and_in_its_order(python, programs):
    """PyTorch asks NVML which devices there are, here the simulated one, and maps them itself."""
    answers = python(SEEN, programs / "zeus", "sim", "run", "a100x4", "--")
    assert len(answers) == 8 and len(answers[0][3]) == 4
    for form, seen, count, ours in answers:
        assert len(seen) == count, form
        assert ours == seen, form
