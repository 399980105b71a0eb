"""Named identities at real browsers: nothing of one turn reaches the next, and a login comes back with its name."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from authapp import App, serve, until
from leaks import Surroundings
from seatings import (
    DESKS,
    Desks,
    ended,
    evaluate,
    failed,
    log_in,
    one_object,
    succeeded,
    title,
    title_now,
    wait_until,
)

from pytest_peaks.doors.mcp_client import McpClient

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and modes")
ONE, TWO, THREE = DESKS
NOBODY = "login"


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


@pytest.fixture
def desks(tmp_path: Path, surroundings: Surroundings) -> Iterator[Desks]:
    """A project with desks of its own; when all are down, nothing is left."""
    made = Desks.at(tmp_path, surroundings)
    yield made
    made.down()


def who(client: McpClient, app: App) -> str:
    """Whom the application's cookie says that the browser belongs to; ``login`` for nobody."""
    return title(client, f"{app.url}/me")


def whose_token(client: McpClient, app: App, kind: str, url: str = "") -> str:
    """The same by the token in one kind of storage."""
    client.call("browser_navigate", url=f"{url or app.url}/app/{kind}")
    found = ""

    def settled() -> bool:
        nonlocal found
        found = title_now(client)
        return found not in ("", "page")

    until(settled, f"the application knows whose {kind} it is")
    return found


def enter(client: McpClient, app: App, kind: str, user: str, url: str = "") -> None:
    """Have a token in one kind of storage."""
    client.call("browser_navigate", url=f"{url or app.url}/enter/{kind}?user={user}")
    until(lambda: title_now(client) == "in", f"{user} has a token")


@contextmanager
def cached_page() -> Iterator[tuple[str, list[str]]]:
    """A page that a browser may keep for an hour, and who asked for it."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "2")
            self.send_header("Cache-Control", "max-age=3600")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


FOUND = """async () => {
    const permission = await navigator.permissions.query({name: "geolocation"});
    const folder = await navigator.storage.getDirectory();
    const files = [];
    for await (const name of folder.keys()) files.push(name);
    return {
        local: localStorage.length, session: sessionStorage.length, cookie: document.cookie,
        caches: (await caches.keys()).length, databases: (await indexedDB.databases()).length, files: files.length,
        workers: (await navigator.serviceWorker.getRegistrations()).length,
        permission: permission.state, left: typeof window.left,
    };
}"""
NOTHING = {
    "local": 0,
    "session": 0,
    "cookie": "",
    "caches": 0,
    "databases": 0,
    "files": 0,
    "workers": 0,
    "permission": "prompt",
    "left": "undefined",
}
LEAVE = """async () => {
    await (await caches.open("c")).put("/c", new Response("v"));
    await navigator.serviceWorker.register("/worker");
    document.cookie = "plain=1; Max-Age=3600";
}"""


# --- Whoever comes next is nobody


def test_the_next_one_at_a_desk_is_nobody_and_the_first_one_is_herself_at_another(desks: Desks, app: App) -> None:
    alice = desks.ok("create", "alice")
    assert (alice["desk"], alice["restored"], alice["warnings"], alice["next"]) == (ONE, False, [], [])
    with desks.client(alice) as stays, cached_page() as (cached, asked):
        stays.call("browser_navigate", url=f"{cached}/first")
        stays.call("browser_navigate", url="about:blank")
        stays.call("browser_navigate", url=f"{cached}/first")
        assert asked.count("/first") == 1, "it is in the cache"
        for kind in ("session", "indexed"):  # of an origin that the tab has left by then
            enter(stays, app, kind, "alice", app.other)
        for kind in ("local", "session", "indexed", "opfs"):
            enter(stays, app, kind, "alice")
        log_in(stays, app.url, "alice")
        stays.call("browser_evaluate", function=LEAVE)
        stays.call(
            "browser_run_code_unsafe",
            code="async page => { await page.context().grantPermissions(['geolocation']);"
            " await page.context().addInitScript(() => { window.left = 1; });"
            " await page.context().route('**/echo', route => route.fulfill({body: 'left'})); }",
        )
        stays.call("browser_tabs", action="new", url=f"{app.url}/page")
        before = evaluate(stays, FOUND)
        assert before["permission"] == "granted"
        assert before["left"] == "number"
        assert min(before[key] for key in ("local", "caches", "databases", "files", "workers")) == 1
        closed = desks.ok("close", "alice")
        assert closed["saved"] is True
        assert closed["freed_desk"] == ONE

        bob = desks.ok("create", "bob")
        assert bob["desk"] == ONE, "at the same desk"
        assert bob["mcp_url"] == alice["mcp_url"]
        # A client that never left, and one that is new.
        for client in (stays, desks.client(bob)):
            assert evaluate(client, "() => [location.href, history.length]") == ["about:blank", 1]
            tabs = client.call("browser_tabs", action="list").text
            assert tabs.count("\n- ") <= 1, tabs
            assert title(client, f"{app.url}/page") == "page"
            assert evaluate(client, FOUND) == NOTHING
            assert title(client, f"{app.other}/page") == "page"
            assert evaluate(client, FOUND) == NOTHING
            client.call("browser_navigate", url=f"{app.url}/echo")
            assert "left" not in client.snapshot()
            assert who(client, app) == NOBODY
            for kind in ("local", "session", "indexed", "opfs"):
                assert whose_token(client, app, kind) == NOBODY
            client.call("browser_navigate", url="about:blank")
            client.call("browser_run_code_unsafe", code="async page => { await page.context().clearCookies(); }")
            desks.ok("close", "bob", "--no-save")
            bob = desks.ok("resume", "bob")
        stays.call("browser_navigate", url=f"{cached}/first")
        assert asked.count("/first") == 2, "the cache is not alice's"

        app.seen.clear()
        again = desks.ok("resume", "alice", f"{app.url}/me")
        assert (again["desk"], again["restored"], again["url"]) == (TWO, True, f"{app.url}/me")
        assert again["already_seated"] is False
        assert [path for path, cookie in app.seen if "sid=" not in cookie and path != "/favicon.ico"] == []
        with desks.client(again) as client:
            assert evaluate(client, "() => document.title") == "alice"
            for kind in ("local", "session", "indexed", "opfs"):
                assert whose_token(client, app, kind) == "alice", kind
            for kind in ("session", "indexed"):
                assert whose_token(client, app, kind, app.other) == "alice", f"{kind} of the other origin"
            assert who(stays, app) == NOBODY, "bob is still nobody"


def test_resume_of_a_seated_session_restores_nothing_over_a_live_login(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        desks.ok("save", "alice")
        log_in(client, app.url, "somebody")
        again = desks.ok("resume", "alice")
        assert (again["already_seated"], again["restored"], again["restore"]) == (True, False, False)
        assert again["lease_id"] == made["lease_id"]
        assert who(client, app) == "somebody"
        # With an address it goes there, as she is.
        again = desks.ok("resume", "alice", f"{app.url}/me")
        assert again["restored"] is False
        assert evaluate(client, "() => document.title") == "somebody"


def test_a_page_that_does_not_open_is_a_warning_and_the_desk_is_hers(desks: Desks) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/x?token=hush"
        done = desks.run("create", "alice", url, "--json")
    made = succeeded(done)
    assert any("the page did not open" in warning for warning in made["warnings"])
    assert "hush" not in done.stdout + done.stderr
    assert desks.rows()["alice"]["desk"] == ONE
