"""`--peaks-attach`: tests in a browser that is there already, of which nothing is touched but what they made."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from leaks import Surroundings
from test_isolation import STORES

from pytest_peaks.doors.mcp import driver_command
from pytest_peaks.doors.mcp_client import McpClient
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

Peaks = Callable[..., subprocess.CompletedProcess[str]]

TESTS = """
import pytest
from stores import *
URL = {site!r}

@pytest.mark.parametrize("number", range(4))
def test_it(peaks_session, peaks_page, peaks_context, peaks_browser, number):
    assert peaks_context.pages == [peaks_page]
    assert found(peaks_page, URL) == {{}}
    peaks_page.evaluate(DIRTY, "a test")
    peaks_context.new_page()
    peaks_context.set_offline(True)
    peaks_browser.new_context().new_page()
    assert peaks_session.isolation == "fresh"

@pytest.mark.peaks_session(locale="de-DE", viewport={{"width": 320, "height": 480}})
def test_options(peaks_page):
    assert peaks_page.evaluate("[navigator.language, innerWidth]") == ["de-DE", 320]

def test_two(peaks_sessions):
    alice, bob = peaks_sessions("alice", "bob")
    alice.page.goto(URL)
    alice.page.evaluate("localStorage.setItem('k', 'alice')")
    bob.page.goto(URL)
    assert bob.page.evaluate("localStorage.getItem('k')") is None
"""
COUNT = 6


@dataclass
class Theirs:
    """A browser that belongs to somebody: a hosted session with two tabs and data in it."""

    session: dict[str, Any]
    mcp: McpClient
    peaks: Peaks
    cwd: Path

    @property
    def ws(self) -> str:
        return str(self.session["endpoints"]["cdp"])

    @property
    def http(self) -> str:
        return "http://" + self.ws.split("/")[2]

    def unharmed(self) -> None:
        """As it was: its process, its tabs and what is in them, no others, no other context."""
        [row] = json.loads(self.peaks("playwright", "ls", "--json", cwd=self.cwd).stdout)["sessions"]
        assert (row["alive"], row["pid"]) == (True, self.session["pid"])
        assert row["tabs"] == 2, "a tab of a test is left, or one of theirs is closed"
        tabs = self.mcp.call("browser_tabs", action="list").text
        assert "/first" in tabs
        assert "/second" in tabs
        kept = self.mcp.call(
            "browser_evaluate", function="() => [localStorage.k, sessionStorage.k, document.cookie, window.k]"
        )
        assert json.loads(kept.section("Result")) == ["theirs", "theirs", "k=theirs", "theirs"]


@pytest.fixture
def theirs(project: pytest.Pytester, peaks: Peaks, surroundings: Surroundings, site: str) -> Iterator[Theirs]:
    project.makepyfile(stores=STORES)
    project.makepyfile(test_it=TESTS.format(site=site))
    done = peaks("playwright", "start", "--terminal", "theirs", "--json", cwd=project.path)
    assert done.returncode == 0, done.stdout + done.stderr
    started = json.loads(done.stdout)
    try:
        with McpClient(started["mcpUrl"]) as mcp:
            mcp.call("browser_navigate", url=site + "/first")
            mcp.call("browser_tabs", action="new")
            mcp.call("browser_navigate", url=site + "/second")
            mcp.call(
                "browser_evaluate",
                function="() => { localStorage.k = sessionStorage.k = window.k = 'theirs';"
                " document.cookie = 'k=theirs' }",
            )
            yield Theirs(started["session"], mcp, peaks, project.path)
    finally:
        stopped = peaks("playwright", "stop", "--terminal", "theirs", cwd=project.path)
        assert stopped.returncode == 0, stopped.stderr


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("target", ["terminal", "ws", "http"])
def test_in_contexts_of_their_own(
    project: pytest.Pytester, theirs: Theirs, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    where = {"terminal": "theirs", "ws": theirs.ws, "http": theirs.http}[target]
    result = run(project, "-n0", "-v", f"--peaks-attach={where}")
    result.assert_outcomes(passed=COUNT)
    result.stdout.fnmatch_lines(["nothing left behind"])
    theirs.unharmed()


def test_from_two_workers(project: pytest.Pytester, theirs: Theirs) -> None:
    result = run(project, "-n2", "--peaks-attach=theirs")
    result.assert_outcomes(passed=COUNT)
    result.stdout.fnmatch_lines(["slot 0 *", "slot 1 *", "nothing left behind"])
    theirs.unharmed()


PROFILE = """
import pytest
URL = {site!r}

@pytest.mark.peaks_session(isolation="profile")
@pytest.mark.parametrize("number", range(2))
def test_in_their_own_context(peaks_session, peaks_page, peaks_context, number):
    assert len(peaks_context.pages) == 3, "theirs, and this test's"
    peaks_page.goto(URL)
    assert peaks_page.evaluate("[localStorage.k, document.cookie]") == ["theirs", "k=theirs"]
    peaks_context.new_page()
    peaks_context.route("**/*", lambda route: route.abort())
    peaks_context.add_init_script("window.left = 1")

def test_fresh(peaks_page):
    peaks_page.goto(URL)
    assert peaks_page.evaluate("localStorage.k") is None

@pytest.mark.peaks_session(isolation="browser")
def test_a_process_of_its_own(peaks_session):
    assert peaks_session.pid != {pid}
    peaks_session.page.goto(URL)
"""


def test_a_profile_is_theirs_and_only_the_tests_tabs_are_closed(
    project: pytest.Pytester, theirs: Theirs, site: str
) -> None:
    project.makepyfile(test_it=PROFILE.format(site=site, pid=theirs.session["pid"]))
    run(project, "-n0", "-v", "--peaks-attach=theirs").assert_outcomes(passed=4)
    theirs.unharmed()


def test_what_needs_the_browsers_own_context_is_refused(project: pytest.Pytester, theirs: Theirs) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.peaks_session(isolation="profile")
        def test_profile(peaks_page): raise SystemExit

        def test_door(peaks_mcp): raise SystemExit

        def test_fresh(peaks_page): peaks_page.goto("about:blank")
        """
    )
    result = run(project, "-n2", "--peaks-attach=theirs")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*INVALID_OPTION: isolation='profile' with more than one worker and --peaks-attach contradict *",
            "*INVALID_OPTION: doors and --peaks-attach contradict each other*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    theirs.unharmed()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("failing", marks=pytest.mark.slow),
        pytest.param("os._exit(3)", marks=pytest.mark.slow),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_however_the_run_ends_it_stays(project: pytest.Pytester, theirs: Theirs, how: str) -> None:
    project.makepyfile(
        test_it=f"""
        import os, signal
        def test_it(peaks_page, peaks_context):
            peaks_page.goto("about:blank")
            peaks_context.new_page()
            {"assert False" if how == "failing" else how}
        """
    )
    assert run(project, "-n1", "--max-worker-restart=0", "--peaks-attach=theirs").ret != 0
    deadline = time.monotonic() + 30
    while True:  # the connection of a killed worker ends a little later, and its contexts with it
        try:
            theirs.unharmed()
            break
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_browser_that_dies_meanwhile(project: pytest.Pytester, theirs: Theirs) -> None:
    project.makepyfile(
        test_it=f"""
        import os, signal, pytest
        def test_kills(peaks_page):
            os.kill({theirs.session["pid"]}, signal.SIGKILL)
            peaks_page.goto("about:blank")

        def test_next(peaks_page):
            peaks_page.goto("about:blank")
        """
    )
    result = run(project, "-n0", "--peaks-attach", theirs.ws)
    result.assert_outcomes(failed=1, errors=1)
    assert "BROWSER_LOST: " in result.stdout.str()
    again = theirs.peaks("playwright", "start", "--terminal", "theirs", cwd=project.path)  # to be stopped
    assert again.returncode == 0, again.stderr


# --- Targets that are none


def test_a_browser_without_cdp(project: pytest.Pytester, theirs: Theirs) -> None:
    """As a Firefox, whose MCP server is the only way in; here a record that says so."""
    file = project.path / ".peaks" / "_runtime" / "playwright-sessions" / "theirs.json"
    before = file.read_text()
    record = json.loads(before)
    file.write_text(json.dumps({**record, "browser": "firefox", "endpoints": {"mcp": theirs.mcp.url}}))
    result = run(project, "-n0", "-k", "options", "--peaks-attach=theirs")
    joined = theirs.peaks("mcp", "--terminal", "theirs", cwd=project.path)
    file.write_text(before)
    result.assert_outcomes(errors=1, deselected=COUNT - 1)
    assert "INVALID_OPTION: firefox has no CDP, so the session of theirs can't be attached to" in str(
        result.stdout
    )
    assert (joined.returncode, joined.stdout) == (2, "")
    assert joined.stderr == (
        "INVALID_OPTION: firefox has no CDP, so the session of theirs can't be joined over stdio\n"
        f"hint: connect to its MCP server: {theirs.mcp.url}\n"
    )


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nobody", "NO_SESSION: no playwright session of terminal nobody"),
        ("ws://127.0.0.1:{port}/devtools/browser/x", "BROWSER_LOST: no browser answers at "),
        ("http://127.0.0.1:{port}", "BROWSER_LOST: no browser answers at "),
        ("http://", "INVALID_OPTION: --peaks-attach: 'http://' names no host"),
        ("ws://127.0.0.1:{port}/", "BROWSER_LOST: no browser answers at "),
    ],
)
@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def test_nobody_there(
    project: pytest.Pytester, surroundings: Surroundings, target: str, says: str, workers: str
) -> None:
    project.makepyfile(
        "import pytest\n@pytest.mark.parametrize('number', range(2))\n"
        "def test_it(peaks_page, number): raise SystemExit\n"
    )
    where = target.format(port=surroundings.ports[7])
    began = time.monotonic()
    result = run(project, workers, f"--peaks-attach={where}")
    assert time.monotonic() - began < 60
    result.assert_outcomes(errors=2)
    output = result.stdout.str()
    for part in says.split("*"):
        assert part in output, output
    assert where in output, "the user's own word"
    assert "Traceback" not in output
    assert "pytest_peaks/" not in output, "a line of ours"
    assert "port 0" not in output


@pytest.mark.parametrize("target", ["ftp://127.0.0.1", "../x", "a b", "x://"])
def test_a_bad_url_is_a_usage_error(project: pytest.Pytester, target: str) -> None:
    project.makepyfile("def test_it(peaks_page): raise SystemExit")
    result = run(project, "-n0", f"--peaks-attach={target}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--peaks-attach: " in result.stderr.str()
    assert not (project.path / ".peaks").exists()


def test_the_ini_file_and_the_environment(
    project: pytest.Pytester, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        test_it=f"""
        def test_it(peaks_browser):
            told = peaks_browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
            assert {theirs.session["pid"]} in [process["id"] for process in told if process["type"] == "browser"]
        """
    )
    monkeypatch.setenv("PEAKS_ATTACH", "theirs")
    run(project, "-n0").assert_outcomes(passed=1)
    monkeypatch.delenv("PEAKS_ATTACH")
    project.makeini("[pytest]\naddopts = -p no:playwright\npeaks_attach = theirs\n")
    run(project, "-n0").assert_outcomes(passed=1)
    theirs.unharmed()


# --- A Playwright server


@pytest.fixture
def server(tmp_path: Path, surroundings: Surroundings) -> Iterator[str]:
    """The WebSocket URL of a Playwright server with a browser that it launches."""
    found = browsers.find(BrowserSpec())
    config = tmp_path / "launch.json"
    config.write_text(
        json.dumps(
            {"headless": True, "executablePath": str(found.executable), "chromiumSandbox": False, "args": []}
        )
    )
    node, script = driver_command()
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [node, script, "launch-server", "--browser", "chromium", "--config", str(config)],
            stdout=output,
            stderr=output,
            cwd=tmp_path,
        )
    try:
        deadline = time.monotonic() + 60
        while "ws://" not in (text := log.read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)
        yield next(line.strip() for line in text.splitlines() if "ws://" in line)
        assert process.poll() is None, "a run ended the server"
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        process.wait(60)
        for child in children:
            if child.is_running():
                child.kill()
        for left in surroundings.temp.glob("playwright*"):
            _remove(left)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def test_a_playwright_server(project: pytest.Pytester, server: str, site: str, workers: str) -> None:
    project.makepyfile(stores=STORES)
    project.makepyfile(test_it=TESTS.format(site=site))
    result = run(project, workers, f"--peaks-attach={server}")
    result.assert_outcomes(passed=COUNT)
    result.stdout.fnmatch_lines(["nothing left behind"])
