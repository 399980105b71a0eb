"""isolation="recycled": what a test leaves, the next one does not see, whether its context is used again or not."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import statesite
from authapp import STORAGES, App
from authapp import serve as serve_app
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from leaks import Surroundings
from recycled_states import STATES
from test_attach import Theirs, theirs  # noqa: F401 - a fixture
from test_auth_login import make
from test_auth_replay import KINDS, TOKENS

SUITE = Path(__file__).parent
RECYCLED = ("-p", "no:xdist", "--peaks-isolation=recycled")

# Each row is two tests: one leaves states, the next one looks for one of them.
ROWS = """
import contextlib, json, os, pathlib, time
import pytest
from recycled_states import STATES

BY_NAME = {state.name: state for state in STATES}
NOTES = {}
LAST = []

@pytest.mark.parametrize(
    "number, left, state, step",
    [
        pytest.param(number, left, BY_NAME[name], step, id=f"{number} {name} {step}")
        for number, (left, name) in enumerate(json.loads(os.environ["ROWS"]))
        for step in ("dirty", "check")
    ],
)
def test_row(request, number, left, state, step):
    if step == "check":
        time.sleep(state.wait)
    page = request.getfixturevalue("peaks_page")
    if step == "check":
        noted = NOTES[f"{number} {state.name}"] = {"again": page is LAST[0]}
        try:
            state.check(page)
        except BaseException as error:
            noted["leak"] = repr(error)[:300]
        pathlib.Path("notes.json").write_text(json.dumps(NOTES))
        return
    LAST[:] = [page]
    for name in left:
        # Among several, one may have closed the page for the others.
        with contextlib.suppress(Exception) if len(left) > 1 else contextlib.nullcontext():
            BY_NAME[name].dirty(page)
"""

# Nothing is reset after the first test of a row, and nothing is looked at.
CONTROL = """
import os
from pytest_peaks.recycling import slots

slots.reset = lambda slot, guard, _: None if "dirty]" in os.environ["PYTEST_CURRENT_TEST"] else "the row is over"
slots.is_blank = lambda slot: True
"""


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The site, and the table of states for the project."""
    monkeypatch.setenv("PYTHONPATH", str(SUITE), prepend=":")
    with statesite.serve() as port:
        monkeypatch.setenv("STATES_PORT", str(port))
        yield


def run_rows(
    project: pytest.Pytester, isolation: str, rows: list[tuple[list[str], str]]
) -> dict[str, dict[str, object]]:
    """What was noted of each row, by its number and name."""
    project.makepyfile(test_rows=ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWS", json.dumps(rows))
        result = project.runpytest_subprocess("-p", "no:xdist", f"--peaks-isolation={isolation}")
    result.assert_outcomes(passed=2 * len(rows))
    noted: dict[str, dict[str, object]] = json.loads((project.path / "notes.json").read_text())
    assert len(noted) == len(rows)
    return noted


@pytest.mark.usefixtures("states")
@pytest.mark.parametrize(
    ("isolation", "how"),
    [
        pytest.param("fresh", "", marks=pytest.mark.slow),
        ("recycled", "at once"),
        pytest.param("recycled", "one by one", marks=pytest.mark.slow),
    ],
)
def test_nothing_that_a_test_can_leave_is_seen_by_the_next(
    project: pytest.Pytester, isolation: str, how: str
) -> None:
    if how == "one by one":
        project.makeconftest("from pytest_peaks.recycling import gathered\ngathered._WORKS[:] = [False]")
    noted = run_rows(project, isolation, [([state.name], state.name) for state in STATES])
    leaks = {name: facts["leak"] for name, facts in noted.items() if "leak" in facts}
    wrong = {}
    for number, state in enumerate(STATES):
        name = f"{number} {state.name}"
        if state.leaks and isolation == "recycled" and noted[name]["again"]:
            assert leaks.pop(name, None), f"{state.name} is documented as a leak, and is none"
        expected = state.again if isolation == "recycled" else False
        if expected is not None and noted[name]["again"] != expected:
            wrong[name] = noted[name]["again"]
    assert leaks == {}
    assert wrong == {}, "used again, or thrown away, against the table"


@pytest.mark.slow
@pytest.mark.usefixtures("states")
def test_each_of_these_checks_sees_what_it_looks_for(project: pytest.Pytester) -> None:
    project.makeconftest(CONTROL)
    tried = [state for state in STATES if state.shows is not None]
    noted = run_rows(project, "recycled", [([state.name], state.name) for state in tried])
    assert all(facts["again"] for facts in noted.values()), "the control reset something"
    found = {name for name, facts in noted.items() if "leak" in facts}
    assert found == {f"{number} {state.name}" for number, state in enumerate(tried) if state.shows}


NAMES = [state.name for state in STATES if not (state.leaks or state.wait or state.shows is None)]
# After these a page may send a cookie late.
QUIET = [name for name in NAMES if "keepalive" not in name]
SEVERAL = st.lists(st.sampled_from(QUIET), min_size=1, max_size=4, unique=True)
ORDERS = st.lists(
    SEVERAL.flatmap(lambda left: st.tuples(st.just(left), st.sampled_from(left))), min_size=10, max_size=20
)
RANDOM = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None)


def random_order(project: pytest.Pytester, rows: list[tuple[list[str], str]]) -> None:
    noted = run_rows(project, "recycled", rows)
    assert {name: facts["leak"] for name, facts in noted.items() if "leak" in facts} == {}


@pytest.mark.usefixtures("states")
@given(rows=ORDERS)
@settings(RANDOM, max_examples=1, phases=[Phase.generate])
def test_in_whatever_order_and_company_it_is_left(
    project: pytest.Pytester, rows: list[tuple[list[str], str]]
) -> None:
    random_order(project, rows)


@pytest.mark.slow
@pytest.mark.usefixtures("states")
@given(rows=ORDERS)
@settings(RANDOM, max_examples=40)
def test_in_many_orders_and_companies(project: pytest.Pytester, rows: list[tuple[list[str], str]]) -> None:
    random_order(project, rows)


# What a test notices of it


def test_the_objects_that_a_test_gets_are_playwrights_own_in_all_that_can_be_seen(
    project: pytest.Pytester, site: str
) -> None:
    project.makepyfile(
        f"""
        import pytest
        from playwright import sync_api
        from playwright.sync_api import expect

        SEEN = []

        @pytest.mark.parametrize("number", range(3))
        def test_it(peaks_page, peaks_context, peaks_browser, peaks_session, number):
            page = peaks_page
            assert isinstance(page, sync_api.Page) and isinstance(peaks_context, sync_api.BrowserContext)
            assert isinstance(peaks_browser, sync_api.Browser)
            assert (type(page).__name__, type(page).__module__) == ("Page", sync_api.Page.__module__)
            assert repr(page) == "<Page url='about:blank'>"
            assert page.context is peaks_context and peaks_context.pages == [page]
            page.goto({site!r})
            assert repr(page) == "<Page url='{site}/'>"
            expect(page).to_have_title("page")
            assert page.locator("h1").page is page and page.main_frame.page is page
            assert page.request is peaks_context.request
            with page.expect_response("**/other") as response:
                page.main_frame.evaluate("fetch('/other').then(r => r.text())")
            assert response.value.ok
            heard = []
            hear = lambda message: heard.append(message)
            page.on("console", hear)
            page.evaluate("console.log(1)")
            page.remove_listener("console", hear)
            page.evaluate("console.log(2)")
            assert len(heard) == 1
            assert peaks_session.isolation == "recycled"
            SEEN.append((page, peaks_session.pid))
            assert len(set(SEEN)) == 1, "the same page in the same browser"

        def test_they_are_plain_again():
            assert type(SEEN[0][0]) is sync_api.Page
            assert type(SEEN[0][0].context.browser) is sync_api.Browser
        """
    )
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["contexts: 1 made, 2 used again"])


def test_a_failure_is_reported_at_the_users_line(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_goto(peaks_page):
            peaks_page.goto("http://nowhere.invalid/")  # this one

        def test_on(peaks_page):
            peaks_page.route(1, 2, 3, 4, 5)  # that one

        def test_next(peaks_page, peaks_context):
            assert peaks_context.pages == [peaks_page]
        """
    )
    result = project.runpytest_subprocess(*RECYCLED, "--tb=short")
    result.assert_outcomes(passed=1, failed=2)
    output = result.stdout.str()
    assert "# this one" in output
    assert "# that one" in output
    assert "pytest_peaks" not in output
    result.stdout.fnmatch_lines(["contexts: 3 made, 0 used again, 2 thrown away (a test failed 2)"])


def test_contexts_with_other_options_are_kept_apart(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(
        f"""
        import pytest

        PAGES = {{}}
        KINDS = {{
            "plain": {{}},
            "german": {{"locale": "de-DE", "permissions": ["geolocation"]}},
            "phone": {{"viewport": {{"width": 300, "height": 600}}, "is_mobile": True, "has_touch": True}},
            "no script": {{"java_script_enabled": False, "offline": True}},
        }}

        @pytest.mark.parametrize("round", range(3))
        @pytest.mark.parametrize("kind", KINDS)
        def test_kind(request, kind, round):
            request.node.add_marker(pytest.mark.peaks_session(**KINDS[kind]))
            page = request.getfixturevalue("peaks_page")
            assert PAGES.setdefault(kind, page) is page
            assert len(set(PAGES.values())) == len(PAGES)
            if kind == "no script":
                return
            page.goto({site!r})
            state = page.evaluate("navigator.permissions.query({{name: 'geolocation'}}).then(p => p.state)")
            assert (state == "granted") == (kind == "german")
            assert (page.evaluate("navigator.language") == "de-DE") == (kind == "german")
            assert (page.evaluate("innerWidth") < 1000) == (kind == "phone")
            page.context.grant_permissions(["notifications"])
            page.context.clear_permissions()

        @pytest.mark.peaks_session(storage_state={{"cookies": [], "origins": []}})
        def test_with_a_state(peaks_page, peaks_session):
            assert peaks_page not in PAGES.values()
            assert peaks_session.isolation == "recycled"

        @pytest.mark.peaks_session(isolation="fresh")
        def test_fresh(peaks_page):
            assert peaks_page not in PAGES.values()
        """
    )
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=14)
    result.stdout.fnmatch_lines(["contexts: 4 made, 8 used again, 1 fresh instead (storage_state 1)"])


def test_no_more_contexts_wait_than_are_worth_it_and_none_is_used_for_ever(project: pytest.Pytester) -> None:
    project.makeconftest("from pytest_peaks.recycling import slots\nslots.MOST_USES = 3")
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("width", range(300, 306))
        def test_kind(peaks_session_factory, width):
            with peaks_session_factory(viewport={"width": width, "height": 300}):
                pass

        @pytest.mark.parametrize("number", range(6))
        def test_uses(peaks_page, number):
            pass
        """
    )
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(
        ["contexts: 8 made, 4 used again, 5 thrown away (too many kinds 3, many uses 2)"]
    )


# Several at once

TWO = """
import pytest
from stores import *
URL = {site!r}
PAGES = set()

@pytest.mark.parametrize("number", range(3))
def test_two(peaks_sessions, number):
    alice, bob = peaks_sessions("alice", "bob")
    assert alice.page is not bob.page
    for session in (alice, bob):
        assert found(session.page, URL) == {{}}
        session.page.evaluate(DIRTY, session.name)
    PAGES.update([alice.page, bob.page])
    assert len(PAGES) == 2
    alice.close()
    assert found(bob.page, URL)["localStorage"] == "bob", "a reset of one does not reach the other"
    assert bob.context.cookies()

def test_what_one_does_is_not_the_others(peaks_sessions):
    alice, bob = peaks_sessions("alice", "bob")
    alice.page.add_init_script("1")
    assert {{alice.page, bob.page}} == PAGES
    PAGES.remove(alice.page)

def test_the_other_is_used_again(peaks_sessions):
    alice, bob = peaks_sessions("alice", "bob")
    assert len(PAGES & {{alice.page, bob.page}}) == 1
    PAGES.clear()
    PAGES.update([alice.page, bob.page])

def test_one_who_reaches_into_the_browser_is_everybody(peaks_page):
    peaks_page.context.browser.new_browser_cdp_session()

def test_none_is_used_again(peaks_sessions):
    for session in peaks_sessions("alice", "bob"):
        assert session.page not in PAGES

@pytest.fixture(scope="module")
def shared(peaks_session_factory):
    with peaks_session_factory() as session:
        yield session.page

@pytest.mark.parametrize("number", range(3))
def test_one_of_a_wider_scope_lasts(shared, peaks_page, number):
    assert shared is not peaks_page
    assert found(peaks_page, URL) == {{}}
    peaks_page.evaluate(DIRTY, "test")
    shared.goto(URL)
    assert shared.evaluate("localStorage.getItem('n')") == (str(number - 1) if number else None)
    shared.evaluate("n => localStorage.setItem('n', n)", number)
    shared.add_init_script("window.left = 1")
    assert peaks_page.evaluate("typeof left") == "undefined"

def test_contexts_by_hand_end_with_the_test(peaks_browser):
    peaks_browser.new_context().new_page()

def test_they_are_gone(peaks_sessions):
    alice, bob = peaks_sessions("alice", "bob")
    assert len(alice.browser.contexts) == 3 + 1, "the browser's own, the module's, and these two"
"""


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def test_several_at_once_share_nothing(project: pytest.Pytester, site: str, workers: str) -> None:
    from test_isolation import STORES

    project.makepyfile(stores=STORES, test_it=TWO.format(site=site))
    arguments = [workers, *(["--dist", "each"] if workers == "-n2" else []), RECYCLED[-1]]
    project.runpytest_subprocess(*arguments).assert_outcomes(passed=24 if workers == "-n2" else 12)


# Saved logins


@pytest.fixture
def app() -> Iterator[App]:
    with serve_app() as running:
        yield running


LOGGED_IN = """
KINDS = [kind for kind in KINDS if kind != "opfs"]  # not every version of Playwright saves it
PAGES = []

@pytest.mark.parametrize("kind", KINDS)
def test_kind(request, kind):
    request.node.add_marker(pytest.mark.peaks_session(auth=kind))
    page = request.getfixturevalue("peaks_page")
    PAGES.append(page)
    logged_in(page, kind)

@pytest.mark.parametrize("kind", KINDS)
def test_nobody(peaks_page, kind):
    PAGES.append(peaks_page)
    peaks_page.goto(f"{APP}/app/{kind}")
    peaks_page.wait_for_timeout(100)
    assert peaks_page.title() != kind
    assert peaks_page.context.cookies() == []

@pytest.mark.parametrize("round", range(2))
@pytest.mark.peaks_session(auth=KINDS[0])
def test_once_more(peaks_page, round):
    PAGES.append(peaks_page)
    logged_in(peaks_page, KINDS[0])

def test_it_was_always_the_same_page():
    assert len(set(PAGES)) == 1
"""


def test_a_login_is_replayed_after_the_blanking_and_gone_for_the_next(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, KINDS + LOGGED_IN, TOKENS)
    kinds = sorted(kind for kind in STORAGES if kind != "opfs")
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=2 * len(kinds) + 3)
    assert sorted(app.logins) == kinds, "one login each"
    result.stdout.fnmatch_lines(["contexts: * used again*"])


WRITTEN_BACK = """
def pytest_peaks_login(name, page, account):
    page.goto(f"{APP}/rotate?user={name}")

def pytest_peaks_auth(name):
    return {"per_slot": True, "write_back": True}
"""
ROTATE = """
PAGES = []

@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range(4))
def test_token_is_good_once(peaks_page, number):
    PAGES.append(peaks_page)
    peaks_page.goto(APP + "/rotate")
    assert peaks_page.title() == "admin"

def test_it_was_always_the_same_page(peaks_page):
    assert set(PAGES) == {peaks_page}
    assert peaks_page.context.cookies() == []
"""


def test_writing_a_login_back_is_no_reason_to_throw_a_context_away(
    project: pytest.Pytester, app: App
) -> None:
    make(project, app, ROTATE, WRITTEN_BACK)
    project.runpytest_subprocess(*RECYCLED).assert_outcomes(passed=5)
    assert app.logins == ["admin"]


# Where it is not possible

ELSEWHERE = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_it(peaks_session, peaks_page, number):
    assert peaks_session.isolation == "recycled"
    peaks_page.goto({site!r})
    assert peaks_page.evaluate("localStorage.length") == 0
    peaks_page.evaluate("localStorage.setItem('k', 1)")
"""


def test_a_browser_without_a_debugging_port_gives_fresh_ones_and_says_so(
    project: pytest.Pytester, site: str
) -> None:
    project.makepyfile(ELSEWHERE.format(site=site))
    result = project.runpytest_subprocess(*RECYCLED, "-o", "peaks_debug_port=off")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["contexts: 0 made, 0 used again, 2 fresh instead (no debugging port 2)"])


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ("clears nothing", "1 made, 0 used again, 1 thrown away (the wipe does not work in this browser 1)"),
        pytest.param(
            "leaves one kind",
            "1 made, 0 used again, 1 thrown away (the wipe does not work in this browser 1)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "is refused", "2 made, 0 used again, 2 thrown away (an error: *)", marks=pytest.mark.slow
        ),
    ],
)
def test_where_the_wipe_does_not_work_each_test_gets_a_fresh_one(
    project: pytest.Pytester, site: str, how: str, again: str
) -> None:
    project.makeconftest(
        f"""
        from playwright.sync_api import CDPSession
        send = CDPSession.send
        OTHERS = "cookies,local_storage,indexeddb,service_workers"
        ANSWERS = {{
            "clears nothing": lambda self, method, params: {{}},
            "is refused": lambda self, method, params: send(self, "No.such", params),
            "leaves one kind": lambda self, method, params: send(
                self, method, {{**params, "storageTypes": OTHERS}}
            ),
        }}

        def changed(self, method, params=None):
            if method == "Storage.clearDataForOrigin":
                return ANSWERS[{how!r}](self, method, params)
            return send(self, method, params)

        CDPSession.send = changed
        """
    )
    project.makepyfile(ELSEWHERE.format(site=site))
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"contexts: {again}*"])


@pytest.mark.slow
def test_a_session_with_doors_keeps_to_the_doors_own_way(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(
        ELSEWHERE.format(site=site)
        + """
@pytest.mark.parametrize("number", range(2))
def test_door(peaks_page, peaks_mcp, number):
    assert peaks_page.url == "about:blank"
    peaks_page.goto(SITE)
    assert "page" in str(peaks_mcp.snapshot())
    assert peaks_page.evaluate("localStorage.length") == 0
    peaks_page.evaluate("localStorage.setItem('k', 1)")
""".replace("SITE", repr(site))
    )
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["contexts: 1 made, 1 used again"])


def test_a_profile_contradicts_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.peaks_session(isolation="recycled", user_data_dir="mine")
        def test_it(peaks_page): pass
        """
    )
    result = project.runpytest_subprocess("-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*isolation='recycled' and user_data_dir contradict each other*"])


@pytest.mark.slow
def test_in_a_kept_browser_no_context_outlives_the_run(
    project: pytest.Pytester, site: str, peaks: Callable[..., Any]
) -> None:
    project.makepyfile(
        ELSEWHERE.format(site=site)
        + "\n\ndef test_contexts(peaks_browser):\n    assert len(peaks_browser.contexts) <= 2\n"
    )
    try:
        for _ in range(2):
            result = project.runpytest_subprocess(*RECYCLED, "--peaks-reuse=force")
            result.assert_outcomes(passed=3)
            result.stdout.fnmatch_lines(["contexts: 1 made, 2 used again*"])
    finally:
        peaks("playwright", "stop", "--all", cwd=project.path)
        peaks("reap", cwd=project.path)


@pytest.mark.slow
def test_in_somebody_elses_browser_no_context_outlives_the_run(
    project: pytest.Pytester,
    site: str,
    theirs: Theirs,  # noqa: F811 - the fixture
) -> None:
    attached = f"--peaks-attach={theirs.session['endpoints']['cdp']}"
    project.makepyfile(test_it=ELSEWHERE.format(site=site))
    result = project.runpytest_subprocess(*RECYCLED, attached)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["contexts: 1 made, 1 used again"])
    project.makepyfile(
        test_it="""
        def test_it(peaks_browser):
            found = peaks_browser.new_browser_cdp_session().send("Target.getBrowserContexts")
            assert len(found["browserContextIds"]) == 1, found
        """
    )
    project.runpytest_subprocess("-p", "no:xdist", attached).assert_outcomes(passed=1)


# What breaks

BREAKS = """
import os, signal, time
import pytest

SEEN = []

@pytest.mark.parametrize("number", range(6))
def test_it(peaks_session, peaks_page, number):
    assert peaks_page.url == "about:blank"
    peaks_page.goto({site!r})
    assert peaks_page.evaluate("localStorage.length") == 0
    peaks_page.evaluate("localStorage.setItem('k', 1)")
    if number == 2:
        os.kill({victim}, signal.SIGKILL)
        peaks_page.evaluate("new Promise(() => {{}})")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("victim", ["browser", "driver"])
def test_a_death_costs_one_test_and_the_next_gets_a_new_context(
    project: pytest.Pytester, site: str, victim: str
) -> None:
    pid = {"browser": "peaks_session.pid", "driver": "peaks_session._owner.door.driver.pid"}[victim]
    project.makepyfile(BREAKS.format(site=site, victim=pid))
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*_LOST*" if victim == "browser" else "*DRIVER_FAILED*"])
    result.stdout.fnmatch_lines(["contexts: 2 made, 4 used again*"])


@pytest.mark.slow
def test_a_worker_that_crashes_costs_one_test(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(BREAKS.format(site=site, victim="os.getpid()"))
    result = project.runpytest_subprocess("-n2", RECYCLED[-1])
    result.assert_outcomes(passed=5, failed=1)


@pytest.mark.parametrize(
    "error", ["KeyboardInterrupt", "Error", pytest.param("RuntimeError", marks=pytest.mark.slow)]
)
def test_a_reset_that_is_interrupted_leaves_no_context_in_use(
    project: pytest.Pytester, surroundings: Surroundings, error: str
) -> None:
    project.makeconftest(
        f"""
        from playwright.sync_api import Error
        from pytest_peaks.recycling import slots

        before, calls = slots.reset, []

        def reset(*arguments):
            calls.append(before(*arguments))
            if len(calls) == 2:
                raise {error}("now")
            return calls[-1]

        slots.reset = reset
        """
    )
    project.makepyfile(
        """
        import pytest

        PAGES = []

        @pytest.mark.parametrize("number", range(4))
        def test_it(peaks_page, peaks_session, number):
            PAGES.append(peaks_page)
            assert (peaks_page is PAGES[0]) == (number < 2)
            if number == 3:
                assert len(peaks_session.browser.contexts) == 2, "the browser's own and this one"
        """
    )
    result = project.runpytest_subprocess(*RECYCLED)
    if error == "KeyboardInterrupt":
        assert result.ret == pytest.ExitCode.INTERRUPTED
    else:
        result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["nothing left behind"])
    surroundings.assert_clean(project.path)
