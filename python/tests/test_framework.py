"""What is asked of frameworks, which stand here as modules of the same names and functions."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from zeus.utils import framework


@pytest.fixture(autouse=True)
def no_framework(monkeypatch):
    """Start without any framework, whether one is installed or not."""
    for name in ("torch", "jax", "cupy", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(framework, "MODULE_CACHE", {})
    monkeypatch.setattr(framework, "_cuda_driver", lambda: None)
    for ask in (
        framework.torch_is_available,
        framework.jax_is_available,
        framework.cupy_is_available,
    ):
        ask.cache_clear()
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: None)


def install(monkeypatch, name: str, **attributes: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def install_torch(monkeypatch, *, cuda=True, initialized=True, ranks=0, rank=0, backend="gloo"):
    """PyTorch with its names; `all_reduce` adds up as many equal tensors as there are ranks."""
    synchronized, made = [], []

    class Tensor(list):
        def cpu(self):
            return self

        def tolist(self):
            return list(self)

    def tensor(values, dtype, device):
        made.append((dtype, device))
        return Tensor(float(value) for value in values)

    def all_reduce(tensor, op):
        tensor[:] = [value * ranks if op == "SUM" else value for value in tensor]

    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: ranks > 0,
        get_rank=lambda: rank,
        get_world_size=lambda: ranks,
        get_backend=lambda: backend,
        all_reduce=all_reduce,
        ReduceOp=SimpleNamespace(SUM="SUM", MAX="MAX"),
    )
    gpu = SimpleNamespace(
        is_available=lambda: cuda,
        is_initialized=lambda: initialized,
        synchronize=synchronized.append,
    )
    torch = install(
        monkeypatch,
        "torch",
        cuda=gpu,
        distributed=distributed,
        tensor=tensor,
        float64="float64",
    )
    torch.synchronized, torch.made = synchronized, made  # type: ignore[attr-defined]
    return torch


def install_jax(monkeypatch, *, gpus=0, devices=1, process=0, processes=1, initialized=True):
    """JAX with its names, whose `devices("gpu")` raises where there is none, as the real one."""
    waited = []

    class Value:
        def __init__(self, device):
            self.device = device

        def __add__(self, _other):
            return self

        def block_until_ready(self):
            waited.append(self.device)

    def of_backend(backend):
        if backend == "gpu" and not gpus:
            raise RuntimeError("Unknown backend: 'gpu' requested")
        return [f"{backend}:{i}" for i in range(gpus if backend == "gpu" else 1)]

    jax = install(
        monkeypatch,
        "jax",
        devices=of_backend,
        local_devices=lambda backend: of_backend(backend),
        device_put=lambda _value, device: Value(device),
        device_count=lambda: devices,
        process_index=lambda: process,
        process_count=lambda: processes,
    )
    install(monkeypatch, "jax._src.xla_bridge", backends_are_initialized=lambda: initialized)
    jax.waited = waited  # type: ignore[attr-defined]
    return jax


def install_cuda(monkeypatch, contexts: dict[int, bool], status: int = 0) -> None:
    """The CUDA driver's library, in which a process has a primary context on some devices."""

    def state(device, _flags, active):
        active._obj.value = contexts.get(device, False)
        return status

    driver = SimpleNamespace(cuDevicePrimaryCtxGetState=state)
    monkeypatch.setattr(framework, "_cuda_driver", lambda: driver)


# weakness E8, field failure 171
def test_without_any_framework_there_is_nothing_to_wait_for():
    for name in ("torch", "jax", "cupy"):
        framework.sync_execution([0, 1], sync_with=name)


def test_an_unknown_framework_is_an_error():
    with pytest.raises(RuntimeError, match=r"No framework is available\."):
        framework.sync_execution([0], sync_with="mxnet")  # type: ignore[arg-type]


def test_every_gpu_with_a_context_is_waited_for(monkeypatch):
    torch = install_torch(monkeypatch)
    framework.sync_execution([2, 0])
    assert torch.synchronized == [2, 0]


# weakness E8
def test_torch_that_has_not_touched_a_gpu_is_left_alone(monkeypatch):
    torch = install_torch(monkeypatch, initialized=False)
    framework.sync_execution([0, 1])
    assert torch.synchronized == []


# weakness E8
@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_gpus_without_a_context_are_left_alone(monkeypatch, name):
    install_cuda(monkeypatch, {1: True})
    waited: list[int] = []
    if name == "torch":
        waited = install_torch(monkeypatch).synchronized
    else:
        device = lambda i: SimpleNamespace(synchronize=lambda: waited.append(i))  # noqa: E731
        install(monkeypatch, "cupy", cuda=SimpleNamespace(Device=device))
    framework.sync_execution([0, 1, 2], sync_with=name)
    assert waited == [1]


def test_a_driver_that_does_not_tell_makes_no_gpu_be_missed(monkeypatch):
    install_cuda(monkeypatch, {}, status=999)
    torch = install_torch(monkeypatch)
    framework.sync_execution([0])
    assert torch.synchronized == [0]


def test_a_driver_that_nobody_has_initialized_has_no_contexts(monkeypatch):
    install_cuda(monkeypatch, {}, status=3)
    torch = install_torch(monkeypatch)
    framework.sync_execution([0])
    assert torch.synchronized == []


def test_jax_waits_for_its_gpus_and_its_processor(monkeypatch):
    jax = install_jax(monkeypatch, gpus=2)
    framework.sync_execution([1], sync_with="jax")
    assert jax.waited == ["gpu:1", "cpu:0"]


# weakness U1
def test_jax_without_a_gpu_waits_for_its_processor(monkeypatch):
    jax = install_jax(monkeypatch)
    framework.sync_execution([], sync_with="jax")
    framework.sync_execution([0], sync_with="jax")
    assert jax.waited == ["cpu:0", "cpu:0"]


# weakness E8
def test_jax_that_has_not_opened_its_devices_is_left_alone(monkeypatch):
    jax = install_jax(monkeypatch, gpus=2, initialized=False)
    framework.sync_execution([0, 1], sync_with="jax")
    assert jax.waited == []


def test_the_wrong_framework_is_an_error_where_the_right_one_is_in_use(monkeypatch):
    install_jax(monkeypatch, gpus=1)
    with pytest.raises(RuntimeError, match=r"Failed to import Pytorch: .* synchronize with jax"):
        framework.sync_execution([0])


def test_the_wrong_framework_is_a_warning_where_it_is_installed(monkeypatch):
    install_jax(monkeypatch, gpus=1)
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: object())
    with pytest.warns(UserWarning, match="nothing waits for the GPUs; synchronize with jax"):
        framework.sync_execution([0])


# weakness U1, field failure 149
@pytest.mark.parametrize("with_jax", [False, True])
def test_one_process_without_torch_is_not_distributed(monkeypatch, with_jax):
    if with_jax:
        install_jax(monkeypatch)
    numbers = [1, 2]
    assert framework.get_rank() == 0
    assert framework.get_world_size() == 1
    assert framework.is_distributed() is False
    assert framework.all_reduce(numbers, "sum") is numbers


def test_jax_tells_its_processes(monkeypatch):
    install_jax(monkeypatch, devices=8, process=1, processes=2)
    assert (framework.get_rank(), framework.get_world_size()) == (1, 2)
    assert framework.is_distributed() is True
    with pytest.raises(NotImplementedError, match="PyTorch"):
        framework.all_reduce([1.0], "max")


def test_torch_goes_before_jax(monkeypatch):
    install_jax(monkeypatch, devices=8, process=1, processes=2)
    install_torch(monkeypatch)
    assert (framework.get_rank(), framework.get_world_size()) == (0, 1)
    assert framework.is_distributed() is False
    assert framework.all_reduce([1.0], "max") == [1.0]


# weakness T1
@pytest.mark.parametrize(("backend", "device"), [("gloo", "cpu"), ("nccl", "cuda")])
def test_ranks_reduce_in_double_precision_where_their_backend_can(monkeypatch, backend, device):
    torch = install_torch(monkeypatch, ranks=4, rank=3, backend=backend)
    # 2^24 + 1 has no single-precision value.
    assert framework.all_reduce([16777217, 0.5], "sum") == [67108868.0, 2.0]
    assert framework.all_reduce([16777217], "max") == [16777217.0]
    assert torch.made == [("float64", device)] * 2
    assert (framework.get_rank(), framework.get_world_size()) == (3, 4)
    assert framework.is_distributed() is True


def test_another_operation_is_an_error():
    with pytest.raises(ValueError, match="'mean'"):
        framework.all_reduce([1.0], "mean")  # type: ignore[arg-type]


def test_a_framework_that_is_not_installed_is_not_available(monkeypatch):
    for name, ask in (
        ("torch", framework.torch_is_available),
        ("jax", framework.jax_is_available),
        ("cupy", framework.cupy_is_available),
    ):
        monkeypatch.setitem(sys.modules, name, None)
        assert ask() is False
        with pytest.raises(RuntimeError, match="Failed to import"):
            ask(ensure_available=True)


# weakness U1
def test_a_framework_without_a_gpu_is_available_unless_it_must_have_one(monkeypatch):
    install_torch(monkeypatch, cuda=False)
    install_jax(monkeypatch)
    for ask in (framework.torch_is_available, framework.jax_is_available):
        assert ask(ensure_cuda=False) is True
        with pytest.raises(RuntimeError, match="GPU"):
            ask()
    assert set(framework.MODULE_CACHE) == {"torch", "jax"}


def test_a_framework_with_a_gpu_is_available(monkeypatch):
    install_torch(monkeypatch)
    install_jax(monkeypatch, gpus=1)
    install(monkeypatch, "cupy")
    assert framework.torch_is_available() and framework.jax_is_available()
    assert framework.cupy_is_available(ensure_available=True)


# weakness U1
def test_answers_to_different_questions_are_kept_side_by_side(monkeypatch):
    install_torch(monkeypatch)
    for _ in range(3):
        framework.torch_is_available(ensure_cuda=False)
        framework.torch_is_available(ensure_available=True)
    assert framework.torch_is_available.cache_info().misses == 2
