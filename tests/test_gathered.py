"""Calls of Playwright that are under way at once, and what happens where its private parts are others."""

from __future__ import annotations

import pytest

RECYCLED = ("-p", "no:xdist", "--peaks-isolation=recycled")

GATHERED = """
import functools
import pytest
from playwright.sync_api import Error, TimeoutError
from pytest_peaks.recycling import gathered

# An answer that only another call brings about.
WAITS = {"expression": "new Promise(done => { window.go = done })", "awaitPromise": True}

@pytest.fixture
def session(peaks_page):
    session = peaks_page.context.new_cdp_session(peaks_page)
    gathered.try_out(session)
    assert gathered._WORKS == [True]
    yield session
    assert "_sync" not in vars(session)
    assert value(session, "1 + 1") == 2, "other calls go on as ever"

def value(session, expression):
    return session.send("Runtime.evaluate", {"expression": expression})["result"].get("value")

def test_calls_are_under_way_at_once(session, peaks_page):
    def two():
        value(session, "window.go(1)")
        return value(session, "window.second = 2")

    waiting, second, title, nothing = gathered.together(
        10_000,
        [session, peaks_page],
        lambda: session.send("Runtime.evaluate", WAITS)["result"]["value"],
        two,
        peaks_page.title,
        lambda: "no call",
    )
    assert (waiting, second, title, nothing) == (1, 2, "", "no call")

def test_what_they_give_is_what_they_give_alone(session, peaks_page):
    peaks_page.goto(SITE)
    (requests,) = gathered.together(10_000, [peaks_page], peaks_page.requests)
    assert requests == peaks_page.requests() and len(requests) >= 1
    assert [request.url for request in requests][0] == peaks_page.url

def test_an_error_comes_when_all_have_ended(session):
    done = []

    def late():
        done.append(value(session, "1"))
        done.append(value(session, "2"))

    with pytest.raises(Error, match="No.such"):
        gathered.together(10_000, [session], lambda: session.send("No.such"), late)
    assert done == [1, 2]
    assert gathered._WORKS == [True]

def test_an_error_can_be_caught_by_the_function(session):
    def careful():
        try:
            session.send("No.such")
        except Error:
            return value(session, "3")

    assert gathered.together(10_000, [session], careful) == [3]

def test_none_goes_on_when_the_time_is_over(session):
    ended = []

    def for_ever():
        try:
            session.send("Runtime.evaluate", WAITS)
        finally:
            ended.append("for ever")

    with pytest.raises(TimeoutError, match="200 ms"):
        gathered.together(200, [session], for_ever, lambda: ended.append(value(session, "1")))
    assert sorted(map(str, ended)) == ["1", "for ever"]
    assert gathered._WORKS == [True]
"""


def test_calls_are_gathered_in_the_playwright_that_is_installed(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(GATHERED.replace("SITE", repr(site)))
    project.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=5)


# Without the private parts

STRANGE = {
    "no greenlets": """
        import sys

        def strange():
            sys.modules["greenlet"] = None  # imported by Playwright already; nobody else finds it
    """,
    "no such method": """
        def strange():
            from playwright._impl._sync_base import SyncBase

            SyncBase._other = SyncBase._sync
            del SyncBase._sync

            def __getattribute__(self, name):
                # Playwright's own code finds it under another name.
                import sys
                if name == "_sync":
                    if sys._getframe(1).f_globals["__name__"].endswith(".gathered"):
                        raise AttributeError(name)
                    name = "_other"
                return object.__getattribute__(self, name)

            SyncBase.__getattribute__ = __getattribute__
    """,
    "calls are made elsewhere": """
        def strange():
            from playwright._impl._sync_base import SyncBase

            before = SyncBase._sync
            # What is put in its place is not asked.
            SyncBase._sync = property(lambda self: lambda call: before(self, call), lambda self, value: None)
    """,
    "something else is awaited": """
        def strange():
            from playwright._impl._sync_base import SyncBase

            before = SyncBase._sync

            def _sync(self, call):
                if "_gathered" in call.__qualname__:
                    call.close()
                    raise TypeError("a coroutine was not expected")
                return before(self, call)

            SyncBase._sync = _sync
    """,
}
USED_AGAIN = """
import pytest

PAGES = set()

@pytest.mark.parametrize("number", range(3))
def test_it(peaks_page, number):
    PAGES.add(peaks_page)
    peaks_page.goto({site!r})
    assert peaks_page.evaluate("localStorage.length") == 0
    peaks_page.evaluate("localStorage.setItem('k', 1)")

def test_it_was_the_same_page(peaks_page):
    from pytest_peaks.recycling import gathered

    assert gathered._WORKS == [{works}]
    assert PAGES == {{peaks_page}}
"""


@pytest.mark.parametrize("how", STRANGE)
def test_with_other_private_parts_contexts_are_used_again_all_the_same(
    project: pytest.Pytester, site: str, how: str
) -> None:
    project.makeconftest(
        STRANGE[how]
        + """
        from pytest_peaks.recycling import gathered

        before = gathered.try_out

        def try_out(session):
            if not gathered._WORKS:
                strange()
            before(session)

        from pytest_peaks.recycling import reset
        reset.try_out_gathering = try_out
        """
    )
    project.makepyfile(USED_AGAIN.format(site=site, works=False))
    result = project.runpytest_subprocess(*RECYCLED)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["contexts: 1 made, 3 used again"])


def test_where_gathering_fails_later_one_context_is_thrown_away(project: pytest.Pytester, site: str) -> None:
    project.makeconftest(
        """
        from pytest_peaks.recycling import gathered

        before, calls = gathered._gathered, []

        def fails(*arguments):
            calls.append(before(*arguments))
            if len(calls) == 3:
                raise AttributeError("_other")
            return calls[-1]

        gathered._gathered = fails
        """
    )
    project.makepyfile(
        """
        import pytest
        from pytest_peaks.recycling import gathered

        PAGES = []

        @pytest.mark.parametrize("number", range(4))
        def test_it(peaks_page, number):
            PAGES.append(peaks_page)
            assert gathered._WORKS == [number == 0]
            assert (peaks_page is PAGES[-2]) == (number > 1) if number else True
        """
    )
    project.runpytest_subprocess(*RECYCLED).assert_outcomes(passed=4)
