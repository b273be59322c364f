"""Errors and callbacks."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest

import zeus.device.exception as device_exception
from zeus.callback import Callback, CallbackSet
from zeus.exception import ZeusBaseError

HOOKS = {
    "on_train_begin": (),
    "on_train_end": (),
    "on_epoch_begin": (),
    "on_epoch_end": (),
    "on_step_begin": (),
    "on_step_end": (),
    "on_evaluate": (0.5,),
    "on_instruction_begin": ("forward",),
    "on_instruction_end": ("forward",),
}


def test_an_error_tells_its_message():
    error = ZeusBaseError("cannot")
    assert (error.message, str(error)) == ("cannot", "cannot")


def test_errors_of_the_daemon_are_errors_of_gpus_as_upstreams():
    assert issubclass(device_exception.ZeusdError, device_exception.ZeusBaseGPUError)
    for name in ("ZeusBaseGPUError", "ZeusBaseCPUError", "ZeusBaseSoCError"):
        assert getattr(device_exception, name).__bases__ == (ZeusBaseError,)


def test_an_error_of_the_daemon_tells_its_status_and_survives_pickling():
    error = device_exception.ZeusdError("refused", 403)
    assert error.status == 403
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.status) == ("refused", 403)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_set_of_callbacks_calls_each_in_order(hook):
    called = []

    class Named(Callback):
        def __init__(self, name):
            setattr(self, hook, lambda *args: called.append((name, args)))

    callbacks = [Named("first"), Callback(), Named("second")]
    both = CallbackSet(callbacks)
    assert both.callbacks is callbacks
    getattr(both, hook)(*HOOKS[hook])
    assert called == [("first", HOOKS[hook]), ("second", HOOKS[hook])]


# field failure 175
@pytest.mark.parametrize(
    "module",
    [
        "zeus.callback",
        "zeus.device.common",
        "zeus.device.exception",
        "zeus.monitor.power_streaming",
        "zeus.utils.env",
        "zeus.utils.framework",
        "zeus.utils.lat_lon",
        "zeus.utils.logging",
        "zeus.utils.metric",
        "zeus.utils.multiprocessing",
        "zeus.utils.zeusd",
    ],
)
def test_importing_a_module_imports_no_other_package(module):
    code = (
        f"import sys, {module}; heavy = {{'httpx', 'requests', 'pydantic', 'pandas', 'numpy', "
        "'torch', 'jax', 'cupy', 'sklearn', 'multiprocessing', 'asyncio', 'rich'}; "
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_core() -> None:
    import zeus
    from zeus import _core

    assert zeus.__version__ == _core.version


def test_upstreams_distribution_in_the_same_folder_is_said(tmp_path: pathlib.Path) -> None:
    import zeus

    shutil.copytree(pathlib.Path(zeus.__file__).parent, tmp_path / "zeus")
    command = [sys.executable, "-P", "-c", "import zeus"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for name, said in (("zeus_cpp-0.1.0.dist-info", False), ("zeus-0.16.0.dist-info", True)):
        (tmp_path / name).mkdir()
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert ("pip uninstall zeus zeus-cpp" in done.stderr) is said
