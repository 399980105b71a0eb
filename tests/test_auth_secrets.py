"""Nothing that a saved login holds is in what a run prints, leaves behind, or shows of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from authapp import App, serve
from leaks import Surroundings
from test_auth_login import HOOK, MANY, cookie, make, state_file
from test_auth_replay import NO_XDIST, WITH_PLAYWRIGHT

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc")

CANARY = b"canary"
# How a child is known by its command line. pytest and its workers are not among them: they need the secrets.
CHILDREN = {
    "driver": "run-driver",
    "browser": "--user-data-dir=",
    "MCP server": "door_notes.mjs",
    "CLI daemon": "cliDaemon",
    "guardian": "pytest_peaks.session.guardian",
    "supervisor": "pytest_peaks.hosting.supervisor",
}


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


class Sampler:
    """Looks at the processes of a test again and again.

    :ivar kinds: those of :data:`CHILDREN` that were seen.
    :ivar found: where the canary was, in words.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self.kinds: set[str] = set()
        self.found: set[str] = set()
        self._surroundings = surroundings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            for process in self._surroundings.processes():
                with contextlib.suppress(psutil.Error, OSError):
                    line = b" ".join(part.encode() for part in process.cmdline())
                    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                    kinds = {kind for kind, mark in CHILDREN.items() if mark.encode() in line}
                    self.kinds |= kinds
                    if CANARY in line:
                        self.found.add(f"command line of {line[:200]!r}")
                    if kinds and (CANARY in environment or b"PEAKS_STATE_KEY" in environment):
                        self.found.add(f"environment of {kinds}")


def files_with_canary(*folders: Path) -> list[str]:
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            # What Python compiled of the tests' own source has their words in one piece.
            if path.suffix == ".pyc" or not path.is_file() or path.is_symlink():
                continue
            if CANARY in path.read_bytes():
                found.append(str(path))
    return found


HOOKS = """
import logging

def pytest_peaks_auth(name):
    return {"per_slot": True, "write_back": True} if name == "written" else None

def pytest_peaks_accounts(name):
    return [{"name": user, "password": "canary" + "password"} for user in ("a", "b")] if name == "staff" else None

def pytest_peaks_login(name, page, account):
    logging.getLogger(__name__).warning("logging in as %s with %r", name, account)
    secret = "can" + "ary-of-the-hook"
    page.goto(f"{APP}/enter/session?user={name}")
    page.wait_for_function("document.title == 'in'")
    page.goto(f"{APP}/enter/indexed?user={name}")
    page.wait_for_function("document.title == 'in'")
    page.goto(f"{APP}/login?user={name}&token={secret}")
    if name == "fails":
        page.click("#nowhere", timeout=100)
    page.click("button")
    page.wait_for_url("**/me")

def pytest_peaks_check_login(name, page):
    page.goto(APP + "/me")
    return True
"""
RUN = """
FOLDER = pathlib.Path(".peaks/auth")

def fail(*shown):
    session, spec = shown[0], getattr(shown[0], "_spec", None)
    begins_with = getattr(session, "_begins_with", None)
    state = getattr(begins_with, "_state", None)
    login = getattr(begins_with, "_login", None)
    logins = getattr(getattr(session, "_owner", None), "logins", None)
    raise AssertionError("on purpose: %r %r %r" % (session, state, login))

@pytest.mark.parametrize("doors", [(), ("mcp", "cli")])
def test_fails(request, doors):
    request.node.add_marker(pytest.mark.peaks_session(doors=doors, auth="admin"))
    session = request.getfixturevalue("peaks_session")
    session.page.goto(APP + "/me")
    if doors:
        session.mcp.call("browser_tabs", action="list")
        session.cli("tab-list")
    fail(session)

@pytest.mark.peaks_session(auth="staff")
def test_fails_with_an_account(peaks_session, peaks_account):
    assert peaks_account["name"] == "nobody"

@pytest.mark.peaks_session(auth="from-env")
def test_from_the_environment(peaks_session):
    assert [cookie["name"] for cookie in peaks_session.context.cookies()] == ["sid"]
    fail(peaks_session)

@pytest.mark.peaks_session(auth="fails")
@pytest.mark.parametrize("number", range(2))
def test_login_fails(peaks_page, number):
    pass

@pytest.mark.parametrize("isolation", ["fresh", "profile"])
def test_replay_fails(request, isolation):
    request.node.add_marker(pytest.mark.peaks_session(isolation=isolation, auth="refused"))
    request.getfixturevalue("peaks_page")

@pytest.mark.peaks_session(auth="refused")
def test_replay_fails_in_pytest_playwrights_context(page):
    pass

@pytest.mark.peaks_session(auth="written")
def test_write_back_fails(peaks_page, peaks_slot):
    peaks_page.goto(APP + "/me")
    file = FOLDER / f"written@slot{peaks_slot}.json"
    file.unlink()
    file.mkdir()

@pytest.mark.peaks_session(auth="damaged")
def test_damaged(peaks_page):
    pass

@pytest.fixture
def of_the_user(peaks_session_factory):
    state = "can" + "ary"
    del state
    with peaks_session_factory(auth="refused") as session:
        yield session.page

def test_in_a_fixture_of_the_users(of_the_user):
    pass
"""


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("canarykey of the run", id="encrypted"),
        pytest.param("", id="plain", marks=pytest.mark.slow),
    ],
)
def test_no_secret_is_in_any_byte_that_a_run_prints_leaves_or_shows_of_its_children(
    project: pytest.Pytester,
    app: App,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    key: str,
) -> None:
    make(project, app, RUN, WITH_PLAYWRIGHT + HOOKS)
    project.makeini("[pytest]\nlog_level = DEBUG\n")
    folder = state_file(project).parent
    folder.mkdir(parents=True, mode=0o700)
    (folder / "damaged.json").write_text('{"cookies": [{"value": "canary')
    # Well formed, and the browser takes only the first half.
    refused = {
        "cookies": [cookie("sid")],
        "origins": [
            {"origin": app.url, "localStorage": [{"name": "k", "value": "canary" + "x" * 6 * 2**20}]}
        ],
        "peaks": {"v": 1, "sessionStorage": {app.url: {"k": "canary"}}},
    }
    (folder / "refused.json").write_text(json.dumps(refused))
    monkeypatch.setenv("PEAKS_AUTH_FROM_ENV", json.dumps({"cookies": [cookie("sid")], "origins": []}))
    if key:
        monkeypatch.setenv("PEAKS_STATE_KEY", key)
    with Sampler(surroundings) as sampler:
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-n2", "-rA", "-vv", "--showlocals", "--tb=long",
                "--log-cli-level=DEBUG", "--log-file=log.txt", "--junitxml=junit.xml", "-o", "junit_logging=all",
            ],
            cwd=project.path, capture_output=True, check=False, timeout=300,
        )  # fmt: skip
    output = done.stdout + done.stderr
    text = output.decode()
    # What the tests themselves do not write in one piece.
    shown = [line for line in text.splitlines() if "canary" in line]
    assert shown == [], text
    assert " 6 failed, 2 passed, 5 errors in " in text, text
    assert sampler.found == set()
    assert sampler.kinds == set(CHILDREN) - {"supervisor"}, "each kind of child was looked at"
    for code in ("LOGIN_FAILED", "REPLAY_FAILED", "INVALID_STATE"):
        assert code in text
    assert "<State " in text, "the state is among the values that were shown"
    left = files_with_canary(project.path, surroundings.temp, surroundings.runtime, tmp_path)
    known = {str(project.path / "conftest.py"), str(folder / "damaged.json"), str(folder / "refused.json")}
    saved = {str(path) for path in folder.iterdir()}
    assert set(left) - known <= (set() if key else saved), (
        "only in the saved logins, and there only without a key"
    )
    assert not key or any(path.name == "admin.json" for path in folder.iterdir())
    surroundings.assert_clean(project.path)


READS_KEY = """
def test_where_the_key_is(peaks_page):
    assert "PEAKS_STATE_KEY" not in os.environ
"""


def test_a_key_from_a_descriptor_reaches_the_workers_and_no_environment(
    project: pytest.Pytester, app: App, surroundings: Surroundings
) -> None:
    make(project, app, MANY + READS_KEY)
    (project.path / "key").write_text("canarykey\n")

    def run(key: str, *arguments: str) -> str:
        command = f'exec 9<{key}; exec "$0" -m pytest "$@"'
        done = subprocess.run(
            ["bash", "-c", command, sys.executable, *arguments],
            cwd=project.path, env={**os.environ, "PEAKS_STATE_KEY_FD": "9"}, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        return done.stdout + done.stderr

    with Sampler(surroundings) as sampler:
        assert "9 passed" in run("key", "-n2")
    assert sampler.found == set()
    assert app.logins == ["admin"], "one worker opens what the other has saved"
    kept = state_file(project).read_bytes()
    assert b"peaksEncrypted" in kept
    assert CANARY not in kept
    (project.path / "other").write_text("another key\n")
    said = run("other", *NO_XDIST)
    assert "1 passed, 8 errors" in said, said
    assert f"STATE_LOCKED: {state_file(project)} cannot be decrypted: the key is another one" in said
    assert state_file(project).read_bytes() == kept, "the hook could log in, but the file is kept"
    assert app.logins == ["admin"]
    said = run("/dev/null", "-n1", "-k", "0")
    assert "STATE_KEY: nothing was to be read from PEAKS_STATE_KEY_FD=9" in said, said


def test_a_hosted_sessions_processes_have_none_of_it_in_their_environment(
    project: pytest.Pytester,
    peaks: Callable[..., subprocess.CompletedProcess[str]],
    surroundings: Surroundings,
) -> None:
    secrets = {"PEAKS_AUTH_ADMIN": "canary", "PEAKS_STATE_KEY": "canary", "PEAKS_STATE_KEY_FD": "7"}
    port = str(surroundings.ports[-1])
    with Sampler(surroundings) as sampler:
        started = peaks(
            "playwright", "start", "--terminal", "t1", "--port", port, cwd=project.path, env=secrets
        )
        assert started.returncode == 0, started.stderr
        deadline = time.monotonic() + 60
        while not {"supervisor", "browser", "MCP server"} <= sampler.kinds and time.monotonic() < deadline:
            time.sleep(0.02)
        peaks("playwright", "stop", "--terminal", "t1", cwd=project.path)
    assert {"supervisor", "browser", "MCP server"} <= sampler.kinds
    assert sampler.found == set()


def test_hook_of_saved_logins_is_not_shown_its_own_secret_by_pytest(
    project: pytest.Pytester, app: App
) -> None:
    tests = """
@pytest.mark.peaks_session(auth="admin")
def test_it(peaks_page):
    raise AssertionError("on purpose")
"""
    make(project, app, tests, HOOK)
    result = project.runpytest_subprocess(*NO_XDIST, "--full-trace", "--showlocals", "--tb=long")
    result.assert_outcomes(failed=1)
    assert "canary" not in result.stdout.str()
