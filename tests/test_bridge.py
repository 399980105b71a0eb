"""pytest-playwright's fixtures on sessions of peaks: for marked tests, or for all; unmarked ones have its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from leaks import Surroundings

from pytest_peaks.bridge.launch import browser_spec
from pytest_peaks.config import PeaksConfig
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserName, BrowserSpec

EXECUTABLE = str(browsers.find(BrowserSpec()).executable)
# pytest-playwright has to be told where this machine's Chromium is.
CONFTEST = f"""
import pytest

@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    return dict(browser_type_launch_args, executable_path={EXECUTABLE!r}, args=["--no-sandbox"])

@pytest.fixture
def pid_of():
    def pid(browser):
        session = browser.new_browser_cdp_session()
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        session.detach()
        return next(process["id"] for process in processes if process["type"] == "browser")
    return pid
"""


@pytest.fixture
def suite(project: pytest.Pytester, surroundings: Surroundings) -> Iterator[pytest.Pytester]:
    """A project with pytest-playwright; what its own browsers and driver leave in TMPDIR is not ours to remove."""
    project.makeini("[pytest]\naddopts = -p no:cacheprovider --strict-markers\n")
    project.makeconftest(CONFTEST)
    yield project
    for path in Path(os.environ["TMPDIR"]).iterdir():
        if not path.name.startswith("peaks-"):
            shutil.rmtree(path, ignore_errors=True)


MARKED = """
import pytest

marked = pytest.mark.peaks_session

@marked
def test_one_session(page, context, browser, peaks_session, peaks_page, new_context, pid_of):
    assert page is peaks_page is peaks_session.page
    assert context is peaks_session.context
    assert browser is peaks_session.browser
    assert pid_of(browser) == peaks_session.pid
    other = new_context(locale="de-DE")
    assert other.browser is browser and other is not context
    assert other.new_page().evaluate("navigator.language") == "de-DE"
    page.goto("data:text/html,<title>x</title>")

@marked
def test_the_next_page_is_blank(page, context, browser):
    assert page.url == "about:blank" and context.pages == [page]
    assert context in browser.contexts and len(browser.contexts) == 2, "the other is the browser's own"

@marked
@pytest.mark.parametrize("number", range(3))
def test_by_name(request, number):
    page = request.getfixturevalue("page")
    assert page is request.getfixturevalue("peaks_session").page

@pytest.mark.parametrize("which", ["plain", pytest.param("marked", marks=marked)])
def test_one_case_of_several(page, browser, which, pid_of, peaks_session):
    assert (pid_of(browser) == peaks_session.pid) == (which == "marked")

def test_unmarked(page, browser, peaks_session, pid_of):
    assert pid_of(browser) != peaks_session.pid
    assert page is not peaks_session.page

@marked(isolation="browser", locale="fr-FR", viewport={"width": 400, "height": 300})
@pytest.mark.browser_context_args(locale="de-DE", timezone_id="Asia/Tokyo")
def test_a_process_of_its_own_and_whose_options_win(page, browser, peaks_session, pid_of):
    assert pid_of(browser) == peaks_session.pid
    assert page.viewport_size == {"width": 400, "height": 300}
    here = page.evaluate("[navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone]")
    assert here == ["fr-FR", "Asia/Tokyo"]

@marked(isolation="profile")
@pytest.mark.parametrize("number", range(2))
def test_the_profile_is_kept(page, context, browser, number):
    assert context is browser.contexts[0]
    page.route("http://site.test/", lambda route: route.fulfill(body="<p>x", content_type="text/html"))
    page.goto("http://site.test/")
    assert page.evaluate("localStorage.getItem('k')") == (None if number == 0 else "v")
    page.evaluate("localStorage.setItem('k', 'v')")

@marked
def test_another_door_sees_the_page(page, peaks_mcp):
    page.set_content("<h1>by playwright</h1>")
    assert "by playwright" in peaks_mcp.snapshot()
    peaks_mcp.call("browser_evaluate", function="() => { document.body.textContent = 'by mcp' }")
    assert page.text_content("body") == "by mcp"

attempts = []

@marked
@pytest.mark.flaky(reruns=1)
def test_is_repeated(page, context, peaks_session):
    attempts.append(page)
    assert page is peaks_session.page and page.url == "about:blank"
    page.goto("data:text/html,x")
    assert len(attempts) == 2

@marked(isolation="recycled")
@pytest.mark.parametrize("number", range(3))
def test_recycled(page, context, number):
    assert page.evaluate("window.name") == ""
    page.evaluate("window.name = 'dirty'")
"""


@pytest.mark.parametrize("workers", [pytest.param("-n0", marks=pytest.mark.slow), "-n2"])
def test_marked_tests_have_their_session_and_unmarked_ones_pytest_playwrights_own(
    suite: pytest.Pytester, workers: str
) -> None:
    files = {f"test_{number}": MARKED for number in range(max(1, int(workers[2:])))}
    suite.makepyfile(**files)
    result = suite.runpytest_subprocess(workers, "--dist=loadfile", "-W", "ignore")
    outcomes = result.parseoutcomes()
    assert (outcomes.pop("passed"), outcomes.pop("rerun")) == (16 * len(files), len(files))
    assert not outcomes.keys() & {"failed", "errors"}
    result.stdout.fnmatch_lines(["contexts: * made, * used again*", "nothing left behind"])
    result.stdout.no_fnmatch_line("*thrown away*")


def test_the_bridge_is_for_all_tests_and_what_a_suite_overrides_still_wins(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        CONFTEST
        + """
@pytest.fixture(scope="session")
def browser_context_args(browser_context_args):
    return {**browser_context_args, "locale": "es-ES"}

@pytest.fixture
def page(page):
    page.set_default_timeout(1234)
    page.on_top = True
    yield page
    assert page.title() == "left open", "the page is still there when what stands on it is torn down"

@pytest.fixture(scope="module")
def shared_context(browser):
    context = browser.new_context(locale="it-IT")
    yield context
    context.close()
"""
    )
    suite.makepyfile(
        test_all="""
        import unittest, pytest

        def test_it(page, peaks_session):
            assert page.on_top and page is peaks_session.page
            assert page.evaluate("navigator.language") == "es-ES"
            page.set_content("<title>left open</title>")

        def test_a_context_of_a_wider_scope(shared_context, browser, peaks_session):
            shared_context.new_page().goto("data:text/html,<title>shared</title>")
            assert browser is peaks_session.browser

        def test_is_still_there(shared_context, page, browser):
            assert shared_context.pages[0].title() == "shared"
            page.set_content("<title>left open</title>")

        @pytest.mark.usefixtures("page_of_case")
        class TestCase(unittest.TestCase):
            @pytest.fixture
            def page_of_case(self, page, peaks_session):
                self.page, self.session = page, peaks_session
            def test_in_a_case(self):
                self.assertIs(self.page, self.session.page)
                self.page.set_content("<title>left open</title>")
        """,
        test_own_context="""
        import pytest

        @pytest.fixture
        def context(new_context, browser, pid_of, peaks_session):
            made = new_context(locale="nl-NL")
            assert pid_of(made.browser) == peaks_session.pid
            return made

        def test_it(page, context, peaks_session):
            assert page.context is context is not peaks_session.context
            assert page.evaluate("navigator.language") == "nl-NL"
            page.set_content("<title>left open</title>")
        """,
        test_own_browser="""
        import pytest

        @pytest.fixture(scope="module")
        def browser(launch_browser):
            browser = launch_browser()
            yield browser
            browser.close()

        def test_it(page, browser, pid_of, peaks_session):
            assert page.context.browser is browser
            assert pid_of(browser) != peaks_session.pid
            page.set_content("<title>left open</title>")
        """,
        test_own_launch="""
        import pytest

        @pytest.fixture(scope="session")
        def launch_browser(browser_type, browser_type_launch_args):
            return lambda: browser_type.launch(**browser_type_launch_args)

        def test_it(page, browser, pid_of, peaks_session):
            assert page.context.browser is browser
            assert pid_of(browser) != peaks_session.pid
            page.set_content("<title>left open</title>")
        """,
    )
    suite.runpytest_subprocess("--peaks-bridge", "-W", "ignore").assert_outcomes(passed=7)
    (suite.path / "test_own_launch.py").unlink()
    (suite.path / "test_own_browser.py").unlink()
    suite.runpytest_subprocess("--peaks-bridge", "-n2", "--dist=loadfile", "-W", "ignore").assert_outcomes(
        passed=5
    )


def test_a_remote_browser_that_a_suite_connects_to_is_used(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from pytest_peaks.session import spawning

        @pytest.fixture(scope="session")
        def connect_options(playwright):
            server = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
            bound = server.bind("remote", host="127.0.0.1", port=0)
            yield {"endpoint": bound["endpoint"]}
            server.close()

        def test_it(page, browser, peaks_session):
            assert browser is not peaks_session.browser
            assert page.context.browser is browser
            page.goto("data:text/html,<title>x</title>")
            assert page.title() == "x"
        """.replace("EXECUTABLE", repr(EXECUTABLE))
    )
    suite.runpytest_subprocess("--peaks-bridge", "-W", "ignore").assert_outcomes(passed=1)


def test_launch_arguments_reach_the_browser(suite: pytest.Pytester, site: str) -> None:
    suite.makeconftest(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def browser_type_launch_args(browser_type_launch_args):
            return {{**browser_type_launch_args, "executable_path": {EXECUTABLE!r}}}
        """
    )
    suite.makepyfile(
        f"""
        import psutil, pytest

        arguments = lambda **given: pytest.mark.parametrize(
            "browser_type_launch_args", [dict(given, executable_path={EXECUTABLE!r})], indirect=True, ids=["x"]
        )

        def test_plain(page, peaks_session):
            assert "--lang=de" not in psutil.Process(peaks_session.pid).cmdline()

        @arguments(args=["--no-sandbox", "--user-agent=mine"])
        def test_switches(page, peaks_session):
            assert "--user-agent=mine" in psutil.Process(peaks_session.pid).cmdline()
            assert page.evaluate("navigator.userAgent") == "mine"

        @arguments(args=["--no-sandbox"], proxy={{"server": "http://user:canary@127.0.0.1:9"}})
        def test_what_only_the_driver_can(page, peaks_session, browser):
            assert peaks_session.port is None and browser is peaks_session.browser
            with pytest.raises(Exception, match="ERR_PROXY_CONNECTION_FAILED"):
                page.goto("http://site.invalid/")

        @arguments(args=["--no-sandbox"], proxy={{"server": "http://user:canary@127.0.0.1:9"}})
        def test_but_then_there_is_no_other_door(page, peaks_mcp):
            pass

        @arguments(args=["--remote-debugging-port=9222"])
        def test_what_is_not_theirs_to_say(page):
            pass
        """
    )
    result = suite.runpytest_subprocess("--peaks-bridge", "-W", "ignore")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*INVALID_OPTION: doors=mcp needs a Chromium with a debugging port*",
            "*INVALID_OPTION: browser_type_launch_args: --remote-debugging-port is for peaks to choose*",
        ]
    )
    result.stdout.no_re_match_line(r"^E .*canary")


def test_options_of_pytest_playwright_hold_for_peaks_page_too(suite: pytest.Pytester, site: str) -> None:
    suite.makeconftest("")
    suite.makepyfile(
        """
        import time

        def test_ours(peaks_page, peaks_session):
            assert peaks_page.evaluate("navigator.userAgent").startswith("Mozilla/5.0 (iPhone")
            assert peaks_page.goto("/").ok
            assert peaks_session._spec.browser.slow_mo == 30
            start = time.monotonic()
            for _ in range(10):
                peaks_page.keyboard.press("a")
            assert time.monotonic() - start > 0.25
        """
    )
    (suite.path / "test_bridged.py").write_text(
        """import pytest

@pytest.mark.peaks_session(device="Pixel 7")
def test_bridged(page):
    assert "Pixel 7" in page.evaluate("navigator.userAgent")
    assert page.viewport_size["width"] == 412

@pytest.mark.peaks_session
def test_as_configured(page):
    assert page.evaluate("navigator.userAgent").startswith("Mozilla/5.0 (iPhone")
    assert page.goto("/").ok
"""
    )
    options = ["--device=iPhone 13", f"--base-url={site}", "--slowmo=30"]
    suite.runpytest_subprocess(*options, "-W", "ignore").assert_outcomes(passed=3)
    result = suite.runpytest_subprocess("--browser=chromium", "--browser=firefox", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::test_ours?chromium?", "*::test_ours?firefox?"])
    result = suite.runpytest_subprocess("--browser=firefox", "-W", "ignore")
    result.stdout.fnmatch_lines(["*BROWSER_NOT_FOUND: no firefox on this machine*"])
    result = suite.runpytest_subprocess("--browser-channel=chrome-beta", "-W", "ignore", "test_bridged.py")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*chrome-beta*not found*"])


def test_a_browser_that_died_is_not_the_next_tests(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os, signal

        def test_that_kills(page, browser, pid_of):
            os.kill(pid_of(browser), signal.SIGKILL)
            page.goto("data:text/html,x")

        def test_after(page, browser):
            page.goto("data:text/html,<title>x</title>")
            assert page.title() == "x" and browser.is_connected()

        def test_and_after_that(browser, new_context):
            assert new_context().new_page().url == "about:blank"
        """
    )
    result = suite.runpytest_subprocess("--peaks-bridge", "-W", "ignore")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["E *BROWSER_LOST: *"])


ARTIFACTS = """
import os, pathlib, pytest

OPTIONS = pytest.mark.peaks_session

@OPTIONS
@pytest.mark.parametrize("number", range(4))
def test_keeps(page, number):
    page.set_content(f"<h1>{number}</h1>")
    assert number % 2

@OPTIONS
def test_two_contexts(page, new_context):
    new_context().new_page().set_content("<h1>second</h1>")
    page.set_content("<h1>first</h1>")
    raise AssertionError

@OPTIONS(isolation="recycled")
@pytest.mark.parametrize("number", range(2))
def test_recycled(page, context, number):
    page.set_content(f"<h1>{number}</h1>")
    assert number == 0

@OPTIONS
def test_closed_by_hand(page, context):
    context.close()
    raise AssertionError
"""


def kept(folder: Path) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in folder.glob("*/*")}


def test_its_artifacts_are_what_they_are_without_the_bridge(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=ARTIFACTS)
    options = ["--tracing=retain-on-failure", "--screenshot=only-on-failure", "-W", "ignore", "-n2"]
    suite.runpytest_subprocess(*options, "--output=riding", "--junitxml=riding.xml").assert_outcomes(
        passed=3, failed=5
    )
    (suite.path / "test_it.py").write_text(
        ARTIFACTS.replace("pytest.mark.peaks_session", "pytest.mark.usefixtures").replace(
            'OPTIONS(isolation="recycled")', "OPTIONS"
        )
    )
    suite.runpytest_subprocess(*options, "--output=theirs", "--junitxml=theirs.xml").assert_outcomes(
        passed=3, failed=5
    )
    riding, theirs = kept(suite.path / "riding"), kept(suite.path / "theirs")
    assert riding == theirs
    assert len(riding) == 12, riding
    told = [
        sorted(line.replace(name, "") for line in (suite.path / f"{name}.xml").read_text().split("<property"))
        for name in ("riding", "theirs")
    ]
    assert [line.count("playwright_") for line in told[0]] == [line.count("playwright_") for line in told[1]]


def test_a_worker_that_crashes_takes_no_artifacts_of_others_along(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os, pathlib, pytest

        pytestmark = pytest.mark.peaks_session

        @pytest.mark.parametrize("number", range(8))
        def test_it(page, number):
            page.set_content("<h1>x</h1>")
            if number == 5:
                os._exit(1)
            raise AssertionError
        """
    )
    (suite.path / "test-results").mkdir()
    (suite.path / "test-results" / "of-an-earlier-run").touch()
    result = suite.runpytest_subprocess("-n2", "--screenshot=only-on-failure", "-W", "ignore")
    result.assert_outcomes(failed=8)
    assert len(kept(suite.path / "test-results")) == 7
    assert not (suite.path / "test-results" / "of-an-earlier-run").exists()


def test_a_suite_that_keeps_its_output_folder_keeps_it(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        CONFTEST
        + """
@pytest.fixture(scope="session", autouse=True)
def delete_output_dir():
    pass
"""
    )
    suite.makepyfile("def test_it(page): pass")
    (suite.path / "test-results").mkdir()
    (suite.path / "test-results" / "of-an-earlier-run").touch()
    suite.runpytest_subprocess("-n1", "--peaks-bridge", "-W", "ignore").assert_outcomes(passed=1)
    assert (suite.path / "test-results" / "of-an-earlier-run").exists()


def test_a_loop_runs_beside_pages_while_the_bridge_is_on(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import asyncio

        async def main():
            await asyncio.sleep(0)
            return 1

        def test_page(page):
            page.set_content("<h1>x</h1>")

        def test_loop():
            assert asyncio.run(main()) == 1

        def test_page_again(page):
            page.set_content("<h1>x</h1>")
        """
    )
    suite.runpytest_subprocess("--peaks-bridge", "-W", "ignore").assert_outcomes(passed=3)


# What launch arguments mean


def config(**changes: object) -> PeaksConfig:
    from pytest_peaks.config import read

    class Nothing:
        rootpath = Path("/project")
        option = None

        def getoption(self, _name: str, default: object = None) -> object:
            return default

        def getini(self, _name: str) -> str:
            return ""

    import dataclasses

    return dataclasses.replace(read(Nothing()), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("chromium", {}, {}),
        ("chromium", {"headless": True, "timeout": 5, "channel": None}, {}),
        ("chromium", {"headless": False, "slow_mo": 50}, {"headed": True, "slow_mo": 50.0}),
        ("chromium", {"executable_path": "/bin/x"}, {"executable": Path("/bin/x")}),
        ("chromium", {"channel": "msedge"}, {"browser": BrowserName.MSEDGE}),
        ("chromium", {"args": ["--a"], "chromium_sandbox": False}, {"switches": ("--a", "--no-sandbox")}),
        ("chromium", {"channel": "chrome-beta"}, {"debug_port": False}),
        ("firefox", {"firefox_user_prefs": {"a": 1}}, {"browser": BrowserName.FIREFOX, "debug_port": False}),
        ("webkit", {"args": ["--a"]}, {"browser": BrowserName.WEBKIT, "debug_port": False}),
    ],
)
def test_launch_arguments_are_the_browsers_as_far_as_peaks_can_spawn_it(
    name: str, arguments: dict[str, object], expected: dict[str, object]
) -> None:
    found = browser_spec(config(), name, arguments)
    for field, value in expected.items():
        assert getattr(found, field) == value
    if not expected:
        assert found == config().browser_spec, "so that reuse and attach hold"
    assert found.own_process == ("debug_port" not in expected)


@pytest.mark.parametrize(
    "switch", ["--remote-debugging-port=1", "--remote-debugging-pipe", "--user-data-dir=x"]
)
def test_a_port_or_a_profile_is_not_for_launch_arguments(switch: str) -> None:
    with pytest.raises(InvalidOptionError):
        browser_spec(config(), "chromium", {"args": [switch]})
