"""The small helpers."""

from __future__ import annotations

import asyncio
import builtins
import logging
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from zeus.utils import lat_lon
from zeus.utils.async_utils import create_task
from zeus.utils.env import get_env
from zeus.utils.logging import FileAndConsole
from zeus.utils.lr_scaler import LinearScaler, SquareRootScaler
from zeus.utils.metric import avg_power, energy, zeus_cost
from zeus.utils.multiprocessing import warn_if_global_in_subprocess


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("False", False)])
def test_a_boolean_variable_is_read_in_any_case(monkeypatch, text, value):
    monkeypatch.setenv("ZEUS_TEST_FLAG", text)
    assert get_env("ZEUS_TEST_FLAG", bool) is value


def test_a_boolean_variable_that_is_neither_is_named(monkeypatch):
    monkeypatch.setenv("ZEUS_TEST_FLAG", "1")
    with pytest.raises(ValueError, match="ZEUS_TEST_FLAG is '1'"):
        get_env("ZEUS_TEST_FLAG", bool)


def test_a_variable_becomes_its_type_and_a_missing_one_its_default(monkeypatch):
    monkeypatch.setenv("ZEUS_TEST_NUMBER", "2.5")
    monkeypatch.delenv("ZEUS_TEST_NONE", raising=False)
    assert get_env("ZEUS_TEST_NUMBER", float) == 2.5
    assert get_env("ZEUS_TEST_NONE", int, default=0) == 0
    with pytest.raises(ValueError, match="ZEUS_TEST_NONE is not set"):
        get_env("ZEUS_TEST_NONE", str)


def test_what_is_written_reaches_the_file_and_the_console(tmp_path, capsys):
    both = FileAndConsole(tmp_path / "log")
    both.write("one\n")
    both.write("two")
    assert (tmp_path / "log").read_text() == "one\ntwo"
    assert capsys.readouterr().out == "one\ntwo"
    both.file.close()


def test_learning_rates_scale_linearly_and_by_the_square_root():
    assert LinearScaler(bs=32, lr=0.1).compute_lr(128) == pytest.approx(0.4)
    assert SquareRootScaler(bs=32, lr=0.1).compute_lr(128) == pytest.approx(0.2)


def test_the_cost_is_energy_at_eta_one_and_time_at_eta_zero():
    assert zeus_cost(100.0, 10.0, 1.0, 250) == 100.0
    assert zeus_cost(100.0, 10.0, 0.0, 250) == 2500.0
    assert zeus_cost(100.0, 10.0, 0.5, 250) == 1300.0


@pytest.fixture
def power_log(tmp_path):
    """100 W, 100 W, 300 W, 300 W, a second apart, and a row that its writer did not finish."""
    path = tmp_path / "power.csv"
    path.write_text(
        textwrap.dedent("""\
            Time,Power
            2022-08-25 15:17:57.061204,100000
            2022-08-25 15:17:58.061204,100000
            2022-08-25 15:17:59.061204,300000
            2022-08-25 15:18:00.061204,300000
            2022-08-25 15:18:01.06,1
            """)
    )
    return path


# The values are what zeus 0.16.0 gives for the same file.
# weakness U3
@pytest.mark.parametrize(
    ("window", "energy_j"),
    [
        ({}, 600.0),
        ({"start": 1}, 500.0),
        ({"end": 2}, 300.0),
        ({"start": 1, "end": 2}, 200.0),
        ({"start": 0.5, "end": 2.5}, 200.0),
        ({"start": -1}, 300.0),
        ({"end": -1}, 300.0),
    ],
)
def test_a_log_of_power_is_integrated_between_its_rows(power_log, window, energy_j):
    assert energy(power_log, **window) == pytest.approx(energy_j)


# As zeus 0.16.0, but for the negative limits, which it adds to the first row.
@pytest.mark.parametrize(
    ("window", "power_w"),
    [({}, 200.0), ({"start": 1}, 250.0), ({"end": 2}, 150.0), ({"start": -1}, 300.0)],
)
def test_the_mean_power_of_a_log_is_its_energy_by_its_time(power_log, window, power_w):
    assert avg_power(power_log, **window) == pytest.approx(power_w)


def test_a_window_without_two_rows_is_an_error_not_zero(power_log):
    with pytest.raises(ValueError, match="1 of its 4 rows"):
        energy(power_log, start=0, end=0)


def test_a_log_without_its_columns_is_an_error_that_names_them(tmp_path):
    (tmp_path / "x.csv").write_text("time,watts\n1,2\n2,3\n3,4\n")
    with pytest.raises(ValueError, match=r"Time .* and Power"):
        energy(tmp_path / "x.csv")


def test_times_in_seconds_are_understood(tmp_path):
    (tmp_path / "x.csv").write_text("Time,Power\n10,1000\n12,3000\n14,0\n")
    assert energy(tmp_path / "x.csv") == pytest.approx(4.0)


def test_a_task_that_fails_is_logged(caplog):
    async def fail():
        raise RuntimeError("no luck")

    async def main():
        task = create_task(fail(), logging.getLogger("ours"))
        await asyncio.wait([task])

    asyncio.run(main())
    (record,) = caplog.records
    assert record.name == "ours" and record.exc_info[1].args == ("no luck",)


def test_a_task_that_succeeds_or_is_cancelled_is_not_logged(caplog):
    async def main():
        assert await create_task(asyncio.sleep(0, "done")) == "done"
        task = create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert not caplog.records


class Monitor:
    def __init__(self):
        warn_if_global_in_subprocess(self)


def run_as_module(name: str, filename: str) -> None:
    namespace = {"Monitor": Monitor, "__name__": name}
    exec(compile("monitor = Monitor()", filename, "exec"), namespace)


def test_a_global_of_a_spawned_main_module_is_warned_about():
    with pytest.warns(UserWarning, match=r"Monitor was instantiated during module import in a"):
        run_as_module("__mp_main__", "train.py")


@pytest.mark.parametrize(
    ("name", "filename"), [("__main__", "train.py"), ("__mp_main__", "<string>")]
)
def test_other_globals_are_not_warned_about(name, filename, recwarn):
    run_as_module(name, filename)
    assert not recwarn.list


@pytest.fixture
def ipinfo(monkeypatch):
    """A server in place of ipinfo.io, whose answer the test sets."""

    class Handler(BaseHTTPRequestHandler):
        body = b'{"loc": "42.2776,-83.7409"}'
        silence = threading.Event()

        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.body is None:
                self.silence.wait(20)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.body)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setattr(lat_lon, "_URL", f"http://127.0.0.1:{server.server_address[1]}/json")
    yield Handler
    Handler.silence.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["requests", "the standard library"])
def transport(request, monkeypatch):
    if request.param != "requests":
        monkeypatch.setitem(sys.modules, "requests", None)
    else:
        pytest.importorskip("requests")


def test_the_location_is_the_latitude_and_longitude(ipinfo, transport):
    assert lat_lon.get_ip_lat_long() == (42.2776, -83.7409)


# weakness C5
def test_a_server_that_never_answers_is_an_error_after_a_while(ipinfo, transport, monkeypatch):
    ipinfo.body = None
    monkeypatch.setattr(lat_lon, "_TIMEOUT_S", 0.2)
    with pytest.raises(OSError):
        lat_lon.get_ip_lat_long()


@pytest.mark.parametrize("body", [b"{}", b'{"loc": "here"}', b"[]", b"null"])
def test_an_answer_without_a_location_says_what_to_do(ipinfo, transport, body):
    ipinfo.body = body
    with pytest.raises(ValueError, match="give the latitude and longitude yourself"):
        lat_lon.get_ip_lat_long()


def test_pydantic_1_is_there_whichever_pydantic_is_installed():
    pytest.importorskip("pydantic")
    from zeus.utils import pydantic_v1

    class Model(pydantic_v1.BaseModel):
        x: int

        @pydantic_v1.validator("x")
        def positive(cls, value):
            assert value > 0
            return value

    assert Model.parse_obj({"x": "3"}).dict() == {"x": 3}


def test_without_pydantic_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "pydantic":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "zeus.utils.pydantic_v1", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"zeus-cpp\[compat\]"):
        import zeus.utils.pydantic_v1  # noqa: F401
