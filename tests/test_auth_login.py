"""One login for any number of workers: who logs in, who waits, what is renewed, who gets which account."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from authapp import App, serve, until
from driven import CONFTEST, driven, kill
from leaks import Surroundings

from pytest_peaks.session.identity import ProcessIdentity

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

HOOK = """
def pytest_peaks_login(name, page, account):
    page.goto(f"{APP}/login?user={name}")
    page.click("button")
    page.wait_for_url("**/me")
    return True
"""
ONE = """
@pytest.mark.peaks_session(auth="admin")
def test_logged_in(peaks_page):
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == "admin"
"""
FORTY = """
@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range(40))
def test_logged_in(peaks_page, number):
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == "admin"
"""


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


def make(project: pytest.Pytester, app: App, tests: str, hooks: str = HOOK, head: str = "") -> None:
    """A project with tests and hooks of its own, which know where the application is."""
    names = f"import os, pathlib, time\nimport pytest\nAPP = {app.url!r}\n"
    project.makeconftest(f"{CONFTEST}{head}\n{names}{hooks}")
    (project.path / "seen").mkdir(exist_ok=True)
    project.makepyfile(test_it=f"{names}from conftest import *\n{tests}")


def state_file(project: pytest.Pytester, name: str = "admin") -> Path:
    return project.path / ".peaks" / "auth" / f"{name}.json"


def test_forty_tests_on_four_workers_log_in_once(
    project: pytest.Pytester, app: App, surroundings: Surroundings
) -> None:
    make(project, app, FORTY)
    result = project.runpytest_subprocess("-n4")
    result.assert_outcomes(passed=40)
    assert app.logins == ["admin"]
    result.stdout.re_match_lines([r"logged in as 'admin'$"])
    surroundings.assert_clean(project.path)
    file = state_file(project)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (project.path / ".peaks" / ".gitignore").read_text().splitlines()[-2:] == ["*", "!pool.json"]

    again = project.runpytest_subprocess("-k", "test_logged_in and 7")
    assert again.ret == 0
    assert app.logins == ["admin"], "the next run takes what is saved"
    assert "logged in as" not in again.stdout.str()


FAILING = """
@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range(9))
def test_never_runs(peaks_page, number):
    raise AssertionError("it ran")
"""
REFUSED = """
def pytest_peaks_login(name, page, account):
    page.goto(f"{APP}/login?user={name}&secret=canary")
    page.click("button")
    assert page.title() == name, "wrong " + "password"
"""


def test_a_failed_login_fails_once_and_every_waiting_test_gets_that_error(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, FAILING, REFUSED)
    app.refuses = True
    app.gate.clear()
    with driven(project, "-n3") as run:
        until(lambda: run.output.count("waits for the login 'admin' of gw") >= 2, "two workers that wait")
        app.gate.set()
        assert run.end() == 1
        output = run.output
    assert app.logins == ["admin"], "nine tests, one attempt"
    assert run.outcomes() == {"errors": 9}
    said = "LOGIN_FAILED: auth 'admin': the login failed at " + re.escape(app.url)
    said += r"/login: AssertionError: wrong password"
    place = r" \(conftest.py:\d+\)"
    assert len(re.findall(f"^E? *{said}{place}", output, re.MULTILINE)) >= 9, output
    assert len(re.findall(r"\(in (gw\d); not tried again in this run\)$", output, re.MULTILINE)) >= 8
    assert "canary" not in output, "nothing of the URL that may be a token"
    [picture] = set(re.findall(r"^E? *hint: how the page looked: (.*)$", output, re.MULTILINE))
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    assert stat.S_IMODE(Path(picture).stat().st_mode) == 0o600
    assert not state_file(project).exists()


WAYS_TO_FAIL = """
NAMES = ["raises", "says-false", "does-nothing", "fails", "skips", "closes", "elsewhere", "loses"]

@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("name", NAMES)
def test_way(request, name, number):
    request.node.add_marker(pytest.mark.peaks_session(auth=name))
    request.getfixturevalue("peaks_page").goto(APP + "/me")

def test_each_was_called_once():
    calls = pathlib.Path("calls").read_text().split()
    for name in NAMES:
        assert calls.count(name) == (2 if name == "skips" else 1), name
"""
HOOKS_THAT_FAIL = """
def pytest_peaks_login(name, page, account):
    with open("calls", "a") as calls:
        calls.write(name + "\\n")
    if name == "raises":
        raise ValueError("no good\\nsecond line")
    if name == "says-false":
        return False
    if name == "does-nothing":
        return None
    if name == "fails":
        pytest.fail("the server says no")
    if name == "skips":
        pytest.skip("no server here")
    if name == "closes":  # its tab, with a login in the context
        page.goto(f"{APP}/page")
        page.close()
        return True
    if name == "loses":
        page.context.browser.close()
        return True

def pytest_configure(config):
    class Elsewhere:
        @pytest.hookimpl(trylast=True)
        def pytest_peaks_login(self, name, page, account):
            if name == "elsewhere":
                page.goto(f"{APP}/login?user=elsewhere")
                page.click("button")
                return True
    config.pluginmanager.register(Elsewhere())
"""


def test_whatever_a_hook_does_that_is_no_login_is_said_and_not_done_again(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, WAYS_TO_FAIL, HOOKS_THAT_FAIL)
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=10, skipped=2, passed=5)
    output = result.stdout.str()
    for name, reason in (
        ("raises", r"ValueError: no good \(conftest.py:\d+\)"),
        ("says-false", "pytest_peaks_login says that it did not log in"),
        ("does-nothing", "no pytest_peaks_login hook did anything for it"),
        ("fails", r"Failed: the server says no \(conftest.py:\d+\)"),
        ("loses", r"TargetClosedError: .*has been closed.*"),
    ):
        said = rf"LOGIN_FAILED: auth '{name}': the login failed( at \S+)?: {reason}"
        assert len(re.findall(rf"^E .*{said}", output, re.MULTILINE)) >= 2, (name, output)
    assert "second line" not in output
    assert app.logins == ["elsewhere"], "the first hook leaves it to the next one"


MANY = """
@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range(8))
def test_logged_in(peaks_page, number):
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == "admin"
"""
TELLING = """
def pytest_peaks_login(name, page, account):
    write(f"in-{os.environ['PYTEST_XDIST_WORKER']}", process=ProcessIdentity.of_self().to_json())
    page.goto(f"{APP}/login?user={name}")
    page.click("button")
    page.wait_for_url("**/me")
"""


def test_when_the_worker_that_logs_in_is_killed_another_takes_over(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, MANY, TELLING)
    app.gate.clear()
    with driven(project, "-n3") as run:
        until(app.began.is_set, "a login")
        until(lambda: run.output.count("waits for the login") >= 2, "two workers that wait")
        [note] = run.seen.glob("in-gw*")
        kill(ProcessIdentity.from_json(json.loads(note.read_text())["process"]))
        app.gate.set()
        assert run.end() == 1
        assert run.outcomes() == {"failed": 1, "passed": 7}, run.output
    assert app.logins == ["admin", "admin"]
    assert f"worker '{note.name[3:]}' crashed" in run.output


@pytest.mark.slow
def test_when_every_worker_dies_at_it_that_is_said_after_three(project: pytest.Pytester, app: App) -> None:
    make(project, app, MANY, "def pytest_peaks_login(name, page):\n    os.kill(os.getpid(), 9)\n")
    with driven(project, "-n2") as run:
        assert run.end() == 1
        assert run.outcomes() == {"failed": 3, "errors": 5}, run.output
    assert run.output.count("auth 'admin': 3 workers died while they were logging in") >= 5


def test_two_runs_at_once_log_in_once_and_the_second_says_whom_it_waits_for(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, MANY)
    app.gate.clear()
    with driven(project, "-p", "no:xdist") as first:
        until(app.began.is_set, "a login")
        output = project.path / "second.txt"
        with output.open("wb") as out:
            second = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-n2"], cwd=project.path, stdout=out, stderr=out
            )
        until(
            lambda: "waits for the login 'admin' of another run" in output.read_text(),
            f"a word to the user: {output.read_text()}",
        )
        app.gate.set()
        assert first.end() == 0, first.output
        assert second.wait(90) == 0, output.read_text()
    assert app.logins == ["admin"]


@pytest.mark.parametrize("workers", ["no:xdist", pytest.param("-n2", marks=pytest.mark.slow)])
def test_an_interrupt_in_the_middle_of_a_login_leaves_nothing_and_no_verdict(
    project: pytest.Pytester, app: App, surroundings: Surroundings, workers: str
) -> None:
    make(project, app, MANY)
    app.gate.clear()
    arguments = ["-p", workers] if workers.startswith("no") else [workers]
    with driven(project, *arguments) as run:
        until(app.began.is_set, "a login")
        run.send(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM, run.output
    app.gate.set()
    surroundings.assert_clean(project.path)
    assert not state_file(project).exists()
    project.runpytest_subprocess("-p", "no:xdist", "-k", "7").assert_outcomes(passed=1, deselected=7)
    # Another worker may have begun before it heard of the interrupt.
    assert len(app.logins) in ((2,) if workers == "no:xdist" else (2, 3))


# Freshness


def cookie(name: str, *, ends: float = -1, **more: object) -> dict[str, object]:
    return {
        "name": name, "value": "canaryvalue", "domain": "shop.example", "path": "/", "expires": ends,
        "httpOnly": True, "secure": False, "sameSite": "Lax", **more,
    }  # fmt: skip


def save(project: pytest.Pytester, name: str, *cookies: dict[str, object], **extras: object) -> Path:
    """A saved login as the store keeps it."""
    file = state_file(project, name)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = {"cookies": list(cookies), "origins": []}
    file.write_text(json.dumps({**state, "peaks": {"v": 1, **extras}} if extras else state))
    file.chmod(0o600)
    return file


STALE = """
@pytest.mark.parametrize("name", ["ended", "old", "missing", "fine"])
def test_state(request, name):
    request.node.add_marker(pytest.mark.peaks_session(auth=name))
    request.getfixturevalue("peaks_page")
"""


def test_a_stale_login_without_a_hook_is_named_with_the_command_that_renews_it(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, STALE, hooks="")
    now = time.time()
    save(project, "ended", cookie("sid", ends=now - 3 * 3600 - 60), cookie("other"))
    old = save(project, "old", cookie("sid"))
    os.utime(old, (now - 2 * 86400 - 60, now - 2 * 86400 - 60))
    save(project, "fine", cookie("sid"), cookie("analytics", ends=now - 9, httpOnly=False))
    (project.path / "pyproject.toml").write_text("[tool.peaks.auth.old]\nmax_age = '8h'\n")
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=3, passed=1)
    output = result.stdout.str()
    for said in (
        "AUTH_EXPIRED: auth 'ended' expired 3 h ago: cookie sid of shop.example",
        "hint: `peaks auth save ended` renews it, as does the hook pytest_peaks_login",
        "AUTH_EXPIRED: auth 'old' is 2 d old, older than its max_age of 8 h",
        f"STATE_NOT_FOUND: there is no saved login 'missing'; looked for {state_file(project, 'missing')}",
        "hint: `peaks auth save missing --url URL`, or the hook pytest_peaks_login in a conftest.py",
    ):
        assert said in output, output
    assert "canaryvalue" not in output


def test_a_stale_login_is_renewed_by_one_login_and_the_run_says_why(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, MANY)
    save(project, "admin", cookie("sid", ends=time.time() - 3 * 3600 - 60))
    result = project.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=8)
    result.stdout.re_match_lines(
        [r"auth 'admin' expired 3 h ago: cookie sid of shop.example; logged in again$"]
    )
    assert app.logins == ["admin"]
    kept = json.loads(state_file(project).read_text())
    assert [entry["name"] for entry in kept["cookies"]] == ["sid", "seen"]
    assert kept["peaks"]["important"] == [["sid", "localhost", "/"], ["seen", "localhost", "/"]]


def test_a_stale_login_from_the_environment_gives_way_to_one_login(
    project: pytest.Pytester, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, app, MANY)
    stale = {"cookies": [cookie("sid", ends=time.time() - 60)], "origins": []}
    monkeypatch.setenv("PEAKS_AUTH_ADMIN", json.dumps(stale))
    project.runpytest_subprocess("-n2").assert_outcomes(passed=8)
    assert app.logins == ["admin"]


CHECK = """
def pytest_peaks_check_login(name, page):
    with open("checks", "a") as checks:
        checks.write(os.environ.get("PYTEST_XDIST_WORKER", "main") + "\\n")
    page.goto(APP + "/me")
    return page.title() == "admin"
"""


@pytest.mark.slow
def test_the_check_hook_has_a_login_renewed_that_the_server_has_forgotten(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, MANY, HOOK + CHECK)
    project.runpytest_subprocess("-p", "no:xdist", "-k", "0 or 1").assert_outcomes(passed=2, deselected=6)
    assert not (project.path / "checks").exists(), "what was just made is not asked after"
    project.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=8)
    assert (project.path / "checks").read_text().split() == ["main"], "eight tests ask once"
    assert app.logins == ["admin"]
    app.end_all()
    result = project.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=8)
    result.stdout.re_match_lines([r"auth 'admin' is logged out: .*check_login says no; logged in again$"])
    assert app.logins == ["admin", "admin"]

    app.end_all()
    make(project, app, ONE, CHECK)
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*AUTH_EXPIRED: auth 'admin' is logged out: pytest_peaks_check_login says no"]
    )
    make(project, app, ONE, HOOK + "def pytest_peaks_check_login(name, page):\n    page.goto('nowhere')\n")
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines(
        [r".*LOGIN_FAILED: auth 'admin' could not be checked: Error: .*\(conftest.py:\d+\)$"]
    )
    assert "source.py" not in result.stdout.str(), "the user's own line, and none of ours"


# Tokens that rotate

ROTATING = """
def pytest_peaks_login(name, page, account):
    page.goto(f"{APP}/rotate?user={name}")

def pytest_peaks_auth(name):
    return {"per_slot": True, "write_back": True}
"""
ROTATE = """
@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range(8))
def test_token_is_good_once(peaks_page, number):
    peaks_page.goto(APP + "/rotate")
    assert peaks_page.title() == "admin"

def test_several(peaks_sessions):
    alice = peaks_sessions("alice", auth="admin")
    alice.page.goto(APP + "/rotate")
    assert alice.page.title() == "admin"
"""


def test_a_token_that_is_good_once_lasts_when_each_slot_writes_its_own_back(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, ROTATE, ROTATING)
    project.runpytest_subprocess("-n2").assert_outcomes(passed=9)
    assert app.logins == ["admin", "admin"], "one a slot"
    assert {file.name for file in state_file(project).parent.iterdir()} == {
        "admin@slot0.json", "admin@slot1.json",
    }  # fmt: skip
    project.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=9)
    assert len(app.logins) == 2, "what was written back is good in the next run"


KEEPING = """
FILE = pathlib.Path(".peaks/auth/admin@slot0.json")
pytestmark = pytest.mark.peaks_session(auth="admin")

def test_1_passes_and_is_written_back(peaks_page):
    pathlib.Path("before").write_bytes(FILE.read_bytes())
    peaks_page.goto(APP + "/rotate")
    peaks_page.evaluate("localStorage.setItem('k', 'v')")

def test_2_fails(peaks_page):
    assert FILE.read_bytes() != pathlib.Path("before").read_bytes()
    pathlib.Path("before").write_bytes(FILE.read_bytes())
    peaks_page.goto(APP + "/page")
    peaks_page.evaluate("localStorage.setItem('k', 'of a test that failed')")
    raise AssertionError("on purpose")

def test_3_logs_out(peaks_page, peaks_context):
    assert FILE.read_bytes() == pathlib.Path("before").read_bytes()
    peaks_context.clear_cookies()

def test_4_never_leaves_its_blank_page(peaks_page):
    assert FILE.read_bytes() == pathlib.Path("before").read_bytes()

def test_5_still_has_what_was_in_the_pages_storage(peaks_page):
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate("localStorage.getItem('k')") == "v"

def test_6_is_logged_out_in_the_checks_eyes(peaks_page):
    pathlib.Path("before").write_bytes(FILE.read_bytes())
    pathlib.Path("says-no").touch()

def test_7_was_not_written_back(peaks_page):
    assert FILE.read_bytes() == pathlib.Path("before").read_bytes()
    pathlib.Path("says-no").unlink()
"""


def test_a_login_is_never_written_back_from_a_failed_or_logged_out_test(
    project: pytest.Pytester, app: App
) -> None:
    check = "def pytest_peaks_check_login(name, page):\n    return not pathlib.Path('says-no').exists()\n"
    make(project, app, KEEPING, ROTATING + check)
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(["E  *on purpose"])


# Accounts

ACCOUNTS = """
PEOPLE = [{"name": "alice", "password": "canarypassword"}, {"name": "bob", "password": "canarypassword"}]

def pytest_peaks_accounts(name):
    return PEOPLE

def pytest_peaks_login(name, page, account):
    assert account["password"] == "canarypassword"
    page.goto(f"{APP}/login?user={account['name']}")
    page.click("button")
    page.wait_for_url("**/me")

def pytest_runtest_logreport(report):
    if report.failed and "NO_ACCOUNT" in str(report.longrepr):
        (SEEN / "refused").touch()
"""
AS_ACCOUNT = """
@pytest.mark.peaks_session(auth="staff")
@pytest.mark.parametrize("number", range(6))
def test_as(peaks_page, peaks_account, peaks_session, number):
    if os.environ.get("HOLD"):
        wait_for(SEEN / os.environ["HOLD"])
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == peaks_account["name"]
    assert peaks_session.account == peaks_account
    (SEEN / f"{peaks_account['name']}-by-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}").touch()
    assert "canary" not in repr(peaks_account) + str(peaks_account)
"""


def test_each_slot_has_an_account_for_the_run_and_a_file_for_each(project: pytest.Pytester, app: App) -> None:
    make(project, app, AS_ACCOUNT, ACCOUNTS)
    app.single = True
    project.runpytest_subprocess("-n2").assert_outcomes(passed=6)
    assert sorted(app.logins) == ["alice", "bob"]
    assert app.kicked == [], "one session an account, and never two workers on one"
    used = sorted(path.name for path in (project.path / "seen").glob("*-by-*"))
    assert [name.partition("-by-")[0] for name in used] == ["alice", "bob"], "one worker each"
    files = sorted(file.name for file in (project.path / ".peaks" / "auth").iterdir())
    assert [re.sub(r"-[0-9a-f]{10}\.", ".", name) for name in files] == [
        "staff@alice.json", "staff@bob.json",
    ]  # fmt: skip
    project.runpytest_subprocess("-p", "no:xdist", "-k", "0").assert_outcomes(passed=1, deselected=5)
    assert len(app.logins) == 2, "the next run takes what is saved"


def test_more_workers_than_accounts_is_an_error_and_never_a_share(
    project: pytest.Pytester, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, app, AS_ACCOUNT, ACCOUNTS)
    app.single = True
    monkeypatch.setenv("HOLD", "refused")
    result = project.runpytest_subprocess("-n3")
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) >= 1
    assert outcomes.get("failed", 0) == 0
    result.stdout.re_match_lines(
        [r".*NO_ACCOUNT: all 2 accounts of auth 'staff' are taken by other workers \(alice, bob\)$"]
    )
    assert app.kicked == []
    assert "canarypassword" not in result.stdout.str()


def test_more_workers_than_accounts_wait_if_so_configured(
    project: pytest.Pytester, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, app, AS_ACCOUNT, ACCOUNTS)
    app.single = True
    (project.path / "pyproject.toml").write_text('[tool.peaks.auth.staff]\naccounts = "wait"\n')
    monkeypatch.setenv("HOLD", "go")
    with driven(project, "-n3") as run:
        until(
            lambda: re.search(r"gw\d waits for an account of 'staff'; all 2 are taken", run.output),
            "a worker that waits",
        )
        run.go_on()
        assert run.end() == 0, run.output
        assert run.outcomes() == {"passed": 6}
    assert app.kicked == []


def test_what_is_wrong_with_a_projects_settings_is_said(project: pytest.Pytester, app: App) -> None:
    hooks = """
def pytest_peaks_accounts(name):
    return "alice" if name == "text" else [] if name == "empty" else None

def pytest_peaks_auth(name):
    return {"key": {"maxage": 1}, "list": ["max_age"], "alone": {"write_back": True}}.get(name)

def pytest_peaks_login(name, page):
    raise AssertionError("nobody logs in with wrong settings")
"""
    tests = """
@pytest.mark.parametrize("name", ["text", "empty", "key", "list", "alone", "span"])
def test_state(request, name):
    request.node.add_marker(pytest.mark.peaks_session(auth=name))
    request.getfixturevalue("peaks_page")

def test_account_without_auth(peaks_account):
    pass
"""
    make(project, app, tests, hooks)
    (project.path / "pyproject.toml").write_text("[tool.peaks.auth]\nspan.max_age = 'soon'\n")
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=6, errors=1)
    output = result.stdout.str()
    for said in (
        "INVALID_OPTION: pytest_peaks_accounts('text') gives no list",
        "NO_ACCOUNT: all 0 accounts of auth 'empty' are taken by other workers (none)",
        "INVALID_OPTION: pytest_peaks_auth('key').maxage is not known; there are max_age, per_slot,",
        "INVALID_OPTION: pytest_peaks_auth('list') gives no mapping",
        "INVALID_OPTION: pytest_peaks_auth('alone').write_back needs per_slot",
        "tool.peaks.auth.span.max_age is 'soon', not a time span such as 8h, 30min or 90 (seconds)",
        "INVALID_OPTION: peaks_account is used in a test without auth",
    ):
        assert said in output, output
