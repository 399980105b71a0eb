"""A loopback site that leaves everything in a browser that a site can: caches, cookies of frames, passwords."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LATE = 0.25

SCRIPTS = {
    "/sw.js": "onfetch = event => { if (event.request.url.endsWith('/by-worker')) "
    "event.respondWith(new Response('worker')) }; onactivate = event => event.waitUntil(clients.claim())",
    "/shared.js": "let n = 0; onconnect = event => event.ports[0].postMessage(++n);"
    "const c = new BroadcastChannel('c'); c.onmessage = event => { if (event.data === 'ping') c.postMessage('pong') }",
    "/worker.js": "setInterval(() => fetch('/worker-is-here'), 50)",
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hits: collections.Counter[str]

    def handle_error(self, request: object, address: object) -> None:
        """A browser that is gone is no failure of the site's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.server.hits[url.path] += 1
        if url.path in SCRIPTS:
            self._answer(SCRIPTS[url.path], "text/javascript")
        elif url.path == "/headers":
            self._answer("\n".join(f"{name.lower()}: {value}" for name, value in self.headers.items()))
        elif url.path.startswith("/cached"):
            self._answer(str(self.server.hits[url.path]), headers={"Cache-Control": "max-age=600"})
        elif url.path.startswith("/moved"):
            moved = {"Location": f"/n{self.server.hits[url.path]}", "Cache-Control": "max-age=600"}
            self._answer("", status=301, headers=moved)
        elif url.path.startswith("/auth"):
            known = "Authorization" in self.headers
            challenge = {"WWW-Authenticate": 'Basic realm="r"'}
            self._answer("in" if known else "out", status=200 if known else 401, headers=challenge)
        elif url.path == "/set":
            cookie = query.get("with", "k=1")
            self._answer(PAGE, "text/html", headers={"Set-Cookie": cookie})
        elif url.path == "/late":
            time.sleep(LATE)
            self._answer("late", headers={"Set-Cookie": "late=1; Max-Age=600"})
        elif url.path == "/frame":
            self._answer(f"<!doctype html><iframe src='{query['src']}'></iframe>", "text/html")
        elif url.path == "/download":
            self._answer("file", headers={"Content-Disposition": "attachment; filename=file.txt"})
        elif url.path == "/hits":
            self._answer(str(self.server.hits[query["of"]]))
        else:
            self._answer(PAGE, "text/html")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def _answer(
        self, body: str, kind: str = "text/plain", *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


PAGE = "<!doctype html><title>page</title><input id=box><a id=link href='/other'>link</a>"


@contextmanager
def serve() -> Iterator[int]:
    """Serve on a free port of 127.0.0.1; gives it."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.hits = collections.Counter()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
