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
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from authapp import App, serve
from leaks import Surroundings
from seatings import (
    DESKS,
    Desks,
    ended,
    evaluate,
    log_in,
    one_object,
    succeeded,
    title,
    titles,
    wait_until,
)

from pytest_peaks.doors.mcp_client import McpClient
from pytest_peaks.errors import McpFailedError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and modes")
ONE, TWO, THREE = DESKS
NOBODY = "login"
KINDS = ("local", "session", "indexed", "opfs")
OTHER = ("session", "indexed")


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


def whose(client: McpClient, app: App) -> set[str]:
    """Whom all that can hold a login says that the browser belongs to."""
    kinds = [f"{app.url}/app/{kind}" for kind in KINDS]
    return set(titles(client, f"{app.url}/me", *kinds, *(f"{app.other}/app/{kind}" for kind in OTHER)))


def enter(client: McpClient, app: App, user: str) -> None:
    """Have a login in all that can hold one; of another origin before, which the tab then leaves."""
    before = [f"{app.other}/enter/{kind}?user={user}" for kind in OTHER]
    urls = [*before, *(f"{app.url}/enter/{kind}?user={user}" for kind in KINDS)]
    assert titles(client, *urls) == ["in"] * len(urls)
    log_in(client, app.url, user)


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


def test_the_next_one_at_a_desk_is_nobody_and_the_first_one_is_herself_at_another(
    desks: Desks, app: App
) -> None:
    alice = desks.ok("create", "alice")
    assert (alice["desk"], alice["restored"], alice["warnings"], alice["next"]) == (ONE, False, [], [])
    with desks.client(alice) as stays, cached_page() as (cached, asked):
        for url in (f"{cached}/first", "about:blank", f"{cached}/first"):
            stays.call("browser_navigate", url=url)
        assert asked.count("/first") == 1, "it is in the cache"
        enter(stays, app, "alice")
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
        with desks.client(bob) as new:
            # A client that never left, and one that is new.
            for client in (stays, new):
                assert evaluate(client, "() => [location.href, history.length]") == ["about:blank", 1]
                assert client.call("browser_tabs", action="list").text.count("about:blank") == 1
                client.call("browser_navigate", url=f"{app.other}/page")
                assert evaluate(client, FOUND) == NOTHING
                client.call("browser_navigate", url=f"{app.url}/page")
                assert evaluate(client, FOUND) == NOTHING
                client.call("browser_navigate", url=f"{app.url}/echo")
                assert "left" not in client.snapshot()
                assert whose(client, app) == {NOBODY}
                desks.ok("close", "bob", "--no-save")
                assert desks.ok("resume", "bob")["desk"] == ONE
        stays.call("browser_navigate", url=f"{cached}/first")
        assert asked.count("/first") == 2, "the cache is not alice's"

        app.seen.clear()
        again = desks.ok("resume", "alice", f"{app.url}/me")
        assert (again["desk"], again["restored"], again["url"]) == (TWO, True, f"{app.url}/me")
        assert again["already_seated"] is False
        # It was there before the first navigation.
        assert [path for path, cookie in app.seen if "sid=" not in cookie and path != "/favicon.ico"] == []
        with desks.client(again) as client:
            assert evaluate(client, "() => document.title") == "alice"
            assert whose(client, app) == {"alice"}
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


def test_a_desk_that_was_only_leased_is_blank_for_the_next_one_too(desks: Desks, app: App) -> None:
    desks.configure("d")
    desks.ok("pool", "--up")
    made = desks.lease("alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        desks.ok("close", "alice")
        desks.lease("bob")
        assert who(client, app) == NOBODY


# --- Saving


def test_save_leaves_the_tabs_as_they_are_and_what_it_writes_is_private(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        enter(client, app, "alice")
        client.call("browser_evaluate", function="() => { window.mark = 7; }")
        found = desks.ok("save", "alice")
        assert (found["saved"], found["state_exists"]) == (True, True)
        assert evaluate(client, "() => [location.pathname, window.mark, history.length > 3]") == [
            "/me",
            7,
            True,
        ]
        assert client.call("browser_tabs", action="list").text.count("http") == 1
        assert whose(client, app) == {"alice"}
    file = desks.state("alice")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    state = json.loads(file.read_text())
    assert set(state["peaks"]["sessionStorage"]) == {app.url, app.other}
    assert {cookie["name"] for cookie in state["cookies"]} >= {"sid"}
    kept = file.read_bytes()
    closed = desks.ok("close", "alice")
    assert closed["saved"] is False or file.read_bytes() != kept, "it says what it did"


@pytest.mark.slow
def test_with_a_key_no_value_lies_open_and_without_it_nothing_is_restored(desks: Desks, app: App) -> None:
    key = "k" * 43 + "="
    made = desks.ok("create", "alice", PEAKS_STATE_KEY=key)
    with desks.client(made) as client:
        enter(client, app, "alice")
    assert desks.ok("save", "alice", PEAKS_STATE_KEY=key)["saved"] is True
    assert "canary" not in desks.state("alice").read_text()
    assert desks.ok("close", "alice", PEAKS_STATE_KEY=key)["freed_desk"] == ONE
    kept = desks.state("alice").read_bytes()
    assert b"canary" not in kept
    done = desks.run("resume", "alice", "--json")
    refused = one_object(done)
    assert refused["ok"] is False
    assert "PEAKS_STATE_KEY" in refused["hint"]
    assert desks.state("alice").read_bytes() == kept
    assert desks.ok("pool")["leased"] == {}, "the desk is free again"
    again = desks.ok("resume", "alice", PEAKS_STATE_KEY=key)
    assert again["restored"] is True
    with desks.client(again) as client:
        assert whose(client, app) == {"alice"}


@pytest.mark.slow
def test_two_saves_at_once_both_leave_a_whole_state(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        for done in [ended(one) for one in [desks.spawn("save", "alice", "--json") for _ in range(2)]]:
            assert succeeded(done)["saved"] is True
        assert who(client, app) == "alice"
    assert json.loads(desks.state("alice").read_text())["cookies"]
    assert not [path for path in desks.state("alice").parent.iterdir() if path.name != "alice.json"]


def test_close_saves_what_is_unsaved_unless_it_is_told_not_to(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        closed = desks.ok("close", "alice", "--no-save")
        assert (closed["saved"], closed["state_retained"]) == (False, False)
        assert not desks.state("alice").exists()
        assert desks.ok("resume", "alice")["restored"] is False
        assert who(client, app) == NOBODY
        log_in(client, app.url, "alice")
        closed = desks.ok("close", "alice")
        assert (closed["saved"], closed["state_retained"]) == (True, True)
        assert str(desks.state("alice")) in closed["message"]
        assert desks.ok("resume", "alice")["restored"] is True
        assert who(client, app) == "alice"
        kept = desks.state("alice").read_bytes()
        # After a logout, what was saved before is better than what is left.
        assert title(client, f"{app.url}/logout") == "out"
        closed = desks.ok("close", "alice")
        assert closed["saved"] is False
        assert "what was saved before is kept" in closed["note"]
        assert closed["note"] in closed["message"]
        assert desks.state("alice").read_bytes() == kept


def test_a_desk_without_a_login_writes_no_state(desks: Desks) -> None:
    desks.ok("create", "alice")
    closed = desks.ok("close", "alice")
    assert (closed["saved"], closed["state_retained"]) == (False, False)
    assert "it has no saved state" in closed["message"]
    assert not desks.state("alice").exists()


def age(desks: Desks, seconds: float) -> None:
    """Let the ledger say that no verb was called for so long."""
    ledger = json.loads(desks.ledger.read_text())
    for session in ledger["sessions"].values():
        for moment in (session["used"], session["lease"]["heartbeat"]):
            for key in ("wall", "machine"):
                moment[key] -= seconds
    desks.ledger.write_text(json.dumps(ledger))


def test_cleanup_saves_before_it_frees_and_whoever_browses_keeps_the_desk(desks: Desks, app: App) -> None:
    alice, bob = (desks.ok("create", name) for name in ("alice", "bob"))
    with desks.client(alice) as client:
        log_in(client, app.url, "alice")
        age(desks, 5000)
        # No verb was called, but she browses.
        assert desks.rows()["alice"]["idle_seconds"] < 1800
        found = desks.ok("cleanup")
        assert [row["session"] for row in found["released"]] == ["bob"]
        assert found["kept"] == []
        assert bob["desk"] == TWO
        assert who(client, app) == "alice"
        [released] = desks.ok("cleanup", "--idle-seconds", "0")["released"]
        assert (released["session"], released["desk"], released["saved"]) == ("alice", ONE, True)
    assert desks.ok("resume", "alice")["restored"] is True
    text = desks.text("cleanup", "--idle-seconds", "0")
    assert text.startswith("released 1 desk; 3/3 desks free\n")


# --- Beginning with something


@pytest.mark.slow
def test_a_session_may_begin_with_a_saved_login_which_it_never_touches(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        enter(client, app, "alice")
    desks.ok("close", "alice")
    auth = desks.dirs.base / "auth" / "boss.json"
    auth.parent.mkdir(mode=0o700)
    auth.write_bytes(desks.state("alice").read_bytes())
    auth.chmod(0o600)
    kept = auth.read_bytes()
    boss = desks.ok("create", "boss", f"{app.url}/me", "--auth", "boss")
    assert (boss["restored"], boss["state_exists"]) == (False, False)
    with desks.client(boss) as client:
        assert evaluate(client, "() => document.title") == "alice"
        assert whose(client, app) == {"alice"}
    assert desks.ok("save", "boss")["saved"] is True
    assert desks.ok("close", "boss", "--discard")["state_removed"] is True
    assert auth.read_bytes() == kept
    refused = one_object(desks.run("create", "x", "--auth", "nobody", "--json"))
    assert refused["ok"] is False
    assert "x" not in desks.rows()
    # A saved state that lost its session.
    desks.ledger.unlink()
    desks.fails("state_exists", 2, "create", "alice")
    again = desks.ok("create", "alice", f"{app.url}/me", "--restore")
    assert (again["restored"], again["restore"]) == (True, True)
    with desks.client(again) as client:
        assert whose(client, app) == {"alice"}
    assert desks.ok("close", "alice", "--discard")["state_removed"] is True
    assert auth.read_bytes() == kept


# --- Deaths


def gone(desks: Desks, desk: str = ONE) -> bool:
    return not next(row["up"] for row in desks.ok("pool")["desk_details"] if row["desk"] == desk)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("browser", marks=pytest.mark.slow),
        "supervisor",
        pytest.param("mcp", marks=pytest.mark.slow),
    ],
)
def test_after_a_desk_died_all_verbs_tell_the_truth_and_resume_seats_her_anew(
    desks: Desks, app: App, part: str
) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
    desks.ok("save", "alice")
    record = desks.record()
    victim = record.owner if part == "supervisor" else record.processes[part]
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(lambda: gone(desks), "the desk is seen to be down")
    row = desks.rows()["alice"]
    wait_until(lambda: desks.rows()["alice"]["owner_alive"] is False, "the seat is seen to be lost")
    assert (row["status"], row["state_exists"]) == ("active", True)
    again = desks.ok("resume", "alice", f"{app.url}/me")
    assert (again["already_seated"], again["restored"]) == (False, True)
    assert again["lease_id"] != made["lease_id"]
    with desks.client(again) as client:
        assert evaluate(client, "() => document.title") == "alice"


def test_the_desk_of_a_dead_browser_goes_to_the_next_one(desks: Desks) -> None:
    desks.configure("d")
    desks.ok("create", "alice")
    os.kill(desks.record("d").owner.pid, signal.SIGKILL)
    wait_until(lambda: gone(desks, "d"), "the desk is seen to be down")
    assert desks.ok("create", "bob")["desk"] == "d"
    assert desks.rows()["alice"]["status"] == "detached"


MOMENTS = [0.3, 0.6]
MORE_MOMENTS = [0.05, 0.15, 0.45, 0.75, 0.9, 1.1, 1.4]


def _killed_creates(desks: Desks, moments: list[float]) -> None:
    desks.configure("d")
    for number, moment in enumerate(moments):
        process = desks.spawn("create", f"s{number}", "--json")
        time.sleep(moment)
        process.kill()
        process.communicate()
        left = desks.rows().get(f"s{number}")
        if left is not None and left["owner_alive"]:  # it had done its work
            desks.ok("close", f"s{number}")
        after = desks.ok("create", f"next{number}", "--wait", "60")
        assert after["desk"] == "d"
        desks.ok("close", f"next{number}")
        # It was either never made, or whole.
        row = desks.rows().get(f"s{number}")
        assert row is None or row["status"] == "detached"
        if number % 2:
            desks.ok("pool", "--down")  # the next one starts the browser


@pytest.mark.slow
def test_a_create_that_is_killed_loses_no_desk(desks: Desks) -> None:
    _killed_creates(desks, MOMENTS)


@pytest.mark.slow
def test_a_create_that_is_killed_at_any_moment_loses_no_desk(desks: Desks) -> None:
    _killed_creates(desks, MORE_MOMENTS)


def _killed_closes(desks: Desks, app: App, moments: list[float]) -> None:
    desks.configure("d")
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        for moment in moments:
            process = desks.spawn("close", "alice", "--json")
            time.sleep(moment)
            process.kill()
            process.communicate()
            if desks.rows()["alice"]["owner_alive"] is not True:
                desks.ok("create", "bob", "--wait", "60")
                assert who(client, app) == NOBODY
                desks.ok("close", "bob", "--discard")
            again = desks.ok("resume", "alice", "--wait", "60")
            assert again["desk"] == "d"
            assert who(client, app) == "alice"


@pytest.mark.slow
def test_a_close_that_is_killed_loses_neither_login_nor_desk(desks: Desks, app: App) -> None:
    _killed_closes(desks, app, MOMENTS)


@pytest.mark.slow
def test_a_close_that_is_killed_at_any_moment_loses_neither_login_nor_desk(desks: Desks, app: App) -> None:
    _killed_closes(desks, app, MORE_MOMENTS)


HALF_BLANKED = """
import os, signal
from pytest_peaks.desks.browsing import Work
def blank(self, *, all_contexts):
    # The storage goes before the cookies do.
    session = self._context.new_cdp_session(self._context.pages[0])
    session.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "local_storage,indexeddb"})
    os.kill(os.getpid(), signal.SIGKILL)
Work.blank = blank
from pytest_peaks.cli import main
main()
"""


def test_a_close_that_is_killed_while_it_blanks_the_desk_has_saved_before_and_nothing_is_saved_after(
    desks: Desks, app: App
) -> None:
    desks.configure("d")
    with desks.client(desks.ok("create", "alice")) as client:
        enter(client, app, "alice")
        done = subprocess.run(
            [sys.executable, "-c", HALF_BLANKED, "session", "close", "alice"],
            cwd=desks.folder,
            env=desks.env(),
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == -signal.SIGKILL
        saved = desks.state("alice").read_bytes()
        assert desks.rows()["alice"]["owner_alive"] is False
        assert [row["session"] for row in desks.ok("cleanup")["released"]] == ["alice"]
        assert desks.state("alice").read_bytes() == saved
        desks.ok("resume", "alice")
        assert whose(client, app) == {"alice"}


@pytest.mark.parametrize("moment", [0.3, 0.9])
def test_ctrl_c_during_create_leaves_no_session_and_no_leased_desk(desks: Desks, moment: float) -> None:
    process = desks.spawn("create", "alice", "--json")
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    if done.returncode == 0:  # it was faster
        assert desks.rows()["alice"]["status"] == "active"
        return
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert desks.rows() == {}
    found = desks.ok("pool")
    assert found["leased"] == {}
    assert found["free"] == list(DESKS)
    assert desks.ok("create", "alice")["desk"] == ONE


@pytest.mark.slow
def test_a_stopped_browser_is_replaced(desks: Desks, app: App) -> None:
    desks.configure("d")
    made = desks.ok("create", "alice")
    desks.ok("close", "alice")
    before = desks.record("d").processes["browser"]
    psutil.Process(before.pid).suspend()
    again = desks.ok("resume", "alice")
    assert again["mcp_url"] == made["mcp_url"]
    assert not before.is_alive()
    with desks.client(again) as client:
        assert who(client, app) == NOBODY


@pytest.mark.slow
def test_a_dialog_that_is_open_is_named_as_what_holds_up_a_save(desks: Desks, app: App) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        client.call("browser_evaluate", function="() => { setTimeout(() => alert('hi'), 0); }")
        assert "dialog" in desks.fails("not_saved", 5, "save", "alice")["message"]
        client.call("browser_handle_dialog", accept=True)
        assert desks.ok("save", "alice")["saved"] is True
        assert who(client, app) == "alice"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["alert('hi')", "while (true);"], ids=["dialog", "hangs"])
def test_close_saves_a_login_though_a_tab_hangs(desks: Desks, app: App, script: str) -> None:
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        enter(client, app, "alice")
        desks.ok("save", "alice")
        assert titles(client, f"{app.url}/enter/local?user=carol") == ["in"]
        with contextlib.suppress(McpFailedError):
            quick = McpClient(made["mcp_url"], timeout=3.0)
            quick.call("browser_evaluate", function=f"() => {{ setTimeout(() => {{ {script} }}, 0); }}")
        closed = desks.ok("close", "alice")
        assert closed["saved"] is True
    again = desks.ok("resume", "alice")
    with desks.client(again) as client:
        assert whose(client, app) == {"alice", "carol"}


@pytest.mark.slow
def test_a_browser_that_is_stopped_under_her_does_not_hold_up_for_ever(desks: Desks, app: App) -> None:
    desks.configure("d")
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
    desks.ok("save", "alice")
    psutil.Process(desks.record("d").processes["browser"].pid).suspend()
    start = time.monotonic()
    refused = desks.fails("not_saved", 5, "close", "alice")
    assert "--no-save" in refused["hint"]
    assert time.monotonic() - start < 120
    assert desks.rows()["alice"]["status"] == "active"
    closed = desks.ok("close", "alice", "--no-save")
    assert closed["freed_desk"] == "d"
    again = desks.ok("resume", "alice")
    with desks.client(again) as client:
        assert who(client, app) == "alice"


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Another program listens on a port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


def test_a_desk_whose_port_is_taken_is_passed_over_and_not_blamed(desks: Desks) -> None:
    desks.configure("a", "b")
    with taken(desks.port(0)):
        assert desks.ok("create", "alice")["desk"] == "b"
        refused = desks.fails("port_exhausted", 3, "create", "bob")
        assert str(desks.port(0)) in refused["message"]
        assert str(desks.config) in refused["hint"]
        assert "bob" not in desks.rows()
        assert desks.desk_states() == {"a": "free", "b": "leased"}
    assert desks.ok("create", "bob")["desk"] == "a"


def rested(desks: Desks) -> None:
    """Let desks that were put aside have been so for long."""
    ledger = json.loads(desks.ledger.read_text())
    for desk in ledger["desks"].values():
        if desk["since"]:
            for key in ("wall", "machine"):
                desk["since"][key] -= 1000
    desks.ledger.write_text(json.dumps(ledger))


def test_desks_that_fail_are_named_put_aside_given_up_and_revived(desks: Desks) -> None:
    fails = desks.folder / "fails"
    fails.write_text("#!/bin/sh\necho no good >&2\nexit 3\n")
    fails.chmod(0o755)
    broken = [{"name": name, "executable": str(fails)} for name in ("a", "b")]
    desks.configure(*broken, max_errors=2)
    refused = desks.fails("desk_failed", 5, "create", "alice")
    assert "a: " in refused["message"]
    assert "b: " in refused["message"]
    assert desks.desk_states() == {"a": "quarantined", "b": "quarantined"}
    assert desks.rows() == {}
    refused = desks.fails("no_free_desk", 3, "create", "alice")
    assert "a is quarantined" in refused["message"], "not tried again at once"
    rested(desks)
    desks.fails("desk_failed", 5, "create", "alice")
    assert desks.desk_states() == {"a": "dead", "b": "dead"}
    rested(desks)
    refused = desks.fails("no_free_desk", 3, "create", "alice")
    assert "a is dead" in refused["message"]
    assert "pool --up" in refused["hint"]
    failing = one_object(desks.run("pool", "--up", "--json"))
    assert failing["ok"] is False
    assert [row["desk"] for row in failing["failed"]] == ["a", "b"]
    desks.configure("a", "b")
    desks.ok("pool", "--up")
    assert desks.ok("create", "alice")["desk"] == "a"


@pytest.mark.slow
def test_a_browser_is_replaced_after_so_many_uses(desks: Desks) -> None:
    desks.configure("d", max_uses=2)
    desks.ok("create", "alice")
    first = desks.record("d").processes["browser"]
    desks.ok("close", "alice")
    desks.ok("resume", "alice")
    assert desks.record("d").processes["browser"] == first
    desks.ok("close", "alice")
    assert not first.is_alive()
    desks.ok("resume", "alice")
    assert desks.record("d").processes["browser"] != first


# --- Owners


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_the_desk_of_a_dead_owner_is_free_at_once_and_what_was_unsaved_is_saved(
    desks: Desks, app: App, sleeper: subprocess.Popen[bytes]
) -> None:
    desks.configure("d")
    made = desks.ok("create", "alice", "--owner-pid", str(sleeper.pid))
    with desks.client(made) as client:
        log_in(client, app.url, "alice")
        age(desks, 10**6)
        refused = desks.fails("no_free_desk", 3, "create", "bob")
        assert "d -> alice" in refused["message"], "however idle, whoever lives is not robbed"
        assert desks.rows()["alice"]["held_by"] == {
            "kind": "terminal",
            "pid": sleeper.pid,
            "host": desks.rows()["alice"]["held_by"]["host"],
        }
        sleeper.kill()
        sleeper.wait()
        assert desks.rows()["alice"]["owner_alive"] is False
        assert desks.ok("create", "bob", PEAKS_OWNER_PID=str(os.getpid()))["desk"] == "d"
        assert who(client, app) == NOBODY
        row = desks.rows()["alice"]
        assert (row["status"], row["state_exists"]) == ("detached", True)
        assert desks.rows()["bob"]["held_by"]["pid"] == os.getpid()
        desks.ok("close", "bob")
        desks.ok("resume", "alice")
        assert who(client, app) == "alice"


def test_an_owner_that_does_not_run_is_refused(desks: Desks) -> None:
    for arguments, env in ((("--owner-pid", "4194305"), {}), ((), {"PEAKS_OWNER_PID": "me"})):
        desks.fails("invalid_option", 2, "create", "alice", "--no-browser", *arguments, **env)
    assert desks.rows() == {}
