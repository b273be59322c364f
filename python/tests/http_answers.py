"""A real HTTP server on the loopback interface whose answers a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, str, str]  # status, content type, body


class Server:
    """Answers each GET with what `answer(path)` returns, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                status, kind, body = answer(self.path)
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.end_headers()
                    self.wfile.write(body.encode())
                except OSError:
                    pass  # The client has gone.

            def log_message(self, *args: object) -> None:
                pass

        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}"
        threading.Thread(target=self._httpd.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()


def silence(seconds: float) -> Callable[[str], Answer]:
    """A server that accepts, reads and does not answer for so long."""

    def answer(path: str) -> Answer:
        threading.Event().wait(seconds)
        return 200, "application/json", "{}"

    return answer
