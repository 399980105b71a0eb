"""Async and sync in one worker: tests that run an event loop work beside browser tests, whoever's the page is."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import playwright._impl._greenlets
import pytest
from leaks import Surroundings

from pytest_peaks import parked
from pytest_peaks.parking import EventLoopError, Mark
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

SETTINGS = """
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
"""
CONFTEST = """
import os, pathlib
import pytest
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.contenttypes"],
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()
NOTES = pathlib.Path(__file__).parent / "notes"

@pytest.fixture
def note():
    NOTES.mkdir(exist_ok=True)
    return lambda name: (NOTES / name).write_text("")

@pytest.fixture
def anyio_backend():
    return "asyncio"

def pytest_collection_modifyitems(items):
    if os.environ.get("BACKWARDS"):
        items.reverse()
"""
HEAD = """
import asyncio, unittest
import anyio, pytest, pytest_asyncio
from asgiref.sync import async_to_sync
from pytest_peaks import parked

async def two():
    await asyncio.sleep(0)
    return 2

def works(page):
    # What needs the mark comes first: a plain call would put it back.
    with page.expect_console_message() as said:
        page.evaluate("console.log('said')")
    assert said.value.text == "said"
    page.set_content("<h1>hello</h1>")
    assert page.text_content("h1") == "hello"
"""
MIXED = """
@pytest_asyncio.fixture(loop_scope="session", scope="session", autouse=True)
async def for_all():
    yield await two()
    await two()

@pytest_asyncio.fixture
async def number(note):
    yield await two()
    await two()
    note("async teardown")

@pytest.fixture
def on_top(PAGE, note):
    PAGE.goto("data:text/html,<title>top</title>")
    yield PAGE
    assert PAGE.title() == "top"
    note("sync teardown")

@pytest.fixture
def on_an_async_one(number, PAGE):
    yield PAGE, number
    works(PAGE)

def test_01_asyncio_run_first(): assert asyncio.run(two()) == 2
def test_02_browser(PAGE): works(PAGE)
def test_03_asyncio_run(): assert asyncio.run(two()) == 2
def test_04_browser(PAGE): works(PAGE)

def test_05_runner():
    with asyncio.Runner() as runner:
        assert runner.run(two()) == 2

def test_06_browser(PAGE): works(PAGE)

def test_07_new_event_loop():
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(two()) == 2
    loop.close()

def test_08_browser(PAGE): works(PAGE)

@pytest.mark.asyncio
async def test_09_pytest_asyncio(number): assert await two() == number

@pytest.mark.asyncio(loop_scope="session")
async def test_10_pytest_asyncio_in_the_sessions_loop(for_all): assert await two() == for_all

def test_11_browser(PAGE): works(PAGE)

@pytest.mark.anyio
async def test_12_anyio():
    await anyio.sleep(0)
    assert await two() == 2

def test_13_browser(PAGE): works(PAGE)

def test_14_django():
    from django.contrib.contenttypes.models import ContentType
    from django.db import connection

    with connection.schema_editor() as editor:
        editor.create_model(ContentType)
    ContentType.objects.create(app_label="app", model="page")
    assert ContentType.objects.get().model == "page"
    connection.close()

def test_15_browser(PAGE): works(PAGE)
def test_16_async_to_sync(): assert async_to_sync(two)() == 2
def test_17_browser(PAGE): works(PAGE)

class TestIsolated(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self): self.found = await two()
    async def test_18_it(self): assert self.found == await two()
    def test_19_sync(self): assert self.found == 2

def test_20_browser(PAGE): works(PAGE)

def test_21_async_fixture_and_page(number, PAGE):
    assert number == 2
    works(PAGE)

def test_22_page_on_top_of_an_async_fixture(on_an_async_one): works(on_an_async_one[0])
def test_23_fixture_on_top(on_top): assert on_top.title() == "top"
def test_24_asyncio_run(): assert asyncio.run(two()) == 2

def test_25_getfixturevalue(request):
    assert asyncio.run(two()) == 2
    works(request.getfixturevalue("PAGE"))

def test_26_asyncio_run(): assert asyncio.run(two()) == 2

def test_27_fails_with_a_browser(PAGE):
    works(PAGE)
    assert PAGE.text_content("h1") == "bye"

@pytest.mark.asyncio
async def test_28_after_a_failure(number): assert await two() == number

def test_29_parked(PAGE):
    works(PAGE)
    with parked():
        assert asyncio.run(two()) == 2
    works(PAGE)

def test_30_async_fixture_by_name(request, PAGE):
    assert request.getfixturevalue("number") == 2
    works(PAGE)

@pytest.mark.usefixtures("PAGE")
class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, PAGE): self.page = PAGE
    def setUp(self): works(self.page)
    def tearDown(self): works(self.page)
    def test_31_it(self): works(self.page)

def test_32_asyncio_run(): assert asyncio.run(two()) == 2
def test_33_last(PAGE): works(PAGE)
"""
PASSED = 32


@pytest.fixture
def mixed(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.Pytester]:
    """Make a project with tests of every async kind."""
    monkeypatch.delenv("PYTEST_ADDOPTS")
    monkeypatch.setenv("COLUMNS", "200")

    def make(tests: str = MIXED, *, page: str = "peaks_page", conftest: str = "") -> pytest.Pytester:
        # pytest-playwright itself warns under the newest pytest.
        others = "-p no:playwright" if page == "peaks_page" else ""
        warnings = "filterwarnings = error" if others else ""
        project.makeini(
            f"[pytest]\naddopts = -p no:cacheprovider {others}\nmarkers = asyncio\n{warnings}\n{SETTINGS}"
        )
        executable = str(browsers.find(BrowserSpec()).executable)
        launch = f"""
@pytest.fixture(scope="session")
def browser_type_launch_args():
    return dict(executable_path={executable!r}, args=["--no-sandbox"])
"""
        project.makeconftest(CONFTEST + launch + conftest)
        project.makepyfile(test_it=HEAD + tests.replace("PAGE", page))
        return project

    return make


@pytest.fixture
def no_litter() -> Iterator[None]:
    """What pytest-playwright's own browser and driver leave in TMPDIR is not the plugin's to remove."""
    yield
    for path in Path(os.environ["TMPDIR"]).iterdir():
        if not path.name.startswith("peaks-"):
            shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize(
    "backwards", ["", pytest.param("1", marks=pytest.mark.slow)], ids=["forwards", "backwards"]
)
@pytest.mark.parametrize("workers", [pytest.param("-n0", marks=pytest.mark.slow), "-n2"])
def test_every_async_kind_works_beside_browser_tests(
    mixed: Callable[..., pytest.Pytester], monkeypatch: pytest.MonkeyPatch, workers: str, backwards: str
) -> None:
    monkeypatch.setenv("BACKWARDS", backwards)
    project = mixed()
    result = project.runpytest_subprocess(workers)
    result.assert_outcomes(passed=PASSED, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_27_fails_with_a_browser - *'bye'*"])
    assert {path.name for path in (project.path / "notes").iterdir()} == {"async teardown", "sync teardown"}


@pytest.mark.usefixtures("no_litter")
@pytest.mark.parametrize("workers", [pytest.param("-n0", marks=pytest.mark.slow), "-n2"])
def test_every_async_kind_works_beside_pytest_playwright(
    mixed: Callable[..., pytest.Pytester], workers: str
) -> None:
    project = mixed(page="page")
    result = project.runpytest_subprocess(workers, "--peaks-async-safe=on", "--tracing=retain-on-failure")
    result.assert_outcomes(passed=PASSED, failed=1)
    assert list((project.path / "test-results").rglob("trace.zip"))


FOREIGN = "def test_1(page): works(page)\ndef test_2(): assert asyncio.run(two()) == 2\n"


@pytest.mark.usefixtures("no_litter")
def test_a_run_with_pytest_playwright_alone_is_left_as_it_is(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(FOREIGN, page="page")
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*parked*")
    project.runpytest_subprocess("--peaks-async-safe", "on").assert_outcomes(passed=2)


@pytest.mark.usefixtures("no_litter")
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_one_test_of_peaks_makes_the_whole_run_safe(
    mixed: Callable[..., pytest.Pytester], workers: str
) -> None:
    project = mixed(
        FOREIGN + "def test_3(page, peaks_page): works(page), works(peaks_page)\n" * 1, page="page"
    )
    project.runpytest_subprocess(workers).assert_outcomes(passed=3)


def test_it_can_be_switched_off(
    mixed: Callable[..., pytest.Pytester], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEAKS_ASYNC_SAFE", "off")
    project = mixed(FOREIGN.replace("page", "peaks_page") + "def test_3(peaks_page): works(peaks_page)\n")
    project.runpytest_subprocess().assert_outcomes(passed=2, failed=1)


def test_a_wrong_value_is_a_usage_error(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--peaks-async-safe=perhaps")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *--peaks-async-safe: 'perhaps' is neither on nor off*"])


def test_a_run_without_a_browser_pays_nothing_for_it(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import sys
        def pytest_unconfigure(config):
            assert not config.pluginmanager.hasplugin("peaks-parking")
            assert "asyncio" not in sys.modules
        """
    )
    project.makepyfile("def test_plain(peaks_slot): assert peaks_slot == 0")
    result = project.runpytest_subprocess("-p", "no:xdist", "-p", "no:timeout", "-p", "no:rerunfailures")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


def test_misuse_says_what_to_do_and_breaks_nothing(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        """
def test_1(peaks_page):
    unused = two()
    try:
        asyncio.run(unused)
    finally:
        unused.close()

def test_2(peaks_page):
    with parked():
        peaks_page.title()

@pytest.mark.asyncio
async def test_3(peaks_page): peaks_page.title()

def test_4(peaks_page):
    async def inner(): peaks_page.title()
    with parked():
        asyncio.run(inner())

@pytest.fixture(scope="module")
def wide(peaks_session_factory):
    with peaks_session_factory() as session:
        yield session.page

def test_5(wide): works(wide)
def test_6(request): works(request.getfixturevalue("wide"))
def test_7(wide): works(wide)
"""
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=5)
    result.stdout.fnmatch_lines(
        [
            "E * RuntimeError: asyncio.run() cannot be called from a running event loop",
            "*with parked():",
            "E *EVENT_LOOP: Playwright's sync API was called inside parked()",
            "E *EVENT_LOOP: Playwright's sync API was called while another event loop runs in this thread",
            "E *hint: *pytest-playwright-asyncio",
            "E *EVENT_LOOP: Playwright's sync API was called inside parked()",
            "Name its fixture among the test's arguments*",
        ]
    )


def test_a_browser_is_used_outside_of_its_phases(mixed: Callable[..., pytest.Pytester]) -> None:
    """In hooks, in finalizers of a test's own, and in tests that have a page in their hands without a fixture."""
    project = mixed(
        """
kept = []

def test_1(peaks_page, request):
    kept.append(peaks_page)
    peaks_page.set_content("<h1>hello</h1>")
    peaks_page.context.tracing.start()
    request.addfinalizer(lambda: kept.append("finalized"))
    assert not peaks_page.title(), "fails"
    raise AssertionError

@pytest.mark.asyncio
async def test_2(): assert await two() == 2

@pytest.fixture(scope="module")
def hidden(request):
    with request.getfixturevalue("peaks_session_factory")() as session:
        kept.append(session.page)
        yield session.page
        works(session.page)

def test_3(request): request.getfixturevalue("hidden")

def test_4():
    assert asyncio.run(two()) == 2
    kept[-1].set_content("<h1>hello</h1>")
    assert kept[-1].text_content("h1") == "hello"

def test_5(hidden): works(hidden)
def test_6(request):
    page = request.getfixturevalue("hidden")
    page.title()
    works(page)
@pytest.mark.asyncio
async def test_7(hidden): assert await two() == 2
def test_8(): assert asyncio.run(two()) == 2

def test_9(request):
    request.addfinalizer(lambda: kept[-1].title())
    assert asyncio.run(two()) == 2

@pytest_asyncio.fixture
async def late():
    yield
    await two()

def test_10(late, hidden, request):
    request.addfinalizer(lambda: hidden.title())
def test_11(hidden, late): works(hidden)
""",
        conftest="""
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and report.when == "call":
        page = item.funcargs["peaks_page"]
        page.screenshot(path=NOTES.parent / "shot.png")
        page.on("console", lambda message: None)
        report.sections.append(("page", page.text_content("h1")))
    return report
""",
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=10, failed=1)
    assert (project.path / "shot.png").exists()


def test_a_run_whose_only_browser_is_asked_for_by_name(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        """
@pytest_asyncio.fixture
async def before():
    yield await two()
    await two()

def test_1(before, request): works(request.getfixturevalue("peaks_page"))
def test_2(): assert asyncio.run(two()) == 2
def test_3(request): works(request.getfixturevalue("peaks_page"))
@pytest.mark.asyncio
async def test_4(): assert await two() == 2
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=4)


def test_wider_fixtures_are_torn_down_among_async_ones(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        """
@pytest.fixture(scope="session")
def wide(peaks_session_factory):
    with peaks_session_factory() as session:
        yield session.page
        works(session.page)

@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def between(wide):
    yield await two()
    await two()

@pytest.fixture(scope="session")
def top(between, peaks_session_factory):
    session = peaks_session_factory("top", isolation="browser")
    yield session.page
    session.close()

@pytest.mark.asyncio(loop_scope="session")
async def test_1(between): assert between == await two()
def test_2(top): works(top)
@pytest.mark.asyncio(loop_scope="session")
async def test_3(top): assert await two() == 2
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)


@pytest.mark.slow
def test_every_door_desks_and_logins_in_the_mix(
    mixed: Callable[..., pytest.Pytester], surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = surroundings.ports
    monkeypatch.setenv("PEAKS_DESK_PORTS", f"{ports.stop - 10}-{ports.stop - 1}")
    between = "@pytest.mark.asyncio\nasync def test_async_{0}(): assert await two() == 2\n"
    project = mixed(
        """
def test_mcp(peaks_mcp, peaks_page):
    works(peaks_page)
    assert "hello" in peaks_mcp.snapshot()

"""
        + between.format(1)
        + """
def test_cli(peaks_cli, peaks_page):
    works(peaks_page)
    assert peaks_cli("snapshot")

"""
        + between.format(2)
        + """
@pytest.mark.peaks_session(desk="clerk", save=True)
def test_desk(peaks_page): works(peaks_page)

"""
        + between.format(3)
        + """
def test_pool(peaks_pool):
    with peaks_pool.seat("clerk") as session:
        works(session.page)

"""
        + between.format(4)
        + """
@pytest.mark.peaks_session(isolation="recycled")
@pytest.mark.parametrize("number", range(2))
def test_recycled(peaks_page, number): works(peaks_page)

@pytest.mark.peaks_session(isolation="profile")
def test_profile(peaks_page): works(peaks_page)

"""
        + between.format(5)
        + """
@pytest.mark.peaks_session(auth="clerk")
def test_login(peaks_page): works(peaks_page)

"""
        + between.format(6),
        conftest="""
def pytest_peaks_login(name, page):
    page.goto("about:blank")
    page.context.add_cookies([{"name": "who", "value": name, "url": "http://127.0.0.1:9"}])
    return True
""",
    )
    project.runpytest_subprocess().assert_outcomes(passed=14)


@pytest.mark.slow
def test_kept_browsers_in_the_mix(
    mixed: Callable[..., pytest.Pytester], peaks: Callable[..., object]
) -> None:
    project = mixed()
    try:
        for _ in range(2):
            result = project.runpytest_subprocess("--peaks-reuse=force")
            result.assert_outcomes(passed=PASSED, failed=1)
    finally:
        peaks("playwright", "stop", "--all", cwd=project.path)


survives = pytest.mark.skipif(
    not hasattr(playwright._impl._greenlets, "wait_for_future"),
    reason="with this Playwright no call returns after its driver's death, or after an interrupt in a call",
)
KILL_DRIVER = """
import psutil

def kill_driver():
    for child in psutil.Process().children():
        if "run-driver" in child.cmdline():
            child.kill()
            child.wait()

"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_driver_dies_in_between(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        KILL_DRIVER
        + """
def test_1(peaks_page): works(peaks_page)
def test_2(): kill_driver()
def test_3(): assert asyncio.run(two()) == 2
def test_4(peaks_page): works(peaks_page)
def test_5(): assert asyncio.run(two()) == 2
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=5)


@survives
def test_a_driver_dies_under_a_test(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        KILL_DRIVER
        + """
def test_6_dies(peaks_page):
    kill_driver()
    peaks_page.title()
@pytest.mark.asyncio
async def test_7(): assert await two() == 2
def test_8(peaks_page): works(peaks_page)
def test_9_dies(peaks_page):
    with parked():
        kill_driver()
        asyncio.run(two())
    peaks_page.title()
def test_10(): assert asyncio.run(two()) == 2
def test_11(peaks_page): works(peaks_page)
"""
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.fnmatch_lines(
        ["FAILED *test_6_dies - *DRIVER_FAILED*", "FAILED *test_9_dies - *DRIVER_FAILED*"]
    )


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.slow
def test_a_worker_dies_in_between(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(MIXED + "\ndef test_34_dies(PAGE):\n    works(PAGE)\n    import os; os._exit(3)\n" + "")
    result = project.runpytest_subprocess("-n1")
    result.assert_outcomes(passed=PASSED, failed=2)
    dying = mixed(
        MIXED.replace("def test_14_django():", "def test_14_django():\n    import os; os._exit(3)\n")
    )
    dying.runpytest_subprocess("-n1").assert_outcomes(passed=PASSED - 1, failed=2)


@pytest.mark.slow
@survives
def test_a_test_that_runs_out_of_time_in_playwright(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        """
def test_1(peaks_page): works(peaks_page)

@pytest.mark.timeout(2, method="signal")
def test_2_too_long(peaks_page): peaks_page.wait_for_timeout(60_000)

@pytest.mark.asyncio
async def test_3(): assert await two() == 2

@pytest.mark.timeout(2, method="signal")
def test_4_too_long(peaks_page):
    with parked():
        asyncio.run(asyncio.sleep(60))

def test_5(): assert asyncio.run(two()) == 2
def test_6(peaks_page): works(peaks_page)
"""
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=4, failed=2)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_in_parked_can_be_caught_and_ends_the_run_else(
    mixed: Callable[..., pytest.Pytester],
) -> None:
    project = mixed(
        """
import os, signal

async def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)

def test_1(peaks_page):
    with pytest.raises(KeyboardInterrupt), parked():
        asyncio.run(interrupted())
    works(peaks_page)

def test_2(): assert asyncio.run(two()) == 2

def test_3(peaks_page):
    with parked():
        asyncio.run(interrupted())

def test_4(): raise AssertionError("not to be run")
""",
        conftest="""
import asyncio
def pytest_sessionfinish():
    asyncio.run(asyncio.sleep(0))
    NOTES.with_name("finished").write_text("")
""",
    )
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["nothing left behind"])
    assert (project.path / "finished").exists()


def test_a_python_without_the_mark_is_told_once_and_left_as_it_is(
    mixed: Callable[..., pytest.Pytester],
) -> None:
    project = mixed(
        """
def test_1(peaks_page):
    works(peaks_page)
    with parked():
        works(peaks_page)
def test_2(): assert asyncio.run(two()) == 2
def test_3(peaks_page): works(peaks_page)
""",
        conftest="import asyncio\ndel asyncio._get_running_loop\n",
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=1)
    assert result.stderr.str().count("peaks: this Python hides asyncio's running loop") == 1


def test_an_async_playwright_of_the_suites_is_not_borrowed(mixed: Callable[..., pytest.Pytester]) -> None:
    project = mixed(
        """
from playwright.async_api import async_playwright

@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def playwright():
    async with async_playwright() as started:
        yield started

@pytest.mark.asyncio(loop_scope="session")
async def test_1(playwright): assert await (await playwright.request.new_context()).dispose() is None
def test_2(peaks_page): works(peaks_page)
@pytest.mark.asyncio(loop_scope="session")
async def test_3(playwright): assert await (await playwright.request.new_context()).dispose() is None
def test_4(peaks_page): works(peaks_page)
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=4)


# parked() and the mark, without a browser: a loop that is marked as running and has no current task.


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio._set_running_loop(made)
    yield made
    asyncio._set_running_loop(None)
    made.close()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_parked_puts_the_mark_back_whatever_happens_and_may_be_nested(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    async def fails() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(error), parked(), parked():
            asyncio.run(fails())
        assert asyncio._get_running_loop() is loop
        assert loop.get_task_factory() is None
    with parked():
        with parked():
            pass
        assert asyncio.run(asyncio.sleep(0, "inner is over")) == "inner is over"


def test_parked_is_nothing_without_a_mark_and_in_a_coroutine() -> None:
    with parked():
        assert asyncio._get_running_loop() is None

    async def inside() -> None:
        with parked():
            await asyncio.sleep(0)

    asyncio.run(inside())


def test_a_call_in_parked_is_refused_before_it_does_anything(loop: asyncio.AbstractEventLoop) -> None:
    with parked(), pytest.raises(EventLoopError, match="inside parked"):
        loop.create_task(asyncio.sleep(0))
    assert asyncio._get_running_loop() is loop


def test_the_mark_comes_back_with_a_call_and_never_that_of_a_closed_loop(
    loop: asyncio.AbstractEventLoop,
) -> None:
    mark = Mark(lambda _: None)
    mark.off()
    assert asyncio._get_running_loop() is loop, "it is not enabled"
    mark.enabled = True
    mark.off()
    assert asyncio._get_running_loop() is None
    task = loop.create_task(asyncio.sleep(0))
    assert mark.is_on
    mark.off()
    loop.run_until_complete(task)
    with mark.held():
        assert mark.is_on
    assert not mark.is_on

    async def inside() -> None:
        mark.on()
        assert asyncio._get_running_loop() is not loop
        with pytest.raises(EventLoopError, match="another event loop runs"):
            loop.create_task(asyncio.sleep(0))

    asyncio.run(inside())
    loop.close()
    mark.on()
    assert asyncio._get_running_loop() is None
