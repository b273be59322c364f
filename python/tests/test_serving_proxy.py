"""The proxy before a real server on the loopback: bytes pass, joules are added, nothing hangs."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import pathlib
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from zeus.serving.proxy import Limits, Overlap, Proxy, Upstream
from zeus.serving.proxy.__main__ import main
from zeus.serving.proxy.http import (
    Head,
    Malformed,
    parse_request,
    parse_response,
    request_body,
    response_body,
)
from zeus.serving.proxy.rewrite import Events, find_usage

REQUEST = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "max_tokens": 16,
}
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "tiny",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Rayleigh é"}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    },
    ensure_ascii=False,
    indent=1,
).encode()
CHUNKS = [
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Ray"}}],"usage":null}\n\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"leigh"}}],"usage":null}\n\n',
    b": a comment\n\n",
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def counter(watts: float = 100.0) -> Callable[[], float]:
    begin = time.monotonic()
    return lambda: watts * (time.monotonic() - begin)


@asynccontextmanager
async def serving(
    handler: Handler, readers: dict[str, Callable[[], float]] | None = None, **limits: float
) -> AsyncIterator[tuple[int, Proxy]]:
    """A proxy before a server that answers every connection by `handler`."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass  # the proxy went away, which some tests are about
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    overlap = Overlap(readers or {"gpu0": counter()}, update_s=0.001, period_s=0.05)
    proxy = Proxy(
        Upstream(f"http://127.0.0.1:{port}"),
        overlap,
        Limits(**limits),  # type: ignore[arg-type]
    )
    own = await proxy.start("127.0.0.1", 0)
    try:
        yield own, proxy
    finally:
        await proxy.stop(0.2)
        server.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(bounded())


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return first, headers, body


def message(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answers_json(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    await asyncio.sleep(0.05)
    writer.write(message(ANSWER))
    await writer.drain()


async def answers_events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    stream = b"".join(CHUNKS)
    for cut in range(0, len(stream), 37):  # lines do not end where writes do
        part = stream[cut : cut + 37]
        writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        await writer.drain()
        await asyncio.sleep(0.005)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def post(body: bytes, path: str = "/v1/chat/completions", more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


async def ask(port: int, raw: bytes) -> tuple[bytes, bytes]:
    """Head and unframed body of an answer on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    try:
        return await read_answer(reader)
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" not in lower:
        length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, await reader.readexactly(length)
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return head, body


def without_energy(data: bytes) -> tuple[bytes, dict[str, object]]:
    """What the upstream sent, and the energy that was added to it."""
    before, _, rest = data.partition(b', "energy": ')
    energy, end = json.JSONDecoder().raw_decode(rest.decode())
    return before + rest.decode()[end:].encode(), energy


def test_a_json_answer_passes_byte_by_byte_but_for_its_energy() -> None:
    async def test() -> None:
        async with serving(answers_json) as (port, _):
            head, body = await ask(port, post(json.dumps(REQUEST).encode()))
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            plain, energy = without_energy(body)
            assert plain == ANSWER
            assert json.loads(body)["usage"]["energy"] == energy
            assert energy["method"] == "overlap-tokens" and energy["modelled"] is True
            # 100 W for 0.05 s and the way; alone in flight, so that only the counter is unsure.
            assert 5.0 <= energy["total_j"] < 300  # type: ignore[operator]
            assert 0 < energy["u_j"] < 0.2  # type: ignore[operator]

    run(test)


def test_a_stream_passes_byte_by_byte_but_for_the_energy_in_its_usage() -> None:
    async def test() -> None:
        async with serving(answers_events) as (port, _):
            head, body = await ask(port, post(json.dumps({**REQUEST, "stream": True}).encode()))
            assert b"text/event-stream" in head
            plain, energy = without_energy(body)
            assert plain == b"".join(CHUNKS)
            assert body.count(b'"energy"') == 1
            assert energy["total_j"] > 0  # type: ignore[operator]

    run(test)


def test_a_stream_is_not_held_back() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + CHUNKS[0])
            await go_on.wait()
            writer.write(b"".join(CHUNKS[1:]))

        async with serving(slow) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b'{"stream": true}'))
            await reader.readuntil(b"Ray")  # before the upstream has said more
            go_on.set()
            await reader.readuntil(b'"energy"')
            writer.close()

    run(test)


def test_a_connection_serves_several_requests() -> None:
    async def test() -> None:
        async with serving(answers_json) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps(REQUEST).encode()
            for _ in range(3):
                writer.write(post(body))
                assert b'"energy"' in (await read_answer(reader))[1]
            writer.write(post(body) + post(body))  # the second before the first is answered
            for _ in range(2):
                assert b'"energy"' in (await read_answer(reader))[1]
            chunked = post(b"", more="")[:-2].replace(b"Content-Length: 0", b"X: y")
            writer.write(
                chunked
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            )
            assert b'"energy"' in (await read_answer(reader))[1]
            writer.close()

    run(test)


def test_the_upstream_gets_what_the_client_sent() -> None:
    async def test() -> None:
        got: list[tuple[str, dict[str, str], bytes]] = []

        async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.append(await read_request(reader))
            writer.write(message(b"[]"))

        async with serving(note) as (port, _):
            body = json.dumps(REQUEST).encode()
            more = "Authorization: Bearer k\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
            await ask(port, post(body, "/v1/completions?a=b", more))
            first, headers, sent = got[0]
            assert first == "POST /v1/completions?a=b HTTP/1.1"
            assert sent == body
            assert headers["authorization"] == "Bearer k"
            assert "x-hop" not in headers
            assert headers["accept-encoding"] == "identity"

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "no such model"}}',
        b'{"usage": {"prompt_tokens": 1}',
        b"not JSON at all \xff\xfe",
        b"[" * 100_000,
        b'{"usage": null}',
        b"",
    ],
)
def test_answers_without_a_usage_and_malformed_ones_pass_as_they_are(body: bytes) -> None:
    async def test() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(message(body, status="404 Not Found"))

        async with serving(answer) as (port, _):
            head, got = await ask(port, post(b"{}"))
            assert head.startswith(b"HTTP/1.1 404 Not Found")
            assert got == body

    run(test)


def test_other_paths_pass_untouched() -> None:
    async def test() -> None:
        async with serving(answers_json) as (port, _):
            _, body = await ask(port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert body == ANSWER

    run(test)


def test_a_client_that_goes_away_ends_the_upstream_too_and_keeps_its_energy() -> None:
    async def test() -> None:
        ended = asyncio.Event()

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + CHUNKS[0])
            await reader.read()  # until the proxy is gone
            ended.set()

        async with serving(endless) as (port, proxy):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b'{"model": "tiny", "stream": true}'))
            await reader.readuntil(b"Ray")
            writer.close()
            await asyncio.wait_for(ended.wait(), 10)
            page = await metrics_with(port, 'outcome="cancelled"} 1')
            assert value(page, 'request_energy_joules_total{model="tiny"}') > 0
            assert proxy._overlap.in_flight == 0

    run(test)


def test_an_upstream_that_dies_in_a_stream_ends_the_client_without_the_last_chunk() -> None:
    async def test() -> None:
        async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            part = CHUNKS[0]
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(part), part)
            )
            await writer.drain()

        async with serving(dies) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b'{"stream": true}'))
            await reader.readuntil(b"\r\n\r\n")
            try:
                rest = await reader.read()
            except ConnectionError:
                rest = b""
            assert not rest.endswith(b"0\r\n\r\n")
            assert b'outcome="error"} 1' in await metrics_with(port, 'outcome="error"} 1')
            writer.close()

    run(test)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", b"502"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"502"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", b"502"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
            b"502",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"502",
        ),
    ],
)
def test_an_upstream_that_answers_nonsense_is_a_bad_gateway(answer: bytes, status: bytes) -> None:
    async def test() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)

        async with serving(handler) as (port, _):
            head, body = await ask(port, post(b"{}"))
            assert head.split()[1] == status
            assert "upstream" in json.loads(body)["error"]["message"]

    run(test)


def test_a_silent_upstream_is_a_timeout() -> None:
    async def test() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with serving(silent, silence_s=0.2) as (port, _):
            head, _ = await ask(port, post(b"{}"))
            assert head.split()[1] == b"504"

    run(test)


def test_an_upstream_that_is_not_there_is_a_bad_gateway() -> None:
    async def test() -> None:
        proxy = Proxy(Upstream("http://127.0.0.1:1"), Overlap({"gpu0": counter()}))
        port = await proxy.start("127.0.0.1", 0)
        head, _ = await ask(port, post(b"{}"))
        assert head.split()[1] == b"502"
        await proxy.stop(0.1)

    run(test)


async def metrics(port: int) -> bytes:
    return (await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))[1]


async def metrics_with(port: int, line: str) -> bytes:
    """The page once it has that text: a client is counted after its connection ended."""
    while line.encode() not in (page := await metrics(port)):
        await asyncio.sleep(0.01)
    return page


def value(page: bytes, series: str) -> float:
    for line in page.decode().splitlines():
        if line.startswith("zeus_serving_" + series + " "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no {series} in\n{page.decode()}")


def test_concurrent_requests_idle_and_open_add_up_to_the_devices() -> None:
    async def test() -> None:
        turn = itertools.count()

        async def mixed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await (answers_json if next(turn) % 2 else answers_events)(reader, writer)

        readers = {"gpu0": counter(100.0), "gpu1": counter(50.0)}
        async with serving(mixed, readers) as (port, proxy):
            body = json.dumps({**REQUEST, "stream": True}).encode()
            answers = await asyncio.gather(*(ask(port, post(body)) for _ in range(20)))
            assert all(b'"energy"' in body for _, body in answers)
            page = await metrics_with(port, 'requests_total{model="tiny",outcome="finished"} 20')
            totals = proxy._overlap.totals()
            assert totals is not None
            assert sum(totals.device_nj.values()) == totals.closed_nj + totals.idle_nj
            told = sum(without_energy(body)[1]["total_j"] for _, body in answers)  # type: ignore[misc]
            assert value(page, 'request_energy_joules_total{model="tiny"}') == pytest.approx(told)
            assert value(page, 'tokens_total{model="tiny",kind="prompt"}') == 240
            assert value(page, 'device_energy_joules_total{device="gpu1"}') > 0

    run(test)


def test_requests_share_by_the_tokens_that_were_seen() -> None:
    # 120 J, of 30 and 10 tokens seen and one of which none was: as if it were 20, their mean.
    async def test() -> None:
        joules = 0.0
        overlap = Overlap({"gpu0": lambda: joules}, update_s=0.001, period_s=60.0)
        await overlap.start()
        flights = [await overlap.begin() for _ in range(3)]
        flights[0].seen, flights[1].seen = 30, 10
        joules = 120.0
        accounts = await asyncio.gather(*map(overlap.end, flights))
        energies = [account.energy_nj for account in accounts if account is not None]
        assert energies == [60_000_000_000, 20_000_000_000, 40_000_000_000]
        # Weights known to a factor of two: s u sqrt((1 - s)^2 + sum of the others' s^2).
        assert accounts[0] is not None
        expected = 120 * 0.5 * math.log(2) * (0.5**2 + (1 / 6) ** 2 + (1 / 3) ** 2) ** 0.5
        assert accounts[0].u_rule_j >= expected
        await overlap.stop()

    run(test)


def test_a_request_that_is_given_up_before_it_began_leaves_nothing_behind() -> None:
    async def test() -> None:
        overlap = Overlap({"gpu0": counter()}, update_s=0.001, period_s=0.01)
        await overlap.start()
        for wait_s in (0.0, 0.001, 0.002, 0.005) * 10:
            task = asyncio.ensure_future(overlap.begin())
            await asyncio.sleep(wait_s)
            if task.cancel():
                await asyncio.gather(task, return_exceptions=True)
            else:
                overlap.end(task.result()).cancel()
        while overlap.in_flight:
            await asyncio.sleep(0.01)
        totals = overlap.totals()
        assert totals is not None
        assert totals.open_nj == 0
        assert totals.closed_nj == overlap.stray_nj
        await overlap.stop()

    run(test)


def test_the_metrics_are_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")

    async def test() -> None:
        async with serving(answers_json) as (port, _):
            await ask(port, post(json.dumps({"model": 'a"b\\c\nd'}).encode()))
            page = (await metrics_with(port, "finished")).decode()
            families = list(parser.text_string_to_metric_families(page))
            labels = [s.labels.get("model") for f in families for s in f.samples]
            assert 'a"b\\c\nd' in labels

    run(test)


def test_a_device_that_cannot_be_read_is_null_in_answers_and_unhealthy() -> None:
    async def test() -> None:
        def lost() -> float:
            raise OSError("GPU is lost")

        async with serving(answers_json, {"gpu0": lost}) as (port, _):
            _, body = await ask(port, post(b"{}"))
            assert json.loads(body)["usage"]["energy"]["total_j"] is None
            head, health = await ask(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert head.split()[1] == b"503"
            assert json.loads(health)["devices"] == {"gpu0": "GPU is lost"}

    run(test)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (b"PUT /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
    ],
)
def test_requests_that_could_be_read_two_ways_are_refused(raw: bytes, status: bytes) -> None:
    async def test() -> None:
        async with serving(answers_json, request_bytes=1000) as (port, _):
            head, _ = await ask(port, raw)
            assert head.split()[1] == status

    run(test)


def test_a_large_answer_passes_without_being_held() -> None:
    async def test() -> None:
        large = b'{"choices": [], "x": "' + b"y" * 100_000 + b'", "usage": {"a": 1}}'

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(message(large))

        async with serving(answer, answer_bytes=10_000) as (port, _):
            _, body = await ask(port, post(b"{}"))
            assert body == large

    run(test)


def test_an_old_client_gets_an_answer_that_ends_with_the_connection() -> None:
    async def test() -> None:
        async with serving(answers_events) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"chunked" not in head.lower()
            plain, _ = without_energy(await reader.read())
            assert plain == b"".join(CHUNKS)
            writer.close()

    run(test)


def test_a_http_library_reads_what_the_proxy_writes() -> None:
    httpx = pytest.importorskip("httpx")

    async def test() -> None:
        async with serving(answers_events) as (port, _):
            got: list[object] = []

            def client() -> None:
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                with httpx.stream("POST", url, json={**REQUEST, "stream": True}) as answer:
                    got.extend(line for line in answer.iter_lines() if line.startswith("data: {"))

            thread = threading.Thread(target=client)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0.01)
            usage = json.loads(str(got[-1])[6:])["usage"]
            assert usage["energy"]["total_j"] > 0

    run(test)


def test_events_are_cut_anywhere_and_come_out_the_same() -> None:
    stream = b"".join(CHUNKS).replace(b"\n", b"\r\n") + b"data: rest"
    for size in (1, 2, 3, 7, 50, 1000):
        events, out, usages = Events(), b"", 0
        for cut in range(0, len(stream), size):
            for piece in events.feed(stream[cut : cut + size]):
                if isinstance(piece, bytes):
                    out += piece
                else:
                    begin, usage, end = piece
                    out += begin + usage.text.encode() + end
                    usages += 1
        assert out + events.rest() == stream
        assert usages == 1
        assert events.seen == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"usage":{}}', '{"usage":{"energy": {"x": 1}}}'),
        (
            '{"usage": {"a": "}"} , "b": [{}]}',
            '{"usage": {"a": "}", "energy": {"x": 1}} , "b": [{}]}',
        ),
        (' {"z": {"usage": {}}, "usage": {"a":1 }}', None),
        (
            '{"u":"\\u00e9 é","usage":{"a":1}}\n',
            '{"u":"\\u00e9 é","usage":{"a":1, "energy": {"x": 1}}}\n',
        ),
    ],
)
def test_energy_goes_into_the_outer_usage(text: str, expected: str | None) -> None:
    usage = find_usage(text.encode())
    assert usage is not None
    got = usage.with_energy({"x": 1}).decode()
    assert json.loads(got)["usage"]["energy"] == {"x": 1}
    if expected is not None:
        assert got == expected


def test_any_bytes_are_a_head_or_refused() -> None:
    rng = random.Random(1)
    seeds = [
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close, x",
    ]
    for _ in range(3000):
        raw = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 6)):
            raw[rng.randrange(len(raw))] = rng.choice(b"\r\n\0 :,;\x80\xff0aZ/")
        for parse, body in ((parse_request, request_body), (parse_response, response_body_of_get)):
            try:
                body(parse(bytes(raw)))
            except Malformed as error:
                assert str(error)


def response_body_of_get(head: Head) -> object:
    return response_body(head, "GET")


@pytest.mark.parametrize("head", [b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 200 OK\r\nbad"])
def test_heads_that_are_none_are_refused(head: bytes) -> None:
    with pytest.raises(Malformed):
        parse_response(head)


def test_a_request_without_a_length_has_no_body() -> None:
    assert request_body(parse_request(b"GET / HTTP/1.1\r\nHost: x")) == 0


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8000", "http://", "http://x/?q=1"])
def test_an_upstream_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no http"):
        Upstream(url)


@pytest.mark.parametrize("by", ["python", "zeus"])
def test_the_program_measures_a_machine_and_ends_by_a_signal(
    by: str, programs: pathlib.Path
) -> None:
    pytest.importorskip("zeus._core")
    start = [sys.executable, "-m", "zeus.serving.proxy"]
    if by == "zeus":
        verb = ["--host", "sim:constant", "serve-proxy", "--python", sys.executable]
        start = [str(programs / "zeus"), *verb]

    async def test() -> None:
        server = await asyncio.start_server(answers_json, "127.0.0.1", 0)
        upstream = server.sockets[0].getsockname()[1]
        program = await asyncio.create_subprocess_exec(
            *start,
            *("--listen", "127.0.0.1:0", "--upstream", f"http://127.0.0.1:{upstream}"),
            env={**os.environ, "ZEUS_HOST": "sim:constant"},
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        said = (await program.stdout.readline()).decode()
        assert said.endswith("measuring gpu0\n"), said
        _, body = await ask(int(said.split(",")[0].rsplit(":", 1)[1]), post(b"{}"))
        energy = json.loads(body)["usage"]["energy"]
        # 100 W for some 50 ms, by a counter that publishes every 100 ms: u = P T / sqrt(6).
        assert energy["u_j"] == pytest.approx(100 * 0.1 / 6**0.5, rel=0.7)
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 0
        server.close()

    run(test)


@pytest.mark.parametrize(
    "arguments", [["--upstream", "nowhere"], ["--upstream", "http://x", "--listen", "8080"]]
)
def test_the_program_says_what_it_cannot_do(arguments: list[str]) -> None:
    assert main(arguments) == 2
