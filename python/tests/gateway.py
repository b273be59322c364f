"""A Pushgateway on loopback: groups by the labels in the path, as the real one keeps them."""

from __future__ import annotations

import base64
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Group = frozenset[tuple[str, str]]


class Gateway:
    """Takes PUT (replaces a group) and DELETE (removes one).

    Attributes:
        groups: The text that each group holds, by its labels.
        pushes: Every text that came, oldest first.
        delay_s: How long an answer takes.
        status: What it answers; above 399 nothing is kept.
    """

    def __init__(self, port: int = 0) -> None:
        self.groups: dict[Group, str] = {}
        self.pushes: list[str] = []
        self.delay_s = 0.0
        self.status = 200
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self._http.block_on_close = False
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def series(self, name: str) -> dict[Group, float]:
        """What Prometheus would scrape under a name: by labels, those of the group included."""
        found: dict[Group, float] = {}
        for group, text in self.groups.items():
            for labels, value in samples(text, name):
                found[group | labels] = value
        return found

    def value(self, name: str, **labels: str) -> float:
        """The one series with these labels and perhaps others."""
        (value,) = (
            v for key, v in self.series(name).items() if labels.items() <= dict(key).items()
        )
        return value

    def _handler(gateway) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                time.sleep(gateway.delay_s)
                if gateway.status < 400:
                    gateway.pushes.append(body)
                    gateway.groups[group_of(self.path)] = body
                self.answer()

            def do_DELETE(self) -> None:
                gateway.groups.pop(group_of(self.path), None)
                self.answer()

            def answer(self) -> None:
                self.send_response(gateway.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        return Handler


def group_of(path: str) -> Group:
    """Labels of `/metrics/job/NAME/LABEL/VALUE...`; `LABEL@base64` has an encoded value."""
    parts = path.removeprefix("/metrics/").split("/")
    labels = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        plain = name.removesuffix("@base64")
        padded = value + "=" * (-len(value) % 4)
        labels[plain] = (
            base64.urlsafe_b64decode(padded).decode()
            if plain != name
            else urllib.parse.unquote_plus(value)
        )
    return frozenset(labels.items())


def samples(text: str, name: str) -> Iterator[tuple[Group, float]]:
    """The samples of one name in a page of Prometheus' text format."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                yield frozenset(sample.labels.items()), sample.value


class Silent:
    """Takes connections and never answers.

    Attributes:
        connections: Those that came.
    """

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would leave the thread within accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:  # The listener was closed.
                return


def unused_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
