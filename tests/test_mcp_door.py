"""The MCP door: a test and an MCP client share one browser, and nothing of it reaches the next test."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time

import pytest
from driven import driven, kill
from leaks import Surroundings
from test_isolation import STORES

from pytest_peaks.doors.mcp import driver_command
from pytest_peaks.session.identity import ProcessIdentity

# What the tests of a run have at hand besides `STORES`.
HELPERS = '''
import json, os, pathlib, re, signal, time
import psutil, pytest
from pytest_peaks.doors.mcp import McpClient, McpOptions
from pytest_peaks.errors import McpFailedError, McpToolError
from stores import *


def value(result):
    """What `browser_evaluate` gave."""
    return json.loads(result.section("Result"))


def evaluate(mcp, function):
    """The value of a function that may run twice.

    The server has a connection of its own, on which it may hear of a test's navigation a moment later.
    """
    deadline = time.monotonic() + 10
    while True:
        try:
            return value(mcp.call("browser_evaluate", function=function))
        except McpToolError as error:
            if "context was destroyed" not in str(error) or time.monotonic() > deadline:
                raise


def servers():
    """The MCP servers of this process."""
    found = []
    for child in psutil.Process().children():
        if child.status() == psutil.STATUS_ZOMBIE:
            continue
        with_arguments = child.cmdline()
        if "mcp" in with_arguments and any(part.endswith("cli.js") for part in with_arguments):
            found.append(child)
    return found


def wait_until(condition, otherwise):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)
'''


def slow(value: str) -> object:
    """A case that takes long and shows little beyond what its neighbours do."""
    return pytest.param(value, marks=pytest.mark.slow)


def make(project: pytest.Pytester, site: str, tests: str, **others: str) -> None:
    project.makepyfile(stores=STORES, helpers=HELPERS)
    head = f"from helpers import *\nURL = {site!r}\nOTHER = {site.replace('127.0.0.1', 'localhost')!r}\n"
    project.makepyfile(test_it=head + tests, **others)


SHARED = """
def test_same_tab_cookies_and_storage_both_ways(peaks_page, peaks_context, peaks_mcp):
    page, context, mcp = peaks_page, peaks_context, peaks_mcp
    page.goto(URL + "/one")
    page.evaluate("document.cookie = 'from=page; max-age=60'; localStorage.setItem('from', 'page')")
    context.add_cookies([{"name": "by", "value": "context", "url": URL}])
    assert evaluate(mcp, "() => [location.href, localStorage.getItem('from')]") == [URL + "/one", "page"]
    assert "from=page" in evaluate(mcp, "() => document.cookie")

    mcp.call("browser_navigate", url=URL + "/two")
    assert page.url == URL + "/two", "seen right after the call"
    assert page.title() == "page"
    echoed = evaluate(mcp, "() => fetch('/echo-cookies').then(r => r.text())")
    assert set(echoed.split("; ")) == {"from=page", "by=context"}
    evaluate(mcp, "() => (document.cookie = 'back=mcp', localStorage.back = sessionStorage.s = 'mcp', 1)")
    assert page.evaluate("[localStorage.getItem('back'), sessionStorage.getItem('s')]") == ["mcp", "mcp"]
    assert {"from", "by", "back"} == {cookie["name"] for cookie in context.cookies()}

    page.goto(URL + "/three")
    assert "from=page" in page.evaluate("document.cookie") and "back=mcp" in page.evaluate("document.cookie")
    assert evaluate(mcp, "() => [location.pathname, localStorage.getItem('back')]") == ["/three", "mcp"]

def test_tabs_of_both_are_seen_by_both_at_once(peaks_page, peaks_context, peaks_mcp):
    assert peaks_context.pages == [peaks_page]
    peaks_mcp.call("browser_tabs", action="new", url=URL + "/mine")
    assert len(peaks_context.pages) == 2
    assert peaks_context.pages[1].url == URL + "/mine"
    assert evaluate(peaks_mcp, "() => (document.cookie = 'tab=two', 1)") == 1
    peaks_page.goto(URL)
    assert peaks_page.evaluate("document.cookie") == "tab=two"
    peaks_context.new_page().goto(URL + "/theirs")
    assert "/theirs" in peaks_mcp.call("browser_tabs", action="list").text
    peaks_mcp.call("browser_tabs", action="close", index=1)
    assert len(peaks_context.pages) == 2
    evaluate(peaks_mcp, "() => { window.open('/popup'); return 1 }")
    wait_until(lambda: peaks_page.evaluate("1") and len(peaks_context.pages) == 3, "a popup")

def test_what_the_client_tells(peaks_page, peaks_mcp, peaks_session):
    assert peaks_session.mcp is peaks_mcp, "one client a session"
    peaks_page.set_content("<title>hello</title><button>Press me</button><input aria-label=Name>")
    snapshot = peaks_mcp.snapshot()
    assert re.search(r'- button "Press me" \\[ref=\\w+\\]', snapshot), snapshot
    assert "```" not in snapshot
    ref = re.search(r'button "Press me" \\[ref=(\\w+)\\]', snapshot)[1]
    peaks_page.evaluate("document.querySelector('button').onclick = () => document.title = 'pressed'")
    peaks_mcp.call("browser_click", element="button", target=ref)
    assert peaks_page.title() == "pressed"
    names = {tool.name for tool in peaks_mcp.tools}
    assert {"browser_navigate", "browser_snapshot", "browser_tabs"} <= names
    navigate = next(tool for tool in peaks_mcp.tools if tool.name == "browser_navigate")
    assert "url" in navigate.schema["properties"] and navigate.description
    assert re.fullmatch(r"http://(localhost|127.0.0.1):\\d+/mcp", peaks_mcp.url)
    assert peaks_mcp.config == {"mcpServers": {"playwright": {"type": "http", "url": peaks_mcp.url}}}
    assert json.loads(json.dumps(peaks_mcp.config)) == peaks_mcp.config
    with McpClient(peaks_mcp.config["mcpServers"]["playwright"]["url"]) as agent:
        assert "pressed" in agent.call("browser_tabs", action="list").text
    peaks_mcp.call("browser_tabs", action="list")

def test_handlers_of_the_test_run_while_mcp_works(peaks_page, peaks_context, peaks_mcp):
    peaks_context.route("**/api", lambda route: route.fulfill(json={"from": "the test"}))
    peaks_page.route("**/routed", lambda route: route.fulfill(body="<title>routed</title>", content_type="text/html"))
    peaks_context.expose_function("ask", lambda: "answered")
    seen = []
    peaks_page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.accept()))
    peaks_mcp.call("browser_navigate", url=URL + "/routed")
    assert peaks_page.title() == "routed"
    asked = "async () => [await (await fetch('/api')).json(), await window.ask()]"
    assert evaluate(peaks_mcp, asked) == [{"from": "the test"}, "answered"]
    # With a dialog the server answers before it is closed.
    peaks_mcp.call("browser_evaluate", function="() => { document.title = confirm('sure?') }")
    wait_until(lambda: peaks_page.title() == "true", "the dialog's answer")
    assert seen == ["sure?"]
    # Also from within a handler, and in a tab that MCP opened.
    peaks_page.route("**/nested", lambda route: route.fulfill(body=str(len(peaks_mcp.tools))))
    peaks_page.goto(URL + "/nested")
    assert int(peaks_page.text_content("body")) == len(peaks_mcp.tools)
    peaks_mcp.call("browser_tabs", action="new", url=URL)
    assert evaluate(peaks_mcp, "async () => (await fetch('/api')).json()") == {"from": "the test"}

def test_images_are_decoded(peaks_page, peaks_mcp):
    peaks_page.set_content("<body style='background: red'>")
    [image] = peaks_mcp.call("browser_take_screenshot").images
    assert image.startswith((b"\\x89PNG\\r\\n", b"\\xff\\xd8\\xff"))

def test_a_tools_error_is_an_exception_with_its_text(peaks_page, peaks_mcp):
    peaks_page.goto(URL)
    with pytest.raises(McpToolError, match="MCP_TOOL_FAILED: browser_evaluate: .*that went wrong") as seen:
        peaks_mcp.call("browser_evaluate", function="() => { throw new Error('that went wrong') }")
    assert "### Error" not in str(seen.value)
    with pytest.raises((McpToolError, McpFailedError), match="no_such_tool"):
        peaks_mcp.call("no_such_tool")
    with pytest.raises((McpToolError, McpFailedError), match="url"):
        peaks_mcp.call("browser_navigate")
    assert evaluate(peaks_mcp, "() => document.title") == "page", "and it goes on"

PID = []

@pytest.mark.parametrize("ending", ["browser_close", "client", "twice", "one_tab"])
def test_no_ending_of_the_mcp_side_ends_the_browser(peaks_session, peaks_mcp, ending):
    PID.append(peaks_session.pid)
    page = peaks_session.page
    page.goto(URL)
    peaks_mcp.call("browser_tabs", action="list")
    if ending == "browser_close":
        peaks_mcp.call("browser_close")
        other = peaks_session.context.new_page()
        other.goto(URL)
        assert other.title() == "page"
    elif ending == "one_tab":
        peaks_mcp.call("browser_tabs", action="close", index=0)
        assert peaks_session.context.new_page().goto(URL).ok
    else:
        peaks_mcp.close()
        peaks_mcp.close()
        assert page.title() == "page"
    if ending == "twice":
        assert evaluate(peaks_mcp, "() => document.title") == "page", "it connects again"

def test_it_was_one_browser_all_the_time(peaks_session):
    assert {peaks_session.pid} == set(PID)
    assert len(servers()) == 1, "and one server"
"""


def test_page_and_mcp_share_everything(project: pytest.Pytester, site: str) -> None:
    make(project, site, SHARED)
    result = project.runpytest_subprocess("-n0", "-v")
    result.assert_outcomes(passed=11)
    result.stdout.fnmatch_lines(["slot 0 *11 sessions", "nothing left behind"])


DECLARED = """
from playwright.sync_api import sync_playwright

@pytest.mark.peaks_session(doors=("mcp",))
def test_by_the_marker(peaks_session):
    peaks_session.page.goto(URL)
    assert evaluate(peaks_session.mcp, "() => document.title") == "page"

@pytest.mark.peaks_session(doors="mcp", url=URL + "/start")
def test_by_one_text(peaks_session):
    assert peaks_session.page.url == URL + "/start"
    assert evaluate(peaks_session.mcp, "() => location.pathname") == "/start"

def test_by_the_fixture(peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    assert "page" in peaks_mcp.snapshot()

@pytest.mark.peaks_session(doors=("mcp",))
def test_declared_and_not_used(peaks_page):
    peaks_page.goto(URL)

@pytest.fixture(scope="module")
def wide(peaks_session_factory):
    with peaks_session_factory("wide", doors=("mcp",)) as session:
        session.page.goto(URL + "/wide")
        yield session

def test_wider_scope_one(wide, peaks_mcp, peaks_session):
    assert evaluate(wide.mcp, "() => (localStorage.setItem('k', 'wide'), location.pathname)") == "/wide"
    assert peaks_session.pid != wide.pid, "a process has one default context"
    peaks_mcp.call("browser_navigate", url=URL)
    assert evaluate(peaks_mcp, "() => localStorage.getItem('k')") is None

def test_wider_scope_two(wide, peaks_page):
    peaks_page.goto(URL)
    assert peaks_page.evaluate("localStorage.getItem('k')") is None
    assert evaluate(wide.mcp, "() => localStorage.getItem('k')") == "wide", "a test's end wiped it"
    assert wide.page.evaluate("localStorage.getItem('k')") == "wide"

@pytest.mark.parametrize("isolation", ["fresh", "profile", "browser"])
def test_two_in_one_test_are_isolated(peaks_sessions, isolation):
    alice, bob = peaks_sessions("alice", "bob", doors=("mcp",), isolation=isolation)
    for session in (alice, bob):
        session.mcp.call("browser_navigate", url=URL + "/" + session.name)
        evaluate(session.mcp, f"() => (localStorage.k = '{session.name}', document.cookie = 'k={session.name}', 1)")
    assert alice.pid != bob.pid and alice.mcp.url != bob.mcp.url
    for session in (alice, bob):
        assert session.page.url == URL + "/" + session.name
        assert session.page.evaluate("[localStorage.k, document.cookie]") == [session.name, "k=" + session.name]
        assert len(session.context.pages) == 1

def test_undeclared(peaks_session):
    peaks_session.mcp
"""


@pytest.mark.slow
def test_a_door_is_declared_by_fixture_marker_or_argument(project: pytest.Pytester, site: str) -> None:
    make(project, site, DECLARED)
    result = project.runpytest_subprocess("-n0", "-v")
    result.assert_outcomes(passed=9, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*DOOR_NOT_DECLARED: session 'slot0' was opened without the MCP door*",
            '*use the fixture peaks_mcp, or @pytest.mark.peaks_session(doors=("mcp",))*',
        ]
    )


OPTIONS = '''
@pytest.mark.peaks_session(mcp_caps=("pdf", "storage"))
def test_caps(peaks_mcp):
    names = {tool.name for tool in peaks_mcp.tools}
    assert {"browser_pdf_save", "browser_storage_state"} <= names

@pytest.mark.peaks_session(mcp_caps="pdf")
def test_one_cap(peaks_mcp):
    names = {tool.name for tool in peaks_mcp.tools}
    assert "browser_pdf_save" in names and "browser_storage_state" not in names

def test_none(peaks_mcp):
    assert "browser_pdf_save" not in {tool.name for tool in peaks_mcp.tools}
    [command] = [server.cmdline() for server in servers() if "--caps" not in server.cmdline()]
    assert command[command.index("--timeout-settle") + 1] == "0"

BUTTON = "<button onclick='this.title = 1'>go</button>"

@pytest.mark.peaks_session(mcp_args=("--timeout-settle", "1500"))
def test_settle_can_be_set(peaks_page, peaks_mcp):
    peaks_page.set_content(BUTTON)
    began = time.monotonic()
    peaks_mcp.call("browser_click", element="go", target="button")
    assert time.monotonic() - began > 1.4

@pytest.mark.peaks_session(
    viewport={"width": 333, "height": 444}, locale="de-DE", user_agent="ours", timezone_id="Asia/Tokyo",
    color_scheme="dark", geolocation={"latitude": 1, "longitude": 2}, permissions=["geolocation"],
    extra_http_headers={"x-ours": "1"},
)
@pytest.mark.parametrize("number", range(2))
def test_context_options_hold_in_tabs_of_the_mcp_side(peaks_session, peaks_mcp, number):
    peaks_session.page.goto(URL)
    asked = """() => [
        innerWidth, navigator.language, navigator.userAgent, Intl.DateTimeFormat().resolvedOptions().timeZone,
        matchMedia('(prefers-color-scheme: dark)').matches,
    ]"""
    expected = [333, "de-DE", "ours", "Asia/Tokyo", True]
    assert peaks_session.page.evaluate(asked) == expected
    assert evaluate(peaks_mcp, asked) == expected
    assert evaluate(peaks_mcp, "() => localStorage.getItem('k')") is None
    peaks_mcp.call("browser_tabs", action="new", url=URL + "/new")
    assert evaluate(peaks_mcp, "() => location.pathname") == "/new"
    assert evaluate(peaks_mcp, asked) == expected
    assert len(peaks_session.context.pages) == 2
    evaluate(peaks_mcp, "() => (localStorage.setItem('k', 'v'), 1)")
    peaks_mcp.call("browser_close")
    PIDS.append(peaks_session.pid)

PIDS = []

STATE = {"cookies": [], "origins": [{"origin": URL, "localStorage": [{"name": "k", "value": "given"}]}]}

@pytest.mark.peaks_session(storage_state=STATE)
def test_a_state_is_seen_by_both(peaks_session, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    assert evaluate(peaks_mcp, "() => localStorage.getItem('k')") == "given"
    assert peaks_session.page.evaluate("localStorage.getItem('k')") == "given"
    PIDS.append(peaks_session.pid)

def test_each_had_a_process_of_its_own(peaks_session):
    assert len({*PIDS, peaks_session.pid}) == 4

@pytest.mark.peaks_session(isolation="profile")
@pytest.mark.parametrize("number", range(2))
def test_a_profile_is_kept(peaks_page, peaks_mcp, number):
    peaks_mcp.call("browser_navigate", url=URL)
    assert evaluate(peaks_mcp, "() => localStorage.getItem('k')") == (None if number == 0 else "kept")
    peaks_page.evaluate("localStorage.setItem('k', 'kept')")
    peaks_mcp.call("browser_tabs", action="new")

@pytest.mark.peaks_session(isolation="browser")
@pytest.mark.parametrize("number", range(2))
def test_a_browser_of_its_own(peaks_page, peaks_mcp, number):
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_page.evaluate("localStorage.getItem('k')") is None
    evaluate(peaks_mcp, "() => (localStorage.setItem('k', 'v'), 1)")
'''


@pytest.mark.slow
def test_options_of_server_and_context(project: pytest.Pytester, site: str) -> None:
    make(project, site, OPTIONS)
    project.runpytest_subprocess("-n0", "-v").assert_outcomes(passed=12)


@pytest.mark.parametrize("workers", ["-n0", slow("-n1")])
@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("mcp_caps=3", "mcp_caps is 3"),
        ("mcp_args=(1,)", "mcp_args is (1,)"),
        ("doors=('vnc',)", "'vnc' is not a door"),
        ("doors=('mcp',), browser='firefox'", "doors=mcp needs a Chromium with a debugging port"),
        ("doors=('mcp',), isolation='profile', locale='de-DE'", "takes no context options"),
    ],
)
def test_a_wrong_declaration_is_refused_at_collection(
    project: pytest.Pytester, marker: str, says: str, workers: str
) -> None:
    project.makepyfile(
        f"import pytest\n@pytest.mark.peaks_session({marker})\ndef test_it(peaks_session): raise SystemExit"
    )
    result = project.runpytest_subprocess(workers)
    assert result.ret != 0
    output = result.stdout.str() + result.stderr.str()
    assert says in output
    assert "test_it" in output
    assert not (project.path / ".peaks").exists(), "nothing was started"


def test_the_fixture_needs_a_debugging_port(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\naddopts = -p no:playwright -p no:cacheprovider\npeaks_debug_port = off\n")
    project.makepyfile("def test_it(peaks_mcp): raise SystemExit")
    result = project.runpytest_subprocess("-n0", "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stderr.str()
    assert "doors=mcp needs a Chromium with a debugging port" in output
    assert "peaks_debug_port = on" in output


WIPED = """
PID = []
WRITER = '''
    onconnect = () => {};
    setInterval(() => {
        const open = indexedDB.open("again");
        open.onupgradeneeded = () => open.result.createObjectStore("s");
    }, 20);
'''

def look(page):
    for url in (URL, OTHER):
        assert found(page, url) == {}, f"storage of {url} of an earlier test"

def checked(page, context):
    assert context.cookies() == []
    assert context.pages == [page], "a tab of an earlier test"
    assert page.url == "about:blank"
    assert page.evaluate("history.length") == 1
    assert page.evaluate("window.name") == ""
    look(page)
    assert page.title() == "page", "a route of an earlier test"
    assert page.evaluate("typeof window.left") == "undefined"
    assert page.evaluate("fetch('/echo-cookies').then(r => r.text())") == ""
    assert page.evaluate("navigator.permissions.query({name: 'geolocation'}).then(p => p.state)") != "granted"
    time.sleep(0.3)
    assert page.evaluate("indexedDB.databases()") == [], "a worker of an earlier test still writes"

def leave(page, context, mcp):
    for url in (URL, OTHER):
        page.goto(url)
        page.evaluate(DIRTY, "mark")
        assert EVERYTHING <= set(found(page, url))
    tab = context.new_page()
    tab.goto(URL)
    # A connection that stays open, and one of another origin in a frame.
    tab.evaluate('''async url => {
        const open = indexedDB.open("open");
        open.onupgradeneeded = () => open.result.createObjectStore("s");
        await new Promise(done => { open.onsuccess = done; });
        window.kept = open.result;
        const frame = document.createElement("iframe");
        frame.src = url;
        await new Promise(done => { frame.onload = done; document.body.append(frame); });
        window.onbeforeunload = () => "stay";
    }''', OTHER)
    tab.frames[1].evaluate(DIRTY, "framed")
    tab.evaluate('''code => {
        const url = URL.createObjectURL(new Blob([code], {type: "text/javascript"}));
        window.worker = new SharedWorker(url, {extendedLifetime: true});
    }''', WRITER)
    names = "indexedDB.databases().then(found => found.map(database => database.name))"
    wait_until(lambda: "again" in tab.evaluate(names), "the worker writes")
    tab.evaluate("window.name = 'left'")
    context.grant_permissions(["geolocation", "notifications"])
    context.add_init_script("window.left = 1")
    context.route("**/*", lambda route: route.fulfill(body="<title>routed</title>", content_type="text/html"))
    context.set_extra_http_headers({"x-left": "1"})
    mcp.call("browser_tabs", action="new")
    mcp.call("browser_navigate", url=URL + "/by-mcp")
    # A dialog that nobody answers.
    asking = context.new_page()
    asking.on("dialog", lambda dialog: None)
    asking.evaluate("setTimeout(() => alert('stay'))")

@pytest.mark.parametrize("number", range(3))
def test_door(peaks_session, peaks_page, peaks_context, peaks_mcp, number):
    checked(peaks_page, peaks_context)
    leave(peaks_page, peaks_context, peaks_mcp)
    PID.append(peaks_session.pid)

def test_a_fresh_one_of_the_same_browser(peaks_session, peaks_page, peaks_browser):
    PID.append(peaks_session.pid)
    look(peaks_page)
    assert [len(context.pages) for context in peaks_browser.contexts] == [1, 1], "the browser's own and this test's"

def test_door_after_a_fresh_one(peaks_session, peaks_page, peaks_context, peaks_mcp):
    checked(peaks_page, peaks_context)
    PID.append(peaks_session.pid)
    assert len(set(PID)) == 1
"""


def test_between_tests_everything_is_wiped(project: pytest.Pytester, site: str) -> None:
    make(project, site, WIPED)
    # A worker that still writes can hold up a page for ever.
    project.runpytest_subprocess("-n0", "-v", timeout=180).assert_outcomes(passed=5)


def test_a_tab_that_spins_holds_up_nothing(project: pytest.Pytester, site: str) -> None:
    make(
        project,
        site,
        """
@pytest.mark.parametrize("number", range(2))
def test_it(peaks_page, peaks_context, peaks_mcp, number):
    assert found(peaks_page, URL) == {}
    peaks_page.evaluate(DIRTY, "mark")
    assert evaluate(peaks_mcp, "() => localStorage.k") == "mark"
    spinning = peaks_context.new_page()
    spinning.goto(OTHER)
    spinning.evaluate("(localStorage.k = 'mark', setTimeout(() => { for (;;); }))")

def test_last(peaks_page):
    assert found(peaks_page, URL) == found(peaks_page, OTHER) == {}
""",
    )
    began = time.monotonic()
    project.runpytest_subprocess("-n0", "-v", timeout=180).assert_outcomes(passed=3)
    assert time.monotonic() - began < 60


AFTER_WIPE = """
PID = []

@pytest.mark.parametrize("number", range({rounds}))
def test_door(peaks_session, peaks_page, peaks_mcp, number):
    assert found(peaks_page, URL) == {{}}
    peaks_page.evaluate(DIRTY, "mark")
    assert evaluate(peaks_mcp, "() => localStorage.getItem('k')") == "mark"
    PID.append(peaks_session.pid)

def test_fresh(peaks_session, peaks_page):
    assert found(peaks_page, URL) == {{}}
    assert len(set(PID)) == len(PID), PID
    assert {last}
"""


def test_a_wipe_that_fails_means_a_new_browser(
    project: pytest.Pytester, surroundings: Surroundings, site: str
) -> None:
    make(
        project,
        site,
        AFTER_WIPE.format(rounds=2, last="peaks_session.pid not in PID"),
        conftest="""
        import pytest
        from pytest_peaks.doors import wipe

        @pytest.fixture(autouse=True)
        def failing_afterwards(request, monkeypatch):
            # Set up before the session, so undone after it has been closed.
            state = {"over": False}
            real = wipe.wipe
            def failing(*arguments):
                if state["over"]:
                    raise wipe.WipeFailedError("as the test wants it")
                return real(*arguments)
            monkeypatch.setattr(wipe, "wipe", failing)
            request.node.state = state

        @pytest.hookimpl(trylast=True)
        def pytest_runtest_call(item):
            item.state["over"] = True
        """,
    )
    project.runpytest_subprocess("-n0", "-v").assert_outcomes(passed=3)


def test_without_a_wipe_that_works_every_door_test_has_its_own_browser(
    project: pytest.Pytester, site: str
) -> None:
    make(
        project,
        site,
        AFTER_WIPE.format(rounds=2, last="peaks_session.pid not in PID"),
        conftest="""
        from pytest_peaks.doors import wipe
        wipe.self_test = lambda browser, context: False
        """,
    )
    project.runpytest_subprocess("-n0", "-v").assert_outcomes(passed=3)


@pytest.mark.slow
def test_a_browser_whose_clearing_does_nothing_is_found_out(project: pytest.Pytester, site: str) -> None:
    make(
        project,
        site,
        AFTER_WIPE.format(rounds=2, last="peaks_session.pid not in PID"),
        conftest="""
        from playwright.sync_api import CDPSession
        real = CDPSession.send
        def send(self, method, params=None):
            return {} if method == "Storage.clearDataForOrigin" else real(self, method, params)
        CDPSession.send = send
        """,
    )
    project.runpytest_subprocess("-n0", "-v").assert_outcomes(passed=3)


@pytest.mark.slow
def test_nobody_is_pinged_to_death(project: pytest.Pytester, site: str) -> None:
    """The server's window is 5 s; a debugger, or a sleep, blocks the event loop for longer."""
    make(
        project,
        site,
        """
import http.client
from urllib.parse import urlsplit

def test_idle(peaks_page, peaks_mcp):
    peaks_page.goto(URL)
    assert evaluate(peaks_mcp, "() => document.title") == "page"
    agent = McpClient(peaks_mcp.url)
    agent.call("browser_tabs", action="list")
    # An agent's client opens the server's stream, and is pinged on it.
    place = urlsplit(agent.url)
    stream = http.client.HTTPConnection(place.hostname, place.port)
    stream.request("GET", place.path, headers={"accept": "text/event-stream", "mcp-session-id": agent._session})
    before = peaks_mcp._session, agent._session
    time.sleep(9)
    assert evaluate(peaks_mcp, "() => document.title") == "page"
    assert "page" in agent.call("browser_tabs", action="list").text
    assert (peaks_mcp._session, agent._session) == before
    assert peaks_page.title() == "page"
    stream.close()
    agent.close()
""",
    )
    project.runpytest_subprocess("-n0").assert_outcomes(passed=1)


def test_the_environment_does_not_leak_in(
    project: pytest.Pytester, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CDP_ENDPOINT": "http://127.0.0.1:9",
        "ISOLATED": "1",
        "BROWSER": "firefox",
        "EXECUTABLE_PATH": "/nowhere",
        "PORT": "9",
        "CAPS": "pdf",
        "CONFIG": "/nowhere.json",
        "TIMEOUT_SETTLE": "5000",
    }.items():
        monkeypatch.setenv(f"PLAYWRIGHT_MCP_{name}", value)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    make(
        project,
        site,
        """
def test_it(peaks_page, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_page.title() == "page"
    assert evaluate(peaks_mcp, "() => document.title") == "page"
    assert "browser_pdf_save" not in {tool.name for tool in peaks_mcp.tools}
""",
    )
    project.runpytest_subprocess("-n0").assert_outcomes(passed=1)


ONE = """
def test_it(peaks_page, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_page.title() == "page"
"""


@pytest.mark.parametrize("given", ["switch", *map(slow, ("ini", "environment"))])
def test_another_servers_command(
    project: pytest.Pytester, site: str, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    node, script = driver_command()
    # With something that tells it from the bundled one.
    command = shlex.join(["env", "OTHER_SERVER=1", node, script, "mcp"])
    make(
        project,
        site,
        ONE
        + """
    marked = [p for p in psutil.Process().children(recursive=True) if p.environ().get("OTHER_SERVER")]
    assert marked
""",
    )
    arguments = ["-n0"]
    if given == "switch":
        arguments.append(f"--peaks-mcp-command={command}")
    elif given == "environment":
        monkeypatch.setenv("PEAKS_MCP_COMMAND", command)
    else:
        project.makeini(
            f"[pytest]\naddopts = -p no:playwright -p no:cacheprovider\npeaks_mcp_command = {command}\n"
        )
    project.runpytest_subprocess(*arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/nowhere/at/all mcp", "START_FAILED: the MCP server /nowhere/at/all cannot be run: No such file"),
        (
            shlex.join([sys.executable, "-c", "raise SystemExit('this one is no server')"]),
            "START_FAILED: the MCP server exited before it listened*this one is no server",
        ),
        ("node 'unbalanced", "START_FAILED: *node 'unbalanced*"),
    ],
)
def test_a_wrong_command_says_why(project: pytest.Pytester, site: str, command: str, says: str) -> None:
    make(project, site, ONE + "\ndef test_without(peaks_page): peaks_page.goto(URL)\n")
    result = project.runpytest_subprocess("-n0", f"--peaks-mcp-command={command}")
    result.assert_outcomes(passed=1, errors=1)
    output = result.stdout.str()
    for part in says.split("*"):
        assert part in output
    assert "mcp-command" in output, "what to correct"
    assert "Traceback" not in output


def test_each_worker_has_a_server_of_its_own(project: pytest.Pytester, site: str) -> None:
    make(
        project,
        site,
        """
SEEN = pathlib.Path(__file__).parent / "seen"

@pytest.mark.parametrize("number", range(2))
def test_it(peaks_page, peaks_mcp, peaks_slot, number):
    SEEN.mkdir(exist_ok=True)
    [server] = servers()
    (SEEN / f"{peaks_slot}-{server.pid}-{peaks_mcp.url.split(':')[-1].split('/')[0]}").touch()
    peaks_mcp.call("browser_navigate", url=URL)
    peaks_page.evaluate(f"localStorage.setItem('slot', {peaks_slot})")
    # Both are open now.
    wait_until(lambda: len({path.name.split("-")[0] for path in SEEN.iterdir()}) == 2, "the other worker")
    assert evaluate(peaks_mcp, "() => localStorage.getItem('slot')") == str(peaks_slot)
""",
    )
    project.runpytest_subprocess("-n2", "--dist", "each").assert_outcomes(passed=4)
    seen = [path.name.split("-") for path in (project.path / "seen").iterdir()]
    assert sorted(slot for slot, _, _ in seen) == ["0", "1"]
    assert len({pid for _, pid, _ in seen}) == 2
    assert len({port for _, _, port in seen}) == 2


def test_a_server_that_dies_is_said_and_the_next_test_has_another(
    project: pytest.Pytester, site: str
) -> None:
    make(
        project,
        site,
        """
PIDS = []

def test_kills_it(peaks_page, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    [server] = servers()
    PIDS.append(server.pid)
    server.kill()
    wait_until(lambda: not servers(), "it is dead")
    assert peaks_page.title() == "page", "the page does not need it"
    peaks_mcp.call("browser_tabs", action="list")

def test_next(peaks_session, peaks_page, peaks_mcp):
    assert found(peaks_page, URL) == {}
    peaks_mcp.call("browser_navigate", url=URL)
    assert evaluate(peaks_mcp, "() => document.title") == "page"
    [server] = servers()
    assert server.pid not in PIDS
""",
    )
    result = project.runpytest_subprocess("-n0", "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*MCP_FAILED: the MCP server at http://*/mcp does not answer: *"])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="POSIX signals")
def test_a_server_that_hangs_holds_up_neither_the_end_nor_the_next_test(
    project: pytest.Pytester, site: str
) -> None:
    make(
        project,
        site,
        """
PIDS = []

def test_stops_it(peaks_page, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    [server] = servers()
    PIDS.append(server.pid)
    server.suspend()

def test_next(peaks_page, peaks_mcp):
    peaks_mcp.call("browser_navigate", url=URL)
    assert peaks_page.title() == "page"
    [server] = servers()
    assert server.pid not in PIDS
""",
    )
    began = time.monotonic()
    project.runpytest_subprocess("-n0", "-v").assert_outcomes(passed=2)
    assert time.monotonic() - began < 60


DRIVEN = """
import os, pathlib, time, psutil, pytest
from conftest import write, wait_for, SEEN
from pytest_peaks.session.identity import ProcessIdentity

@pytest.mark.parametrize("number", range(2))
def test_sits(peaks_session, peaks_mcp, worker_id, number):
    peaks_mcp.call("browser_tabs", action="list")
    [server] = [c for c in psutil.Process().children() if "--cdp-endpoint" in c.cmdline()]
    me, its = ProcessIdentity.of_self(), ProcessIdentity.of(server.pid)
    write(f"here-{worker_id}", worker=me.to_json(), server=its.to_json())
    wait_for(SEEN / "go")
    HOW
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("workers", ["n0", slow("n2")])
@pytest.mark.parametrize("how", ["exit", "kill-worker", "kill-controller", "term-controller"])
def test_the_server_dies_with_its_worker(
    project: pytest.Pytester, surroundings: Surroundings, how: str, workers: str
) -> None:
    project.makepyfile(DRIVEN.replace("HOW", "os._exit(7)" if how == "exit" else "wait_for(SEEN / 'never')"))
    names = ("master",) if workers == "n0" else ("gw0", "gw1")
    with driven(project, "-n", workers.removeprefix("n"), "--max-worker-restart=0") as run:
        facts = [json.loads(run.wait_for(f"here-{name}").read_text()) for name in names]
        servers = [ProcessIdentity.from_json(fact["server"]) for fact in facts]
        assert all(server.is_alive() for server in servers)
        run.go_on()
        if how == "kill-worker":
            for fact in facts:
                kill(ProcessIdentity.from_json(fact["worker"]))
        elif how == "kill-controller":
            run.send(signal.SIGKILL)
        elif how == "term-controller":
            run.send(signal.SIGTERM)
        run.end()
        surroundings.assert_clean(project.path)
        assert not any(server.is_alive() for server in servers)
