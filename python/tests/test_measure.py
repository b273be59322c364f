"""`@zeus.measure`: every call of a function."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest
from simulated import PACKAGE

import zeus
from zeus.monitor import ZeusMonitor


@pytest.fixture
def monitor(simulated):
    simulated("constant")
    return ZeusMonitor()


def test_every_call_is_measured_also_one_that_raises(monitor):
    seen = []

    @zeus.measure(monitor=monitor, callback=seen.append)
    def work(seconds: float, fail: bool = False) -> str:
        """Works."""
        time.sleep(seconds)
        if fail:
            raise KeyError("x")
        return "done"

    assert work(0.15) == "done"
    with pytest.raises(KeyError):
        work(0.2, fail=True)
    assert [m.time > t for m, t in zip(work.measurements, (0.149, 0.199), strict=True)] == [
        True
    ] * 2
    assert seen == list(work.measurements)
    assert work.__name__ == "work" and work.__doc__ == "Works."
    assert work.measurements[0].span.name.endswith("work")


def test_a_name_can_be_given_and_only_the_last_calls_are_kept(monitor):
    @zeus.measure(monitor=monitor, name="step", keep=2)
    def work(i):
        time.sleep(0.11)
        return i

    assert [work(i) for i in range(3)] == [0, 1, 2]
    assert len(work.measurements) == 2
    assert work.measurements[0].span.name == "step"


def test_a_plain_decorator_takes_a_monitor_of_the_process(simulated, monkeypatch):
    simulated("constant")
    monkeypatch.setattr("zeus._measure._monitor", None)

    @zeus.measure
    def work():
        time.sleep(0.2)

    work()
    work()
    assert [m.gpu_energy[0] > 0 for m in work.measurements] == [True, True]


def test_a_coroutine_is_measured_until_it_has_been_awaited(monitor):
    @zeus.measure(monitor=monitor)
    async def work(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def both():
        return await asyncio.gather(work(0.15), work(0.3))

    assert asyncio.run(both()) == [0.15, 0.3]
    assert [m.time >= t for m, t in zip(work.measurements, (0.149, 0.299), strict=True)] == [
        True,
        True,
    ]


def test_a_generator_is_measured_from_its_first_item_to_its_end(monitor):
    @zeus.measure(monitor=monitor)
    def items():
        got = yield 1
        time.sleep(0.15)
        yield got
        return "end"

    running = items()
    assert not items.measurements
    assert next(running) == 1
    assert running.send("sent") == "sent"
    with pytest.raises(StopIteration, match="end"):
        next(running)
    (measured,) = items.measurements
    assert measured.time >= 0.149

    unfinished = items()
    next(unfinished)
    time.sleep(0.12)
    unfinished.close()
    assert items.measurements[1].time >= 0.119


def test_methods_and_threads_are_measured(monitor):
    class Model:
        @zeus.measure(monitor=monitor)
        def step(self, seconds):
            time.sleep(seconds)
            return self

    model = Model()
    threads = [threading.Thread(target=model.step, args=(0.15,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.step(0.11) is model
    assert len(Model.step.measurements) == 9


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="its methods"):
        zeus.measure(dict)

    async def items():
        yield 1

    with pytest.raises(TypeError, match="asynchronous generator"):
        zeus.measure(items)


def test_importing_zeus_loads_nothing_and_other_names_are_unknown():
    code = (
        "import sys, zeus; assert not [m for m in sys.modules if m.startswith('zeus.')];"
        "assert callable(zeus.measure);"
        "assert not {'numpy', 'pandas', 'asyncio', 'multiprocessing', 'IPython', 'httpx'}"
        " & set(sys.modules)"
    )
    environment = {"PYTHONPATH": str(PACKAGE)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    with pytest.raises(AttributeError, match="mesure"):
        _ = zeus.mesure
