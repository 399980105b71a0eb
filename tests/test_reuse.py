"""`--peaks-reuse`: each slot's browser is kept for the next run, blank, and never shared by two runs."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from driven import driven
from leaks import Surroundings
from test_isolation import STORES

from pytest_peaks.session import browsers
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.spec import BrowserSpec

Peaks = Callable[..., subprocess.CompletedProcess[str]]

# A run tells which browser each of its tests had.
CONFTEST = """
import json, os, pathlib, signal, time, pytest

HERE = pathlib.Path(__file__).parent
SEEN = HERE / "seen"

def write(name, **facts):
    SEEN.mkdir(exist_ok=True)
    part = SEEN / f".{os.getpid()}-{name}"
    part.write_text(json.dumps(facts))
    part.replace(SEEN / name)

def wait_for(*names):
    deadline = time.monotonic() + 90
    while not all((SEEN / name).exists() for name in names):
        assert time.monotonic() < deadline, names
        time.sleep(0.02)
"""

PLAIN = """
from conftest import write

def test_it(peaks_session, peaks_page, peaks_slot):
    peaks_page.goto("data:text/html,<title>page</title>")
    assert peaks_page.title() == "page"
    write(f"slot{peaks_slot}", pid=peaks_session.pid)
"""

# A test on each of two workers, at the same time.
ON_BOTH = """
import pytest
from conftest import wait_for, write

@pytest.mark.parametrize("number", range(2))
def test_it(peaks_session, peaks_page, peaks_slot, number):
    peaks_page.goto("data:text/html,<title>page</title>")
    write(f"slot{peaks_slot}", pid=peaks_session.pid)
    wait_for("slot0", "slot1")
"""


def slow(value: str) -> object:
    """A case that takes long and shows little beyond what its neighbours do."""
    return pytest.param(value, marks=pytest.mark.slow)


class Kept:
    """The sessions that runs of a project keep, as the `peaks` command tells of them."""

    def __init__(self, project: pytest.Pytester, peaks: Peaks, surroundings: Surroundings) -> None:
        self.project = project
        self._peaks = peaks
        self.surroundings = surroundings

    def run(self, *arguments: str, reuse: str | None = "--peaks-reuse") -> pytest.RunResult:
        for path in self.seen.glob("*") if self.seen.exists() else ():
            path.unlink()
        given = [*arguments, *([reuse] if reuse else [])]
        return self.project.runpytest_subprocess("-p", "no:cacheprovider", *given)

    @property
    def seen(self) -> Any:
        return self.project.path / "seen"

    def pid(self, name: str = "slot0") -> int:
        """The browser that a test of the last run told of."""
        return int(json.loads((self.seen / name).read_text())["pid"])

    def rows(self) -> dict[str, dict[str, Any]]:
        done = self._peaks("playwright", "ls", "--json", cwd=self.project.path)
        assert done.returncode == 0, done.stderr
        return {row["terminalId"]: row for row in json.loads(done.stdout)["sessions"]}

    def pids(self) -> dict[str, int]:
        """Of the sessions that live."""
        return {name: row["pid"] for name, row in self.rows().items() if row["alive"]}

    def process(self, part: str, name: str = "pytest-slot0") -> psutil.Process:
        """``browser``, ``mcp``, or ``owner``."""
        row = self.rows()[name]
        found = row["owner"] if part == "owner" else row["identities"][part]
        return psutil.Process(found["pid"])

    def stop_all(self) -> None:
        done = self._peaks("playwright", "stop", "--all", cwd=self.project.path)
        assert done.returncode == 0, done.stderr
        self.surroundings.assert_clean(self.project.path)

    def wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.05)


@pytest.fixture
def kept(
    project: pytest.Pytester, peaks: Peaks, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kept]:
    monkeypatch.delenv("CI", raising=False)
    project.makeconftest(CONFTEST)
    made = Kept(project, peaks, surroundings)
    yield made
    made.stop_all()


def says(result: pytest.RunResult, *patterns: str) -> None:
    result.stdout.fnmatch_lines([f"*{pattern}*" for pattern in patterns])


# --- Kept, used again, ended


def test_the_next_run_uses_the_same_browser(kept: Kept, surroundings: Surroundings) -> None:
    kept.project.makepyfile(PLAIN)
    first = kept.run("-n0")
    first.assert_outcomes(passed=1)
    says(first, "pytest-slot0 is kept for the next run (port *)", "nothing left behind")
    [row] = kept.rows().values()
    assert (row["terminalId"], row["alive"], row["pid"]) == ("pytest-slot0", True, kept.pid())
    assert row["tabs"] == 1, "the browser's own"
    second = kept.run("-n0")
    second.assert_outcomes(passed=1)
    says(second, "pytest-slot0 is used again (port *, * s old)", "nothing left behind")
    assert kept.pid() == row["pid"]
    assert kept.pids() == {"pytest-slot0": row["pid"]}
    assert not list((surroundings.runtime / "uses").iterdir()), "the lease is given back"
    # Stopped by its name, as a terminal's is; the next run starts anew.
    kept.stop_all()
    assert kept.rows() == {}
    third = kept.run("-n0")
    says(third, "pytest-slot0 is kept for the next run")
    assert kept.pid() != row["pid"]


@pytest.mark.slow
def test_each_slot_has_its_own(kept: Kept) -> None:
    kept.project.makepyfile(ON_BOTH)
    kept.run("-n2").assert_outcomes(passed=2)
    before = kept.pids()
    assert sorted(before) == ["pytest-slot0", "pytest-slot1"]
    assert len(set(before.values())) == 2
    again = kept.run("-n2")
    again.assert_outcomes(passed=2)
    says(again, "pytest-slot0 is used again", "pytest-slot1 is used again", "nothing left behind")
    assert kept.pids() == before
    assert {f"pytest-{name}": kept.pid(name) for name in ("slot0", "slot1")} == before
    # Without xdist it is slot 0's, and the other one stays.
    kept.project.makepyfile(PLAIN)
    kept.run("-n0").assert_outcomes(passed=1)
    assert kept.pid() == before["pytest-slot0"]
    assert kept.pids() == before
    # A run without the option has its own.
    plain = kept.run("-n0", reuse=None)
    plain.assert_outcomes(passed=1)
    assert kept.pid() not in before.values()
    assert kept.pids() == before
    plain.stdout.no_fnmatch_line("*pytest-slot0*")


BLANK = """
from stores import *
from conftest import write
URLS = ({site!r}, {other!r})

def blank(page):
    for url in URLS:
        assert found(page, url) == {{}}, url

def test_1_sees_nothing(peaks_page, peaks_context, peaks_browser, peaks_session):
    write("slot0", pid=peaks_session.pid)
    assert len(peaks_browser.contexts) == 2, "the browser's own and this test's"
    assert len(peaks_browser.contexts[0].pages) == 1, "a tab of an earlier run"
    blank(peaks_page)
    own = peaks_browser.contexts[0]
    page = own.new_page()
    blank(page)
    assert own.cookies() == []
    assert page.evaluate("navigator.permissions.query({{name: 'geolocation'}}).then(p => p.state)") != "granted"
    for url in URLS:
        page.goto(url)
        page.evaluate(DIRTY, "an earlier run")
        assert EVERYTHING <= set(found(page, url))
    own.grant_permissions(["geolocation"])
    own.new_page().goto(URLS[0])

def test_2_door(peaks_page, peaks_mcp):
    blank(peaks_page)
    peaks_page.evaluate(DIRTY, "an earlier run")

def test_3_leaves_contexts_of_another_client(peaks_session):
    # One that is not Playwright's would be left in the browser.
    session = peaks_session.browser.new_browser_cdp_session()
    targets = session.send("Target.getTargets")["targetInfos"]
    pages = [target for target in targets if target["type"] == "page"]
    assert len(pages) == 1, "one of an earlier run"
    assert len(session.send("Target.getBrowserContexts")["browserContextIds"]) == 1, "there is this test's"
    context = session.send("Target.createBrowserContext")["browserContextId"]
    session.send("Target.createTarget", {{"url": URLS[0], "browserContextId": context}})
"""


def test_what_is_used_again_is_blank(kept: Kept, site: str) -> None:
    kept.project.makepyfile(stores=STORES)
    kept.project.makepyfile(BLANK.format(site=site, other=site.replace("127.0.0.1", "localhost")))
    for _ in range(3):
        result = kept.run("-n0")
        result.assert_outcomes(passed=3)
    says(result, "pytest-slot0 is used again")
    assert kept.pids() == {"pytest-slot0": kept.pid()}


# --- Replaced


@pytest.mark.slow
def test_other_options_mean_another_browser(kept: Kept) -> None:
    if not (executable := _another_executable()):
        pytest.skip("one Chromium only")
    kept.project.makepyfile(PLAIN)
    kept.run("-n0").assert_outcomes(passed=1)
    before = kept.pid()
    other = kept.run("-n0", f"--peaks-executable={executable}")
    other.assert_outcomes(passed=1)
    says(other, "pytest-slot0 was started with other options: replaced")
    assert kept.pid() != before
    assert kept.pids() == {"pytest-slot0": kept.pid()}
    assert not psutil.pid_exists(before)
    same = kept.run("-n0", f"--peaks-executable={executable}")
    says(same, "pytest-slot0 is used again")


def _another_executable() -> str:
    """A Chromium that is not the one found by default."""
    import shutil

    default = browsers.find(BrowserSpec()).executable
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return next((path for path in found if path and path != str(default)), "")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("victim", ["browser", *map(slow, ("mcp", "owner"))])
def test_one_that_died_is_replaced(kept: Kept, victim: str) -> None:
    kept.project.makepyfile(PLAIN)
    kept.run("-n0").assert_outcomes(passed=1)
    before = kept.pid()
    kept.process(victim).kill()
    again = kept.run("-n0")
    again.assert_outcomes(passed=1)
    # Its supervisor may have cleared it away by then, and nothing tells of it any more.
    says(again, "pytest-slot0 is kept for the next run", "nothing left behind")
    assert kept.pid() != before
    assert kept.pids() == {"pytest-slot0": kept.pid()}


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="POSIX signals")
@pytest.mark.parametrize("victim", ["browser", slow("mcp"), slow("owner")])
def test_one_that_hangs_is_replaced_and_holds_up_nothing(kept: Kept, victim: str) -> None:
    kept.project.makepyfile(PLAIN)
    kept.run("-n0").assert_outcomes(passed=1)
    before = kept.pid()
    identity = ProcessIdentity.of(before)
    assert identity is not None
    stopped = kept.process(victim)
    stopped.suspend()
    began = time.monotonic()
    again = kept.run("-n0")
    took = time.monotonic() - began
    again.assert_outcomes(passed=1)
    if victim == "owner":
        # Nobody asks its supervisor for anything.
        says(again, "pytest-slot0 is used again", "nothing left behind")
        assert kept.pid() == before
    else:
        says(again, "pytest-slot0 does not answer: replaced", "nothing left behind")
        assert kept.pid() != before
        assert not identity.is_alive()
    assert took < 30, f"{took:.0f} s"
    if stopped.is_running():
        stopped.resume()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_test_that_kills_it(kept: Kept, surroundings: Surroundings) -> None:
    kept.project.makepyfile(
        PLAIN
        + """
import os, signal
PIDS = []

def test_kills(peaks_session, peaks_page):
    PIDS.append(peaks_session.pid)
    os.kill(peaks_session.pid, signal.SIGKILL)
    peaks_page.goto("data:text/html,too late")

def test_next(peaks_session, peaks_page):
    peaks_page.goto("data:text/html,<title>next</title>")
    assert peaks_page.title() == "next"
    assert peaks_session.pid not in PIDS
    write("next", pid=peaks_session.pid)
"""
    )
    kept.run("-n0", "-k", "test_it").assert_outcomes(passed=1)
    result = kept.run("-n0")
    result.assert_outcomes(passed=2, failed=1)
    says(result, "BROWSER_LOST: the browser of session *", "nothing left behind")
    assert not list((surroundings.runtime / "uses").iterdir()), "the lease is given back"
    pids = kept.pids()
    again = kept.run("-n0", "-k", "test_it")
    again.assert_outcomes(passed=1)
    assert kept.pids() == {"pytest-slot0": kept.pid()}
    if pids:
        assert pids == kept.pids(), "the one that replaced it is kept"


@pytest.mark.slow
def test_a_worker_that_crashes(kept: Kept) -> None:
    """The one that replaces it has its slot, and its session."""
    kept.project.makepyfile(
        """
        import os
        from conftest import write

        def test_1(peaks_session, peaks_page):
            peaks_page.goto("data:text/html,page")
            write("first", pid=peaks_session.pid)

        def test_2_crashes(peaks_session, peaks_page):
            os._exit(7)

        def test_3(peaks_session, peaks_page):
            peaks_page.goto("data:text/html,<title>page</title>")
            assert peaks_page.title() == "page"
            write("last", pid=peaks_session.pid)
        """
    )
    result = kept.run("-n1")
    result.assert_outcomes(passed=2, failed=1)
    assert kept.pid("first") == kept.pid("last")
    assert kept.pids() == {"pytest-slot0": kept.pid("last")}


FAILING_WIPE = """
from pytest_peaks.doors import wipe
real, calls = wipe.wipe, []
def failing(*arguments):
    calls.append(1)
    if len(calls) == 1:
        raise wipe.WipeFailedError("as the test wants it")
    return real(*arguments)
wipe.wipe = failing
"""


def test_one_that_cannot_be_blanked_is_replaced(kept: Kept) -> None:
    kept.project.makepyfile(PLAIN)
    kept.run("-n0").assert_outcomes(passed=1)
    before = kept.pid()
    kept.project.makepyfile(failing=FAILING_WIPE)
    again = kept.run("-n0", "-p", "failing")
    again.assert_outcomes(passed=1)
    says(again, "pytest-slot0 could not be blanked: replaced", "pytest-slot0 is kept for the next run")
    assert kept.pid() != before
    assert kept.pids() == {"pytest-slot0": kept.pid()}


# --- --peaks-fresh


@pytest.mark.slow
def test_fresh_ends_all_that_were_kept(kept: Kept) -> None:
    kept.project.makepyfile(ON_BOTH)
    kept.run("-n2").assert_outcomes(passed=2)
    before = kept.pids()
    kept.project.makepyfile(PLAIN)
    result = kept.run("-n0", "--peaks-fresh")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(["pytest-slot0 is ended", "pytest-slot1 is ended"])
    says(result, "pytest-slot0 is kept for the next run")
    assert kept.pids() == {"pytest-slot0": kept.pid()}
    assert kept.pid() not in before.values()
    # Alone: they are ended, and this run keeps nothing.
    result = kept.run("-n0", "--peaks-fresh", reuse=None)
    result.assert_outcomes(passed=1)
    says(result, "pytest-slot0 is ended", "nothing left behind")
    assert kept.rows() == {}


@pytest.mark.slow
def test_fresh_with_two_workers(kept: Kept) -> None:
    kept.project.makepyfile(ON_BOTH)
    kept.run("-n2").assert_outcomes(passed=2)
    before = kept.pids()
    for _ in range(3):
        kept.run("-n2", "--peaks-fresh").assert_outcomes(passed=2)
        after = kept.pids()
        assert sorted(after) == ["pytest-slot0", "pytest-slot1"]
        assert not set(after.values()) & set(before.values())
        assert {f"pytest-{name}": kept.pid(name) for name in ("slot0", "slot1")} == after
        before = after


# --- Two runs at once


SITTING = """
from conftest import wait_for, write

def test_sits(peaks_session, peaks_page, peaks_slot):
    write("sits", pid=peaks_session.pid, slot=peaks_slot)
    wait_for("go")
    peaks_page.goto("data:text/html,<title>page</title>")
    assert peaks_page.title() == "page", "somebody blanked it meanwhile"
"""


def test_two_runs_at_once_never_share_one(kept: Kept) -> None:
    kept.project.makepyfile(test_sits=SITTING, test_it=PLAIN)
    with driven(kept.project, "-n0", "test_sits.py", "--peaks-reuse", "-p", "no:cacheprovider") as first:
        sitting = json.loads(first.wait_for("sits").read_text())["pid"]
        for more in ([], ["--peaks-fresh"]):
            (kept.seen / "slot0").unlink(missing_ok=True)
            second = kept.project.runpytest_subprocess("-n0", "test_it.py", "--peaks-reuse", *more)
            second.assert_outcomes(passed=1)
            says(second, "pytest-slot0 is in use by another run: this one starts its own browser")
            says(second, "nothing left behind")
            assert kept.pid() != sitting
            assert kept.pids() == {"pytest-slot0": sitting}
        first.go_on()
        assert first.end() == 0, first.output
    assert kept.pids() == {"pytest-slot0": sitting}
    kept.run("-n0", "test_it.py").assert_outcomes(passed=1)
    assert kept.pid() == sitting, "free again"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGKILL", slow("SIGTERM")])
@pytest.mark.parametrize("workers", ["-n0", slow("-n2")])
def test_a_run_that_is_killed_gives_its_session_back(kept: Kept, name: str, workers: str) -> None:
    kept.project.makepyfile(test_sits=SITTING, test_it=PLAIN if workers == "-n0" else ON_BOTH)
    with driven(kept.project, workers, "test_sits.py", "--peaks-reuse", "-p", "no:cacheprovider") as first:
        sitting = json.loads(first.wait_for("sits").read_text())
        first.send_to_group(signal.Signals[name])
        first.end()
    kept.wait_until(lambda: not _of_run(kept), "the killed run is gone")
    slot = f"slot{sitting['slot']}"
    assert kept.pids() == {f"pytest-{slot}": sitting["pid"]}
    again = kept.run(workers, "test_it.py")
    again.assert_outcomes(passed=1 if workers == "-n0" else 2)
    says(again, f"pytest-{slot} is used again")
    assert kept.pid(slot) == sitting["pid"]


def _of_run(kept: Kept) -> list[psutil.Process]:
    """Processes of a run in the project, but for those of kept sessions."""
    own = {row["owner"]["pid"] for row in kept.rows().values()}
    found = []
    for process in kept.surroundings.processes():
        try:
            parents = {process.pid, *(parent.pid for parent in process.parents())}
            command = process.cmdline()
        except psutil.Error:
            continue
        if not parents & own and "ls" not in command:
            found.append(process)
    return found


# --- How it is asked for


@pytest.mark.slow
def test_ignored_in_ci_unless_forced(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    kept.project.makepyfile(PLAIN)
    ignored = kept.run("-n0")
    ignored.assert_outcomes(passed=1)
    says(ignored, "--peaks-reuse is ignored in CI; --peaks-reuse=force insists", "nothing left behind")
    assert kept.rows() == {}
    for line in ("is kept for the next run", "is used again"):
        forced = kept.run("-n0", reuse="--peaks-reuse=force")
        forced.assert_outcomes(passed=1)
        says(forced, line)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--peaks-reuse", "test_it.py"],
        ["test_it.py", "--peaks-reuse"],
        pytest.param(["--peaks-reuse", "-v", "test_it.py"], marks=pytest.mark.slow),
        pytest.param(["--peaks-reuse=on", "test_it.py"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_where_the_switch_stands(kept: Kept, arguments: list[str]) -> None:
    kept.project.makepyfile(test_it=PLAIN, test_other="def test_other(): raise SystemExit")
    result = kept.run("-n0", *arguments, reuse=None)
    result.assert_outcomes(passed=1)
    says(result, "pytest-slot0 is kept for the next run")


@pytest.mark.slow
def test_the_switch_with_workers_and_in_addopts(kept: Kept) -> None:
    kept.project.makeini("[pytest]\naddopts = -p no:playwright -p no:cacheprovider --peaks-reuse\n")
    kept.project.makepyfile(test_it=PLAIN)
    result = kept.run("-n1", "test_it.py", reuse=None)
    result.assert_outcomes(passed=1)
    says(result, "pytest-slot0 is kept for the next run")
    off = kept.run("-n0", reuse="--peaks-reuse=off")
    off.assert_outcomes(passed=1)
    assert kept.pid() not in kept.pids().values()


def test_the_ini_file_and_the_environment(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.project.makepyfile(PLAIN)
    monkeypatch.setenv("PEAKS_REUSE", "on")
    says(kept.run("-n0", reuse=None), "pytest-slot0 is kept for the next run")
    monkeypatch.delenv("PEAKS_REUSE")
    kept.project.makeini("[pytest]\naddopts = -p no:playwright -p no:cacheprovider\npeaks_reuse = on\n")
    says(kept.run("-n0", reuse=None), "pytest-slot0 is used again")


def test_a_wrong_value_is_a_usage_error(kept: Kept) -> None:
    kept.project.makepyfile(PLAIN)
    result = kept.run("-n0", reuse="--peaks-reuse=sometimes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INVALID_OPTION: --peaks-reuse: 'sometimes' is not a kind of reuse" in result.stderr.str()
    assert "on, off, force" in result.stderr.str()


# --- With the other ways to have a browser


OTHERS = """
import pytest
from stores import *
from conftest import write
URL = {site!r}
PIDS = {{}}

def test_1_fresh(peaks_session):
    PIDS["kept"] = peaks_session.pid
    write("slot0", pid=peaks_session.pid)

@pytest.mark.peaks_session(isolation="browser")
def test_2_browser(peaks_session):
    assert found(peaks_session.page, URL) == {{}}
    peaks_session.page.evaluate(DIRTY, "browser")
    assert peaks_session.pid != PIDS["kept"]

@pytest.mark.peaks_session(isolation="profile")
@pytest.mark.parametrize("number", range(2))
def test_3_profile(peaks_session, number):
    kept = found(peaks_session.page, URL)
    assert ("localStorage" in kept) == (number == 1), "of this run, not of the last one"
    peaks_session.page.evaluate(DIRTY, "profile")
    assert peaks_session.pid != PIDS["kept"]

@pytest.mark.parametrize("number", range(2))
def test_4_door(peaks_session, peaks_mcp, number):
    assert peaks_session.pid == PIDS["kept"]
    peaks_mcp.call("browser_navigate", url=URL)
    assert found(peaks_session.page, URL) == {{}}
    peaks_session.page.evaluate(DIRTY, "door")

@pytest.mark.peaks_session(mcp_caps=("pdf",))
def test_5_door_with_caps(peaks_session, peaks_mcp):
    assert peaks_session.pid == PIDS["kept"]
    assert "browser_pdf_save" in {{tool.name for tool in peaks_mcp.tools}}
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_session.page.title() == "page"

@pytest.mark.peaks_session(locale="de-DE")
def test_6_door_with_context_options(peaks_session, peaks_mcp):
    assert peaks_session.pid != PIDS["kept"]
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_session.page.evaluate("navigator.language") == "de-DE"

@pytest.mark.peaks_session(user_data_dir="mine")
def test_7_a_users_own_profile(peaks_session):
    assert peaks_session.pid != PIDS["kept"]

def test_8_fresh_again(peaks_session):
    assert peaks_session.pid == PIDS["kept"]
    assert found(peaks_session.page, URL) == {{}}
"""


@pytest.mark.slow
def test_other_isolation_in_a_run_that_reuses(kept: Kept, site: str) -> None:
    kept.project.makepyfile(stores=STORES)
    kept.project.makepyfile(OTHERS.format(site=site))
    for line in ("is kept for the next run", "is used again"):
        result = kept.run("-n0")
        result.assert_outcomes(passed=10)
        says(result, line, "nothing left behind")
        assert kept.pids() == {"pytest-slot0": kept.pid()}
