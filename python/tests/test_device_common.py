"""The privilege test and the old names of methods."""

from __future__ import annotations

import abc
import ctypes
import subprocess
import sys
import warnings

import pytest

from zeus.device import _capget, common
from zeus.device.common import (
    DeprecatedAliasABCMeta,
    _make_deprecated_method,
    deprecated_alias,
    has_sys_admin,
)


@pytest.fixture(autouse=True)
def asked_anew():
    has_sys_admin.cache_clear()
    yield
    has_sys_admin.cache_clear()


def effective_mask() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))


def test_the_privilege_is_bit_21_of_the_effective_mask(tmp_path, monkeypatch):
    ask = common._effective_capabilities
    for mask, expected in (("0000000000200000", True), ("ffffffffffdfffff", False)):
        status = tmp_path / "status"
        status.write_text(f"Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{mask}\n")
        monkeypatch.setattr(common, "_effective_capabilities", lambda _, s=status: ask(str(s)))
        has_sys_admin.cache_clear()
        assert has_sys_admin() is expected


# weakness R7
def test_the_kernel_tells_the_same_as_proc():
    assert _capget._capget() == effective_mask()


# weakness R7
def test_asking_the_kernel_writes_no_more_than_it_was_given():
    code = """
import ctypes
from zeus.device import _capget
spare = (_capget._CapData * 4)()
for item in spare:
    item.effective = item.permitted = item.inheritable = 0xA5A5A5A5
header = _capget._CapHeader(_capget._CAPABILITY_VERSION_3, 0)
assert ctypes.CDLL("libc.so.6").capget(ctypes.byref(header), spare) == 0
assert [item.effective for item in spare[2:]] == [0xA5A5A5A5] * 2
assert ctypes.sizeof(_capget._CapData) == 12
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_proc_the_kernel_is_asked(monkeypatch):
    def missing(_path):
        raise FileNotFoundError("/proc is not mounted")

    monkeypatch.setattr(common, "_effective_capabilities", missing)
    assert has_sys_admin() is bool(effective_mask() >> 21 & 1)


def test_a_status_without_the_line_leads_to_the_kernel_too(tmp_path, monkeypatch):
    ask = common._effective_capabilities
    (tmp_path / "status").write_text("Name:\tx\n")
    monkeypatch.setattr(common, "_effective_capabilities", lambda _: ask(str(tmp_path / "status")))
    assert has_sys_admin() is bool(effective_mask() >> 21 & 1)


def test_without_proc_and_libc_there_is_no_privilege(monkeypatch):
    def missing(*_args, **_kwargs):
        raise OSError("no such library")

    monkeypatch.setattr(common, "_effective_capabilities", lambda _: None)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert has_sys_admin() is False


class Base(abc.ABC, metaclass=DeprecatedAliasABCMeta):
    @deprecated_alias("getName")
    @abc.abstractmethod
    def get_name(self, upper: bool = False) -> str:
        """Name it."""


def one_named(name: str) -> type[Base]:
    class One(Base):
        def get_name(self, upper: bool = False) -> str:
            return name.upper() if upper else name

    return One


def test_an_old_name_calls_what_a_subclass_overrides():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert one_named("a")().getName() == "a"
        assert one_named("b")().getName(upper=True) == "B"


# field failure 148
def test_an_alias_of_an_abstract_method_is_not_abstract():
    assert Base.__abstractmethods__ == {"get_name"}
    assert one_named("a")()
    assert Base.getName.__name__ == "getName"


# weakness U2
def test_an_old_name_warns_once_for_all_subclasses():
    class Fresh(abc.ABC, metaclass=DeprecatedAliasABCMeta):
        @deprecated_alias("getIt")
        def get_it(self) -> int:
            return 1

    class Left(Fresh): ...

    class Right(Fresh): ...

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [Left().getIt(), Right().getIt(), Fresh().getIt()] == [1, 1, 1]
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert "getIt()" in str(warning.message) and "get_it()" in str(warning.message)
    assert warning.filename == __file__


def test_the_new_name_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert one_named("a")().get_name() == "a"


def test_a_method_can_be_given_an_old_name_by_hand():
    class Plain:
        def new(self) -> int:
            return 7

    Plain.old = _make_deprecated_method(Plain.new, "old", "new")  # type: ignore[attr-defined]
    with pytest.deprecated_call():
        assert Plain().old() == 7  # type: ignore[attr-defined]
