"""Queries of zeusd: lists of devices, and what cannot be read."""

import pytest
from answers import json_of, refused_query


# --- lists ---


@pytest.mark.parametrize(
    "text", ["2%2C0%2C2", "2,0,2", "%202%20,+0", "0,+2,2", "%30,2", "00,02", "%2B0,2", "0%2c2"]
)
def test_lists_are_decoded_sorted_and_made_unique(daemon, text):
    told = json_of(daemon.get(f"/gpu/get_power?gpu_ids={text}"))
    assert list(told["power_mw"]) == ["0", "2"]


@pytest.mark.parametrize(
    "text",
    ["", "%20", "+", "0,,1", "0,", ",0", ",", "0x1", "a", "-1", "1.0", "0;1", "9",
     "4294967296", "18446744073709551616", "99999999999999999999999", "0,9", "%EF%BC%91"],
)  # fmt: skip
def test_lists_that_are_none_are_refused_in_json(daemon, text):
    for target in (f"/gpu/get_power?gpu_ids={text}", f"/gpu/stream_power?gpu_ids={text}"):
        told = json_of(daemon.get(target), 400)
        assert set(told) == {"error"} and isinstance(told["error"], str)


@pytest.mark.parametrize("text", ["", "0,,1", "0,", "0x1", "a", "-1"])
def test_lists_of_writes_are_read_the_same_way(daemon, text):
    target = f"/gpu/set_power_limit?gpu_ids={text}&power_limit_mw=200000&block=true"
    assert set(json_of(daemon.post(target), 400)) == {"error"}


# --- queries ---


@pytest.mark.parametrize(
    ("method", "target", "words"),
    [
        ("GET", "/gpu/get_power?gpus=0", ["unknown field"]),
        ("GET", "/gpu/get_power?GPU_IDS=0", ["unknown field"]),
        ("GET", "/gpu/get_power?cpu_ids=0", ["unknown field"]),
        ("GET", "/gpu/get_power?gpu_ids=0&x=1", ["unknown field"]),
        ("GET", "/gpu/get_power?gpu_ids=0&gpu_ids=1", ["duplicate field"]),
        ("GET", "/gpu/get_power?gpu_ids=0&gpu%5Fids=1", ["duplicate field"]),
        ("GET", "/gpu/stream_power?gpus=0", ["unknown field"]),
        ("GET", "/gpu/stream_power?gpu_ids=0&gpu_ids=0", ["duplicate field"]),
        ("POST", "/gpu/set_power_limit", ["missing field"]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000", ["missing field"]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&block=true", ["missing field"]),
        ("POST", "/gpu/set_power_limit?power_limit_mw=200000&block=true", ["missing field"]),
        (
            "POST",
            "/gpu/set_power_limit?gpu_ids=0&power_limt_mw=200000&block=true",
            ["missing field", "unknown field"],
        ),
        (
            "POST",
            "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true&block=true",
            ["duplicate field"],
        ),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=-1&block=true", ["invalid"]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=abc&block=true", ["invalid"]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=1.5&block=true", ["invalid"]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=&block=true", [""]),
        ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=4294967296&block=true", [""]),
        (
            "POST",
            "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=1",
            ["not `true` or `false`", "invalid"],
        ),
        (
            "POST",
            "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=True",
            ["not `true` or `false`", "invalid"],
        ),
        (
            "POST",
            "/gpu/set_persistence_mode?gpu_ids=0&enable=true&block=true",
            ["unknown field", "missing field"],
        ),
        (
            "POST",
            "/gpu/set_persistence_mode?gpu_ids=0&enabled=1&block=true",
            ["not `true` or `false`", "invalid"],
        ),
        (
            "POST",
            "/gpu/set_gpu_locked_clocks?gpu_ids=0&min=1&max_clock_mhz=2&block=true",
            ["missing field", "unknown field"],
        ),
        (
            "POST",
            "/gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=abc&max_clock_mhz=2&block=true",
            ["invalid"],
        ),
        (
            "POST",
            "/gpu/set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=1&max_clock_mhz=abc&block=true",
            ["invalid"],
        ),
        (
            "POST",
            "/gpu/set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=1&block=true",
            ["missing field"],
        ),
        ("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true&x=1", ["unknown field"]),
        ("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0", ["missing field"]),
        ("POST", "/gpu/reset_mem_locked_clocks?gpu_ids=0&block=true&x=1", ["unknown field"]),
        ("POST", "/gpu/reset_mem_locked_clocks?gpu_ids=0", ["missing field"]),
    ],
)
def test_queries_that_cannot_be_read_are_refused_as_text(daemon, method, target, words):
    refused_query(daemon.send(method, target), *words)
