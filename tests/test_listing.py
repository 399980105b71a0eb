"""`peaks playwright ls` without click says exactly what it says with click, and imports next to nothing."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest

from pytest_peaks.session import light
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Kind, Record, Status, now_iso
from pytest_peaks.session.registry import Registry

HEAVY = (
    "click",
    "psutil",
    "filelock",
    "http.client",
    "tempfile",
    "dataclasses",
    "typing",
    "pathlib",
    "platform",
)
TABS: dict[str, Any] = {
    "two": [{"type": "page", "url": "about:blank"}, {"type": "page"}, {"type": "worker", "url": "x"}],
    "none": [],
}


def run(*arguments: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom pytest_peaks.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


WITH_CLICK = "import pytest_peaks.cli as cli; cli._without_click = lambda _: None"


def both(folder: Path, *arguments: str) -> tuple[str, str, int]:
    """What `peaks playwright ls` says, the same with click and without, but for the seconds of ages."""
    said = []
    for before in ("", WITH_CLICK):
        done = run("playwright", "ls", *arguments, folder=folder, before=before)
        said.append(
            (re.sub(r'(age=|"ageSeconds": )\d+', r"\g<1>0", done.stdout), done.stderr, done.returncode)
        )
    assert said[0] == said[1]
    return said[0]


class _Browser(BaseHTTPRequestHandler):
    answer = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-LENGTH", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # one answers for many here, and all are asked at once

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that only knocks


@pytest.fixture
def browsers() -> Iterator[dict[str, int]]:
    """Ports on which something answers for a browser."""
    answers = {**{name: json.dumps(tabs).encode() for name, tabs in TABS.items()}, "odd": b"<html>"}
    servers = {}
    for name, answer in answers.items():
        servers[name] = _Server(("127.0.0.1", 0), type("_Answers", (_Browser,), {"answer": answer}))
        threading.Thread(target=servers[name].serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield {
            **{name: server.server_port for name, server in servers.items()},
            "silent": silent.getsockname()[1],
        }
    for server in servers.values():
        server.shutdown()
        server.server_close()


def record(name: str, port: int, cdp: int | None = None, **changes: Any) -> Record:
    endpoints = {"mcp": f"http://127.0.0.1:{port}/mcp"}
    if cdp is not None:
        endpoints["cdp"] = f"ws://127.0.0.1:{cdp}/devtools/browser/x"
    return Record(
        name,
        port,
        "chromium",
        "",
        now_iso(),
        ProcessIdentity.of_self(),
        pid=os.getpid(),
        status="ready",
        kind="hosted",
        endpoints=endpoints,
    ).with_(**changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    ProjectDirs.locate(tmp_path).create()
    return tmp_path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_with_and_without_click_it_says_the_same(folder: Path, browsers: dict[str, int]) -> None:
    assert both(folder)[0] == "no playwright sessions running\n"
    assert json.loads(both(folder, "--json")[0])["sessions"] == []
    registry = Registry(ProjectDirs.locate(folder).records)
    me, two = ProcessIdentity.of_self(), browsers["two"]
    dead = ProcessIdentity(me.pid, me.started + 1, me.host, me.boot, me.namespace)
    for each in (
        record("two", two, two),
        record("none", two, browsers["none"]),
        record("odd", two, browsers["odd"]),
        record("silent", two, browsers["silent"]),
        record("without-browser", two),
        record("not-there", free_port(), two),
        record("dead", two, two, owner=dead),
        record("starting", 0, status="starting", started_at="once"),
        record("elsewhere", two, two, owner=ProcessIdentity(1, 1, "moon", me.boot, me.namespace)),
        record("workers", two, two, kind="worker"),
        record("colourful", two, two, browser="\x1b[31mred"),
    ):
        registry.write(each)
    (registry.folder / "broken.json").write_text("{")
    (registry.folder / "other.json").write_bytes(registry.path_of("two").read_bytes())
    (registry.folder / "later.json").write_text('{"schema": 99}')
    (registry.folder / "folder.json").mkdir()
    text = both(folder)[0]
    found = json.loads(both(folder, "--json")[0])
    told = {session["terminalId"]: (session["state"], session["tabs"]) for session in found["sessions"]}
    assert told == {
        "two": ("alive", 2),
        "none": ("alive", 0),
        "odd": ("alive", None),
        "silent": ("alive", None),
        "without-browser": ("alive", None),
        "colourful": ("alive", 2),
        "not-there": ("dead", None),
        "dead": ("dead", None),
        "starting": ("starting", None),
        "elsewhere": ("elsewhere", None),
    }
    assert text.count("not a record: ") == len(found["problems"]) == 4
    fields = {key: found["sessions"][0][key] for key in record("x", 1).to_json()}
    assert Record.from_json(fields).to_json() == fields
    assert both(folder, "--all")[2] == 0


def test_a_list_imports_next_to_nothing(folder: Path) -> None:
    code = f"""
import atexit
atexit.register(lambda: print("imported:", [name for name in {HEAVY} if name in sys.modules], file=sys.stderr))
"""
    Registry(ProjectDirs.locate(folder).records).write(record("mine", free_port()))
    for arguments in (("playwright", "ls"), ("--json", "playwright", "ls"), ("playwright", "ls", "--json")):
        done = run(*arguments, folder=folder, before=code)
        assert (done.stderr, done.returncode) == ("imported: []\n", 0), arguments


@pytest.mark.parametrize(
    "words", [["--help"], ["--frobnicate"], ["more"], ["--project", "."], ["--json", "--all"]]
)
def test_what_is_out_of_the_ordinary_goes_the_other_way(folder: Path, words: list[str]) -> None:
    never = "import pytest_peaks.cli.listed as listed; listed.without_click = lambda **_: 99"
    assert run("playwright", "ls", folder=folder, before=never).returncode == 99
    done = run("playwright", "ls", *words, folder=folder, before=never)
    assert done.returncode == (2 if words[0] in ("--frobnicate", "more") else 0)
    both(folder, *words)


def test_a_failure_and_an_interrupt_are_told_as_ever(folder: Path) -> None:
    broken = """
import pytest_peaks.hosting.looking as looking
def rows(*_):
    raise {}
looking.rows = rows
"""
    for arguments in ((), ("--json",)):
        for error, code, status in (
            ("OSError('full')", "UNEXPECTED", 1),
            ("KeyboardInterrupt", "INTERRUPTED", 130),
        ):
            ways = [
                run("playwright", "ls", *arguments, folder=folder, before=broken.format(error) + before)
                for before in ("", WITH_CLICK)
            ]
            said = [(done.stdout, done.stderr, done.returncode) for done in ways]
            assert said[0] == said[1]
            assert code in said[0][0] + said[0][1]
            assert said[0][2] == status


def test_the_words_of_records_are_the_same_everywhere() -> None:
    assert get_args(Kind) == light.KINDS
    assert get_args(Status) == light.STATUSES
