"""Servers on loopback: a real zeusd on a simulated machine, and one that does as a test says."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from zeus.utils.zeusd import ZeusdConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = b"integration-test-signing-key!!!!"


@contextlib.contextmanager
def running_zeusd(folder: pathlib.Path, *arguments: str, host: str = "sim:h100x8") -> Iterator[Any]:
    """Run the project's zeusd on a Unix socket and on TCP; skip where it is not built."""
    build = pathlib.Path(os.environ.get("ZEUS_BUILD", ROOT / "build" / "release"))
    binary = build / "bin" / "zeusd"
    if not binary.exists():
        pytest.skip(f"there is no {binary}; build it or set ZEUS_BUILD")
    socket_path = str(folder / "zeusd.sock")
    log_path = folder / "zeusd.log"
    command = [
        *(str(binary), "serve", "--mode", "uds,tcp", "--tcp-bind-address", "127.0.0.1:0"),
        *("--socket-path", socket_path, "--journal", str(folder / "journal"), "--host", host),
        *(["--allow-simulated"] if os.geteuid() == 0 else []),
        *arguments,
    ]
    with open(log_path, "w") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            until = time.monotonic() + 30
            while "serves" not in log_path.read_text():
                assert process.poll() is None and time.monotonic() < until, log_path.read_text()
                time.sleep(0.02)
            port = re.search(r"listening on 127.0.0.1:(\d+)", log_path.read_text())
            assert port is not None
            yield socket_path, f"127.0.0.1:{port[1]}", process
        finally:
            process.kill()


def token(scopes: list[str], exp: int | None = None, key: bytes = KEY) -> str:
    """Sign a token as `zeusd token issue` does."""

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"sub": "tester", "scopes": scopes} | ({} if exp is None else {"exp": exp})
    signed = part(b'{"typ":"JWT","alg":"HS256"}') + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.digest(key, signed, hashlib.sha256))).decode()


class Server:
    """A daemon of which a test says what it answers.

    Attributes:
        streams: One function a connection to `/gpu/stream_power`, the last for all that follow. It
            gets the handler, whose `wfile` it may write to, and returning closes the connection.
        answers: Status and body of a path, where the test does not want the usual ones.
        routes: What serves a path instead of an answer.
        headers: Of every answer.
        connected: How many streams there have been.
        discovery: What `/discover` answers.
        ahead_s: How much its clock is ahead.
        requests: The paths that were asked, with their headers.
    """

    def __init__(self, *streams: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.streams = list(streams)
        self.ahead_s = 0.0
        self.headers: dict[str, str] = {}
        self.answers: dict[str, tuple[int, Any]] = {}
        self.routes: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.connected = 0
        self.changed = threading.Condition()
        self.ended = threading.Event()
        self.discovery: dict[str, Any] = {
            "gpus": [
                {
                    "id": 0,
                    "name": "A GPU",
                    "pci_address": "0000:41:00.0",
                    "cumulative_energy_available": True,
                }
            ],
            "cpus": [],
            "enabled_api_groups": ["gpu-read", "gpu-control"],
            "auth_required": False,
        }
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._http.block_on_close = False
        # For streams, which know their handler: those that are silent end with the server.
        self._http.ended = self.ended  # type: ignore[attr-defined]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def config(self) -> ZeusdConfig:
        return ZeusdConfig.tcp("127.0.0.1", self._http.server_address[1])

    @property
    def key(self) -> str:
        return self.config.endpoint

    def wait_for_connections(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.connected >= count, 20)

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Heads and bodies go out together: apart, the second waits for the first's receipt.
            wbufsize = -1

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                server.requests.append((self.command, self.path, dict(self.headers)))
                if path == "/gpu/stream_power" and server.streams:
                    self.close_connection = True
                    with server.changed:
                        server.connected += 1
                        number = min(server.connected, len(server.streams)) - 1
                        server.changed.notify_all()
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        server.streams[number](self)
                    return
                if path in server.routes:
                    server.routes[path](self)
                    return
                status, body = server.answers.get(path, (200, None))
                if path == "/discover" and body is None:
                    body = server.discovery
                if path == "/time" and body is None:
                    body = {"timestamp_ms": int((time.time() + server.ahead_s) * 1000)}
                self.answer(status, body)

            do_POST = do_GET

            def answer(self, status: int, body: Any) -> None:
                text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

        return Handler


def begin_stream(handler: BaseHTTPRequestHandler) -> None:
    """Send the head of a stream that ends with its connection."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.flush()


def gpu_event(power_mw: Any, timestamp_ms: Any = 1_700_000_000_000, gpu_id: Any = 0) -> bytes:
    """Spell an event as it goes over the wire."""
    event = {"timestamp_ms": timestamp_ms, "gpu_id": gpu_id, "power_mw": power_mw}
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does; a deadline that only a hang meets."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)
