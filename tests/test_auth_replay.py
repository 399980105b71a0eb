"""What a saved login brings back, in which kind of session, and that nothing of it comes back after a logout."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from authapp import STORAGES, App, serve
from leaks import Surroundings
from test_auth_login import HOOK, cookie, make, save, state_file

NO_XDIST = ("-p", "no:xdist")
# pytest-playwright beside ours; it is to find the browser that ours found.
WITH_PLAYWRIGHT = """
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    found = browsers.find(BrowserSpec()).executable
    return {**browser_type_launch_args, "executable_path": found, "chromium_sandbox": False}
"""


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


# Every kind of storage

TOKENS = """
def pytest_peaks_login(name, page, account):
    kind = name.partition("-")[0]
    page.goto(f"{APP}/enter/{kind}?user={kind}")
    page.wait_for_function("document.title == 'in'")
"""
KINDS = f"""
KINDS = {STORAGES!r}
WAYS = {{
    "fresh": {{}},
    "profile": {{"isolation": "profile"}},
    "browser": {{"isolation": "browser"}},
    "options": {{"locale": "de-DE", "viewport": {{"width": 300, "height": 300}}}},
    "default": {{"doors": ("mcp",)}},
    "driver": {{"doors": ("mcp",), "locale": "de-DE"}},
}}

def logged_in(page, kind):
    assert page.url == "about:blank"
    page.goto(f"{{APP}}/app/{{kind}}")
    page.wait_for_function("document.title")
    assert page.title() == kind
    assert page.evaluate("history.length") == 2, "as without a login"
    page.go_back()
    assert page.url == "about:blank"
"""
EACH_KIND = """
@pytest.mark.parametrize("kind", KINDS)
def test_kind(request, kind):
    request.node.add_marker(pytest.mark.peaks_session(auth=kind))
    logged_in(request.getfixturevalue("peaks_page"), kind)
"""
EACH_WAY = """
@pytest.mark.parametrize("kind", ["session", "indexed"])
@pytest.mark.parametrize("way", WAYS)
def test_way(request, way, kind):
    request.node.add_marker(pytest.mark.peaks_session(auth=kind, **WAYS[way]))
    page = request.getfixturevalue("peaks_page")
    logged_in(page, kind)
    if "locale" in WAYS[way]:
        assert page.evaluate("navigator.language") == "de-DE"
"""


def test_a_token_in_each_storage_of_a_page_is_back_before_its_first_script(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, KINDS + EACH_KIND + EACH_WAY, TOKENS)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=len(STORAGES) + 12)
    assert sorted(app.logins) == sorted(STORAGES), "once each, however it is replayed"
    assert not [path for path, _ in app.seen if "__peaks" in path], "nothing of the replay reaches the server"
    for kind in STORAGES:
        kept = json.loads(state_file(project, kind).read_text())
        assert set(kept) <= {"cookies", "origins", "credentials", "peaks"}, "Playwright's own keys, and ours"


@pytest.mark.slow
def test_sessions_of_a_kept_browser_are_logged_in_as_well(
    project: pytest.Pytester, app: App, peaks: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    make(project, app, KINDS + EACH_KIND, TOKENS)
    try:
        for _ in range(2):
            project.runpytest_subprocess(*NO_XDIST, "--peaks-reuse=force").assert_outcomes(
                passed=len(STORAGES)
            )
    finally:
        peaks("playwright", "stop", "--all", cwd=project.path)
        peaks("reap", cwd=project.path)
    assert sorted(app.logins) == sorted(STORAGES)


PASSKEY = """
def pytest_peaks_login(name, page, account):
    page.context.credentials.install()
    page.goto(APP + "/passkey")
    page.evaluate("register()")
    page.wait_for_function("document.title == 'registered'")
"""
WITH_PASSKEY = """
@pytest.mark.parametrize("doors", [(), ("mcp",)])
def test_passkey(request, doors):
    request.node.add_marker(pytest.mark.peaks_session(auth="carol", doors=doors))
    page = request.getfixturevalue("peaks_page")
    page.goto(APP + "/passkey")
    page.evaluate("enter()")
    page.wait_for_function("document.title != 'passkey'")
    assert page.title() == "carol"
"""


def test_a_passkey_signs_again(project: pytest.Pytester, app: App) -> None:
    make(project, app, WITH_PASSKEY, PASSKEY)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=2)


SEVERAL = """
def pytest_peaks_login(name, page, account):
    other = APP.replace("localhost", "127.0.0.1")
    page.goto(f"{APP}/page?html=<iframe src={other}/page></iframe>")
    frame = page.wait_for_selector("iframe").content_frame()
    page.wait_for_load_state()
    frame.evaluate("sessionStorage.setItem('of', 'frame')")
    page.evaluate("sessionStorage.setItem('of', 'first')")
    popup = page.context.new_page()
    popup.goto(APP + "/page")
    popup.evaluate("sessionStorage.setItem('of', 'another tab')")
    # An origin that the tab has left by the time it is saved.
    third = APP.replace("localhost", "left.localhost")
    page.goto(third + "/page")
    page.evaluate("sessionStorage.setItem('of', 'left')")
    page.goto(f"{APP}/page?html=<iframe src={other}/page></iframe>")
"""
ORIGINS = """
@pytest.mark.peaks_session(auth="admin")
def test_each_origin(peaks_page):
    other, third = APP.replace("localhost", "127.0.0.1"), APP.replace("localhost", "left.localhost")
    found = []
    for origin in (APP, other, third):
        peaks_page.goto(origin + "/page")
        found.append(peaks_page.evaluate("sessionStorage.getItem('of')"))
    assert found == ["first", "frame", "left"]
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate("sessionStorage.length") == 1, "and no key of ours"
"""


def test_session_storage_of_several_origins_frames_and_of_one_that_was_left(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, ORIGINS, SEVERAL)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=1)
    kept = json.loads(state_file(project).read_text())["peaks"]["sessionStorage"]
    assert len(kept) == 3


LOGOUTS = """
import json

def evaluate(mcp, function):
    return json.loads(mcp.call("browser_evaluate", function=function).section("Result"))

GET = "() => sessionStorage.getItem('token')"
auth = pytest.mark.peaks_session(auth="session")

@auth
@pytest.mark.parametrize("way", ["sessionStorage.clear()", "sessionStorage.removeItem('token')"])
def test_by_the_page(peaks_page, peaks_context, way):
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate(GET)
    peaks_page.reload()
    assert peaks_page.evaluate(GET)
    peaks_page.evaluate(way)
    for _ in range(2):
        peaks_page.reload()
        assert peaks_page.evaluate(GET) is None
    peaks_page.goto(APP.replace("localhost", "127.0.0.1") + "/page")
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate(GET) is None
    new = peaks_context.new_page()
    new.goto(APP + "/page")
    assert new.evaluate(GET) is None
    with peaks_context.expect_page() as opened:
        peaks_page.evaluate("window.open('/page')")
    assert opened.value.evaluate(GET) is None

@auth
def test_changed_by_the_page(peaks_page):
    peaks_page.goto(APP + "/page")
    peaks_page.evaluate("sessionStorage.setItem('token', 'newer')")
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate(GET) == "newer"

@auth
def test_by_an_mcp_client_that_makes_the_first_navigation(peaks_session, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=APP + "/app/session")
    title = "() => new Promise(done => setInterval(() => document.title && done(document.title)))"
    assert evaluate(peaks_mcp, title) == "session"
    evaluate(peaks_mcp, "() => (sessionStorage.clear(), 1)")
    peaks_mcp.call("browser_navigate", url=APP + "/page")
    assert evaluate(peaks_mcp, GET) is None
    peaks_mcp.call("browser_tabs", action="new", url=APP + "/page")
    assert evaluate(peaks_mcp, GET) is None

@auth
def test_by_the_cli_that_makes_the_first_navigation(peaks_cli):
    peaks_cli("goto", APP + "/page")
    assert "canary" in str(peaks_cli("eval", GET))
    peaks_cli("eval", "() => sessionStorage.clear()")
    peaks_cli("goto", APP + "/page")
    assert "canary" not in str(peaks_cli("eval", GET))

@pytest.mark.peaks_session(auth="cookie")
def test_a_cookie_through_each_door(peaks_page, peaks_mcp, peaks_cli):
    peaks_mcp.call("browser_navigate", url=APP + "/me")
    assert evaluate(peaks_mcp, "() => document.title") == "cookie"
    assert "cookie" in str(peaks_cli("eval", "() => document.title"))
    peaks_page.goto(APP + "/logout")
    peaks_mcp.call("browser_navigate", url=APP + "/me")
    assert evaluate(peaks_mcp, "() => document.title") == "login"

def test_the_next_one_has_nothing_of_it(peaks_page, peaks_mcp, peaks_context):
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate(GET) is None
    assert peaks_context.cookies() == []
"""


def test_nothing_comes_back_after_a_logout_whoever_navigates(project: pytest.Pytester, app: App) -> None:
    hooks = TOKENS.replace(
        "    kind = ",
        """    if name == "cookie":
        page.goto(f"{APP}/login?user=cookie")
        page.click("button")
        return page.wait_for_url("**/me")
    kind = """,
    )
    make(project, app, LOGOUTS, hooks)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=7)


# What is lost

LOSING = """
def pytest_peaks_login(name, page, account):
    page.goto(APP + "/page")
    page.evaluate('''async () => {
        localStorage.setItem("kept", "canary");
        const key = await crypto.subtle.generateKey({name: "AES-GCM", length: 256}, false, ["encrypt"]);
        await new Promise((done, fail) => {
            const open = indexedDB.open("vault", 1);
            open.onupgradeneeded = () => open.result.createObjectStore("keys");
            open.onerror = fail;
            open.onsuccess = () => {
                const keys = open.result.transaction("keys", "readwrite").objectStore("keys");
                keys.put(key, "secret-key");
                keys.put({deep: [new Blob(["canary"])]}, "picture");
                keys.put({}, "empty");
                keys.put({fine: "canary"}, "plain").onsuccess = done;
            };
        });
        await (await caches.open("files")).put("/x", new Response("canary"));
        await navigator.serviceWorker.register("/worker");
    }''')
"""
LOST = """
@pytest.mark.peaks_session(auth="admin")
def test_it(peaks_page):
    pass
"""


def test_what_a_state_cannot_carry_is_named_by_its_keys(project: pytest.Pytester, app: App) -> None:
    make(project, app, LOST, LOSING)
    result = project.runpytest_subprocess(*NO_XDIST)
    result.assert_outcomes(passed=1)
    said = [line for line in result.outlines if "cannot carry" in line]
    assert said == [
        f"auth 'admin' cannot carry {what} ({app.url})"
        for what in (
            "Cache API: files",
            "IndexedDB vault/keys/picture: a Blob, File or key object",
            "IndexedDB vault/keys/secret-key: a Blob, File or key object",
            "service worker: /",
        )
    ]
    assert "canary" not in result.stdout.str()
    assert json.loads(state_file(project).read_text())["peaks"]["lost"] == [
        line.removeprefix("auth 'admin' cannot carry ") for line in said
    ]


# Profiles

HOLDING = """
HOLD = '''() => new Promise((done, fail) => {
    const open = indexedDB.open("firebase", 3);
    open.onupgradeneeded = () => open.result.createObjectStore("tokens", {keyPath: "id"}).createIndex("by", "user");
    open.onsuccess = () => { window.held = open.result; done(1); }; open.onerror = fail;
})'''

def logged_in(page, user):
    page.goto(APP + "/app/indexed")
    page.wait_for_function("document.title")
    assert page.title() == user

@pytest.mark.peaks_session(isolation="profile")
class TestProfile:
    def test_1_leaves_tabs_that_hold_the_database_open(self, peaks_session, peaks_context):
        peaks_context.pages[0].goto(APP + "/page")
        peaks_context.pages[0].evaluate(HOLD)

    @pytest.mark.peaks_session(auth="alice")
    def test_2_is_not_held_up_by_them(self, peaks_page):
        logged_in(peaks_page, "alice")

    @pytest.mark.peaks_session(auth="alice")
    def test_3_is_still_alice(self, peaks_page):
        logged_in(peaks_page, "alice")
        peaks_page.evaluate("localStorage.setItem('of', 'alice')")

    @pytest.mark.peaks_session(auth="bob")
    def test_4_is_bob_and_has_nothing_of_alice(self, peaks_page, peaks_context):
        logged_in(peaks_page, "bob")
        assert peaks_page.evaluate("localStorage.getItem('of')") is None
"""
USERS = """
def pytest_peaks_login(name, page, account):
    page.goto(f"{APP}/enter/indexed?user={name}")
    page.wait_for_function("document.title == 'in'")
    page.context.add_cookies([{"name": "who", "value": name, "url": APP}])
"""


def test_a_login_in_a_profile_is_that_of_the_test_and_waits_for_no_open_database(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, HOLDING, USERS)
    start = time.monotonic()
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=4)
    assert time.monotonic() - start < 40, "Playwright alone would wait for ever"
    assert app.logins == ["alice", "bob"]


OWN = """
PROFILE = pathlib.Path("profile")

@pytest.mark.peaks_session(user_data_dir=PROFILE)
def test_1_the_user_has_logins_of_their_own(peaks_page, peaks_context):
    peaks_context.add_cookies([
        {"name": "sid", "value": "of the user", "url": APP, "httpOnly": True, "expires": time.time() + 3600},
        {"name": "elsewhere", "value": "1", "url": "http://elsewhere.example", "expires": time.time() + 3600},
    ])

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="admin")
def test_2_the_live_one_is_kept(peaks_page, peaks_context):
    found = {cookie["name"]: cookie["value"] for cookie in peaks_context.cookies()}
    assert found == {"sid": "of the user", "elsewhere": "1"}
    peaks_context.clear_cookies(name="sid")

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="admin")
def test_3_where_there_is_none_the_saved_one_takes_its_place_and_no_other_site_loses_its_own(
    peaks_page, peaks_context
):
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == "admin"
    assert "elsewhere" in {cookie["name"] for cookie in peaks_context.cookies()}

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="admin")
def test_4_what_the_application_renewed_is_kept(peaks_page, peaks_context):
    peaks_context.add_cookies([{"name": "sid", "value": "renewed", "url": APP, "httpOnly": True}])

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="admin")
def test_5_over_the_older_file(peaks_page, peaks_context):
    assert {cookie["value"] for cookie in peaks_context.cookies() if cookie["name"] == "sid"} == {"renewed"}

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="other")
def test_6_unless_it_is_told_to_overwrite(peaks_page, peaks_context):
    assert {cookie["value"] for cookie in peaks_context.cookies() if cookie["name"] == "sid"} == {"canaryvalue"}
"""


def test_a_live_login_of_a_users_own_profile_is_never_overwritten_without_being_told_to(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, OWN)
    save(project, "other", cookie("sid", domain="localhost"))
    (project.path / "pyproject.toml").write_text("[tool.peaks.auth.other]\noverwrite = true\n")
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=6)


CHECKED = """
PROFILE = pathlib.Path("profile")

@pytest.mark.peaks_session(user_data_dir=PROFILE, auth="alice")
def test_the_check_says_that_the_profile_is_logged_in(peaks_page):
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate("localStorage.getItem('who')") == os.environ["EXPECTED"]
"""


def test_the_check_hook_says_whether_a_profile_has_a_login_of_its_own(
    project: pytest.Pytester, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = """
def pytest_peaks_login(name, page, account):
    page.goto(APP + "/page")
    page.evaluate("localStorage.setItem('who', 'of the file')")

def pytest_peaks_check_login(name, page):
    page.goto(APP + "/page")
    return page.evaluate("localStorage.getItem('who')") is not None
"""
    make(project, app, CHECKED, hooks)
    monkeypatch.setenv("EXPECTED", "of the file")
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=1)
    state = state_file(project, "alice")
    state.write_text(state.read_text().replace("of the file", "of an older file"))
    (project.path / "profile" / ".peaks-login.json").unlink()
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=1)


# Failures

HALF = """
@pytest.mark.parametrize("way", [{}, {"isolation": "profile"}, {"doors": ("mcp",)}], ids=["fresh", "profile", "doors"])
def test_1_is_refused(request, way):
    request.node.add_marker(pytest.mark.peaks_session(auth="bad", **way))
    request.getfixturevalue("peaks_page")

@pytest.mark.peaks_session(isolation="profile")
def test_2_a_profile_has_nothing_of_it(peaks_page, peaks_context):
    assert peaks_context.cookies() == []

@pytest.mark.parametrize("doors", [(), ("mcp",)])
def test_3_nor_has_any_other(request, doors):
    request.node.add_marker(pytest.mark.peaks_session(doors=doors))
    session = request.getfixturevalue("peaks_session")
    assert session.context.cookies() == []
    raw = session.browser.new_browser_cdp_session()
    assert len(raw.send("Target.getBrowserContexts")["browserContextIds"]) == (0 if doors else 1)
"""


@pytest.mark.slow
def test_a_login_that_the_browser_refuses_is_an_error_and_its_half_is_used_by_nobody(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, HALF, hooks="")
    # Each is well formed; only the browser knows that it is none. The first is there when the second is refused.
    save(project, "bad", cookie("sid"), cookie("__Host-sid", path="/p", secure=True))
    file = state_file(project, "bad")
    state = json.loads(file.read_text())
    state["cookies"].pop()
    state["origins"] = [
        {"origin": app.url, "localStorage": [{"name": "k", "value": "canary" + "x" * 6 * 2**20}]}
    ]
    file.write_text(json.dumps(state))
    result = project.runpytest_subprocess(*NO_XDIST)
    result.assert_outcomes(passed=3, failed=3)
    output = result.stdout.str()
    assert output.count("REPLAY_FAILED: the browser does not take the saved login: exceeded the quota") >= 3
    assert "canary" not in output


SLOW = """
import psutil
from pytest_peaks.auth import replay

REAL = replay.replay

@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(replay, "REPLAY_TIMEOUT", 2.0)

def stop():
    for child in psutil.Process().children():
        if child.status() != psutil.STATUS_ZOMBIE and "--remote-debugging-pipe" in child.cmdline():
            child.suspend()

def test_1_a_context_of_its_own(request, peaks_session_factory):
    with peaks_session_factory() as session:
        assert session.page
    stop()
    request.node.add_marker(pytest.mark.peaks_session(auth="admin"))
    request.getfixturevalue("peaks_page")

@pytest.mark.parametrize("way", [{"isolation": "profile"}, {"doors": ("mcp",)}], ids=["profile", "doors"])
def test_2_a_default_context(request, way, monkeypatch):
    monkeypatch.setattr(replay, "replay", lambda *given, **more: (stop(), REAL(*given, **more)))
    monkeypatch.setattr("pytest_peaks.auth.profile.replay", replay.replay)
    request.node.add_marker(pytest.mark.peaks_session(auth="admin", **way))
    request.getfixturevalue("peaks_page")

@pytest.mark.peaks_session(auth="admin")
def test_3_the_next_one_has_a_new_browser(peaks_page, peaks_context):
    assert [cookie["name"] for cookie in peaks_context.cookies()] == ["sid"]
"""


@pytest.mark.slow
def test_a_replay_that_is_held_up_is_ended_with_its_browser(project: pytest.Pytester, app: App) -> None:
    make(project, app, SLOW, hooks="")
    save(project, "admin", cookie("sid"))
    result = project.runpytest_subprocess(*NO_XDIST)
    result.assert_outcomes(passed=1, failed=3)
    said = "REPLAY_FAILED: the saved login was not in the browser after 2 s; the browser was ended"
    assert result.stdout.str().count(f"E       pytest_peaks.errors.ReplayFailedError: {said}") == 3


# Several sessions, and those of pytest-playwright

PEOPLE = """
def test_people(peaks_sessions):
    alice, bob = peaks_sessions("alice", auth="alice"), peaks_sessions("bob", auth="bob")
    nobody = peaks_sessions("nobody")
    for session, title in ((alice, "alice"), (bob, "bob"), (nobody, "login")):
        session.page.goto(APP + "/me")
        assert session.page.title() == title

@pytest.fixture(scope="module")
def shared(peaks_session_factory):
    with peaks_session_factory(auth="alice", url=APP + "/me") as session:
        yield session.page

def test_a_wider_scope(shared):
    assert shared.title() == "alice"

pytestmark = []

@pytest.mark.peaks_session(auth="alice")
class TestClass:
    def test_a_class(self, peaks_page):
        peaks_page.goto(APP + "/me")
        assert peaks_page.title() == "alice"

    @pytest.mark.peaks_session(auth=None)
    def test_opts_out(self, peaks_page):
        peaks_page.goto(APP + "/me")
        assert peaks_page.title() == "login"

    @pytest.mark.peaks_session(auth="bob", url="/me", base_url=APP)
    def test_the_closest_wins_before_the_first_navigation(self, peaks_page):
        assert peaks_page.title() == "bob"
"""
OF_A_MODULE = """
pytestmark = pytest.mark.peaks_session(auth="alice")

def test_a_module(peaks_page):
    peaks_page.goto(APP + "/me")
    assert peaks_page.title() == "alice"

def test_opts_out(peaks_page):
    pass

test_opts_out = pytest.mark.peaks_session(auth=None)(test_opts_out)
"""


def test_a_marker_on_a_test_class_or_module_and_each_of_several_sessions_has_its_login(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, PEOPLE)
    body = (project.path / "test_it.py").read_text()
    project.makepyfile(test_module=body[: body.index("def test_people")] + OF_A_MODULE)
    (project.path / "conftest.py").write_text((project.path / "conftest.py").read_text() + HOOK)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=7)
    assert sorted(app.logins) == ["alice", "bob"]


THEIRS = """
@pytest.mark.peaks_session(auth="alice")
def test_page_and_context(page, context, new_context):
    page.goto(APP + "/me")
    assert page.title() == "alice"
    assert page.context == context
    other = new_context(locale="de-DE").new_page()
    other.goto(APP + "/me")
    assert other.title() == "alice"
    assert other.evaluate("navigator.language") == "de-DE"
    logged_out = new_context(storage_state=None).new_page()
    logged_out.goto(APP + "/me")
    assert logged_out.title() == "login"

class TestContextOfTheSuite:
    @pytest.fixture
    def context(self, new_context):
        return new_context()

    @pytest.mark.peaks_session(auth="session")
    def test_session_storage(self, page, peaks_session):
        assert page is not peaks_session.page
        page.goto(APP + "/app/session")
        page.wait_for_function("document.title")
        assert page.title() == "session"

@pytest.mark.browser_context_args(locale="fr-FR")
@pytest.mark.peaks_session(auth="alice")
def test_their_marker_counts_as_well(page):
    page.goto(APP + "/me")
    assert page.title() == "alice"
    assert page.evaluate("navigator.language") == "fr-FR"

@pytest.mark.peaks_session(auth="session")
def test_session_storage(page):
    page.goto(APP + "/app/session")
    page.wait_for_function("document.title")
    assert page.title() == "session"

@pytest.mark.peaks_session(auth="alice")
def test_beside_ours(page, peaks_page):
    for each in (page, peaks_page):
        each.goto(APP + "/me")
        assert each.title() == "alice"

@pytest.mark.peaks_session(auth=None)
def test_not_logged_in(page):
    page.goto(APP + "/me")
    assert page.title() == "login"

def test_no_marker(page, peaks_page):
    page.goto(APP + "/me")
    assert page.title() == "login"

@pytest.mark.peaks_session(auth="rotates")
@pytest.mark.parametrize("number", range(2))
def test_is_written_back(page, number):
    page.goto(APP + "/rotate")
    assert page.title() == "rotates"

@pytest.mark.peaks_session(auth="missing")
def test_missing(page):
    raise AssertionError("it ran")
"""
THEIR_HOOKS = """
def pytest_peaks_auth(name):
    return {"per_slot": True, "write_back": True} if name == "rotates" else None

def pytest_peaks_login(name, page, account):
    if name == "alice":
        page.goto(f"{APP}/login?user={name}")
        page.click("button")
        page.wait_for_url("**/me")
    elif name == "session":
        page.goto(f"{APP}/enter/session?user={name}")
        page.wait_for_function("document.title == 'in'")
    elif name == "rotates":
        page.goto(f"{APP}/rotate?user={name}")
"""


def test_pytest_playwrights_own_page_and_contexts_are_logged_in_the_same_way(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, THEIRS, WITH_PLAYWRIGHT + THEIR_HOOKS)
    project.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    result = project.runpytest_subprocess(*NO_XDIST)
    result.assert_outcomes(passed=9, errors=1)
    result.stdout.fnmatch_lines(
        ["*LOGIN_FAILED: auth 'missing': *no pytest_peaks_login hook did anything for it"]
    )
    assert app.logins == ["alice", "session", "rotates"]


# Files of others, and mistakes

GIVEN = """
@pytest.mark.peaks_session(auth="plain", isolation="browser")
def test_a_plain_file(peaks_page, peaks_context):
    peaks_page.goto(APP + "/page")
    assert peaks_page.evaluate("[document.cookie, localStorage.getItem('k')]") == ["sid=canaryvalue", "v"]

@pytest.mark.peaks_session(auth="plain")
def test_one_that_playwright_itself_takes(peaks_browser):
    context = peaks_browser.new_context(storage_state=".peaks/auth/plain.json")
    assert [cookie["name"] for cookie in context.cookies()] == ["sid"]

@pytest.mark.peaks_session(auth="cookies", isolation="profile")
def test_cookies_take_the_cheap_way(peaks_session, peaks_context):
    assert [cookie["name"] for cookie in peaks_context.cookies()] == ["sid"]
"""


def test_plain_files_of_playwright_are_taken_and_ours_are_taken_by_playwright(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, GIVEN, hooks="")
    here = cookie("sid", domain="localhost", httpOnly=False)
    file = save(project, "plain", here)
    origin = {"origin": app.url, "localStorage": [{"name": "k", "value": "v"}]}
    file.write_text(json.dumps({"cookies": [here], "origins": [origin], "peaks": {"v": 1}}))
    save(project, "cookies", here)
    project.runpytest_subprocess(*NO_XDIST).assert_outcomes(passed=3)
    seen = [path for path, _ in app.seen]
    assert seen == ["/page"], "not even the replay of an origin asks the server"


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("auth='admin', storage_state='x.json'", "auth and storage_state contradict each other"),
        ("auth='../admin'", "INVALID_NAME|auth '../admin' is not usable"),
        ("auth=''", "auth '' is not usable"),
        ("auth=5", "auth 5 is not usable"),
        ("auht='admin'", "unknown argument 'auht'.*did you mean 'auth'"),
    ],
)
def test_contradictions_are_usage_errors_before_any_browser(
    project: pytest.Pytester, app: App, marker: str, said: str
) -> None:
    make(project, app, f"@pytest.mark.peaks_session({marker})\ndef test_it(peaks_page):\n    pass\n")
    result = project.runpytest_subprocess(*NO_XDIST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.re_match_lines([f".*test_it.py::test_it: .*({said})"])
    assert app.seen == []


BAD_FILES: dict[str, tuple[Any, str]] = {
    "truncated": ('{"cookies": [{"name": "canary', "is no JSON, or is cut off"),
    "empty": ("", "is empty"),
    "types": ({"cookies": {}, "origins": []}, "cookies is an object, not a list"),
    "no-domain": ({"cookies": [{"name": "a", "value": "canary"}], "origins": []}, "cookies[0] has no domain"),
    "schema": ({"cookies": [], "origins": [], "peaks": {"v": 9}}, "a later pytest-peaks wrote it (v 9)"),
    "large": (None, "has 50 MB; a login has at most 32 MB"),
    "over": (None, "expired 3 h ago: cookie sid of shop.example"),
}
EACH_BAD = f"""
@pytest.mark.parametrize("name", {list(BAD_FILES)!r})
def test_bad(request, name):
    request.node.add_marker(pytest.mark.peaks_session(auth=name))
    request.getfixturevalue("peaks_page")

@pytest.mark.peaks_session(auth="unknown-fields")
def test_unknown_fields(peaks_page):
    pass
"""


def write_bad(folder: Path) -> None:
    """The files of the table of bad input."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (content, _) in BAD_FILES.items():
        text = content if isinstance(content, str) else json.dumps(content)
        if name == "large":
            text = json.dumps({"cookies": [], "origins": [], "x": "canary" + " " * (50 * 2**20)})
        if name == "over":
            ended = cookie("sid", ends=time.time() - 3 * 3600 - 60)
            text = json.dumps({"cookies": [ended], "origins": []})
        (folder / f"{name}.json").write_text(text)
    unknown = {"cookies": [{**cookie("sid"), "later": 1}], "origins": [], "later": {"canary": 1}}
    (folder / "unknown-fields.json").write_text(json.dumps(unknown))


def test_a_bad_file_is_a_sentence_with_file_and_reason_in_a_run(project: pytest.Pytester, app: App) -> None:
    make(project, app, EACH_BAD, hooks="")
    folder = state_file(project).parent
    write_bad(folder)
    result = project.runpytest_subprocess(*NO_XDIST, "--showlocals", "--tb=long")
    result.assert_outcomes(passed=1, failed=len(BAD_FILES))
    output = result.stdout.str()
    for name, (_, reason) in BAD_FILES.items():
        line = next(line for line in result.outlines if reason in line)
        assert name == "over" or str(folder / f"{name}.json") in line
    assert "canary" not in output
    assert (folder / "empty.json").read_text() == "", "what cannot be read is kept"


def test_a_bad_file_is_renewed_by_the_hook_and_that_is_said(
    project: pytest.Pytester, app: App, surroundings: Surroundings
) -> None:
    make(project, app, LOST)
    save(project, "admin")
    state_file(project).write_text("{")
    result = project.runpytest_subprocess(*NO_XDIST)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["auth 'admin' cannot be read: *admin.json is no JSON, *; logged in again"])
    surroundings.assert_clean(project.path)
