"""A loopback site for the tests: pages, cookies, a service worker, and a page that never comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = "<!doctype html><title>page</title><h1>page</h1>"
WORKER = "onfetch = () => {}; onactivate = event => event.waitUntil(clients.claim())"


class _Server(ThreadingHTTPServer):
    page = PAGE
    seen: list[tuple[str, str]]
    ending: threading.Event


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Cookie", "")))
        if self.path.startswith("/hangs"):
            self.server.ending.wait()
        elif self.path.startswith("/worker.js"):
            self._answer("text/javascript", WORKER)
        elif self.path.startswith("/echo-cookies"):
            self._answer("text/plain", self.headers.get("Cookie", ""))
        else:
            self._answer("text/html", self.server.page)

    def _answer(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def serve(page: str = PAGE, seen: list[tuple[str, str]] | None = None) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1; gives the base URL.

    :param seen: gets the path and the cookies of each request.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.page, server.seen = page, [] if seen is None else seen
    server.ending = threading.Event()
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
