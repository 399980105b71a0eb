"""pytest's entry point: options, the marker, hooks in the order in which pytest calls them."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_peaks import config as settings
from pytest_peaks import marker, phases, playwright_options, state
from pytest_peaks.errors import PeaksError
from pytest_peaks.fixtures import (  # noqa: F401 - found by pytest in this module
    BROWSER_FIXTURES,
    _peaks_base_url,
    _peaks_owner,
    peaks_account,
    peaks_browser,
    peaks_cli,
    peaks_context,
    peaks_mcp,
    peaks_page,
    peaks_pool,
    peaks_session,
    peaks_session_factory,
    peaks_sessions,
    peaks_slot,
)

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

SCOPE_HINT = (
    "peaks_session, peaks_page, peaks_context, peaks_browser and peaks_sessions last one test. For a wider scope:\n"
    '  @pytest.fixture(scope="module")\n'
    "  def shared_page(peaks_session_factory):\n"
    "      with peaks_session_factory() as session:\n"
    "          yield session.page"
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_peaks import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    settings.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    settings.give_reuse_its_value(args)


def pytest_configure(config: pytest.Config) -> None:
    from pytest_peaks import workers
    from pytest_peaks.termination import Termination

    config.addinivalue_line("markers", marker.DESCRIPTION)
    try:
        read = settings.read(config)
    except PeaksError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise pytest.UsageError(f"{error.code}: {error.message}{hint}") from None
    termination = Termination(lambda: workers.in_use(config), lambda number: workers.pass_on(config, number))
    config.stash[state.STATE] = state.RunState(read, workers.run_of(config), termination)
    if playwright_options.plugin(config) is not None or (
        read.bridge and not playwright_options.is_async(config)
    ):
        from pytest_peaks.bridge import hooks

        hooks.install(config)
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(workers.WorkerHooks(config), "peaks-workers")


def pytest_report_header(config: pytest.Config) -> str:
    from pytest_peaks.session import browsers

    read = state.of(config).config
    try:
        found = str(browsers.find(read.browser_spec))
    except PeaksError as error:
        return f"peaks: {error.message.partition(';')[0]} ({error.hint})"
    ports = f"ports {read.ports}" if read.debug_port and read.browser.is_chromium else "no ports"
    headed = ", headed" if read.headed else ""
    header = f"peaks: {found}, isolation {read.isolation}, {ports}{headed}"
    problem = browsers.inspector_problem()
    return (
        f"{header}\npeaks: PWDEBUG is set, but Playwright's inspector is not shown: {problem}"
        if problem
        else header
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    try:
        for item in report.result if report.passed else ():
            if isinstance(item, pytest.Item) and state.asks_for_a_session(item):
                state.spec_of(item)
    except pytest.UsageError as error:
        if not hasattr(collector.config, "workerinput"):
            raise
        # xdist drops a worker's UsageError without a word; a collection error reaches the user.
        report.outcome = "failed"
        report.longrepr = str(error)
        report.result = []
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    phases.decide(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    try:
        return (yield from _naming_a_lost_browser(item))
    except PeaksError as error:
        _raise_at_users_line(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    try:
        return (yield from _naming_a_lost_browser(item))
    except PeaksError as error:
        _raise_at_users_line(error)


def _naming_a_lost_browser(item: pytest.Item) -> Generator[None, Any, Any]:
    """Turn whatever a test saw of its browser's death into BROWSER_LOST."""
    __tracebackhide__ = True
    try:
        result = yield
    except PeaksError:
        raise
    except Exception as error:
        lost = _lost(item, error)
        if lost is None:
            raise
        raise lost.with_traceback(error.__traceback__) from None
    lost = _lost(item, None)
    if lost is not None:
        raise lost
    return result


def _lost(item: pytest.Item, seen: Exception | None) -> PeaksError | None:
    owner = state.of(item.config).owner
    return owner.loss(seen) if owner is not None else None


def _raise_at_users_line(error: PeaksError) -> NoReturn:
    """Report a failure at the line of the test or fixture that asked, without the frames between.

    Where no line of the user's took part, the sentence and the hint say it all.
    """
    traceback = _users_frames(error.__traceback__)
    __tracebackhide__ = traceback is not None
    if traceback is None:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    raise error.with_traceback(traceback) from None


def _users_frames(traceback: TracebackType | None) -> TracebackType | None:
    if traceback is None:
        return None
    rest = _users_frames(traceback.tb_next)
    module = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    if module in ("pytest_peaks", "playwright", "_pytest", "pluggy", "contextlib", "asyncio"):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    try:
        return (yield)
    except PeaksError as error:
        _raise_at_users_line(error)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Keep saved logins out of the environment of a Playwright that the suite starts."""
    if fixturedef.argname != "playwright":
        return (yield)
    from pytest_peaks.session.spawning import secrets_aside

    phases.begin(request.config, only_if="on")
    with secrets_aside():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    state.note_report(item, report)
    text = str(call.excinfo.value) if call.excinfo is not None else ""
    if report.failed and "ScopeMismatch" in text and any(name in text for name in BROWSER_FIXTURES):
        report.sections.append(("peaks", SCOPE_HINT))
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    run_state = state.of(session.config)
    owner = run_state.owner
    if owner is not None:
        with phases.mark_of(session.config).held():
            owner.close()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["peaks"] = owner.report()
        else:
            run_state.reports.append(owner.report())
    if hasattr(session.config, "workerinput"):
        return
    hooks = session.config.pluginmanager.get_plugin("peaks-workers")
    if hooks is not None:
        hooks.take_leave()
    status = run_state.termination.exit_status
    if status is not None:
        session.exitstatus = status
    if run_state.reports or run_state.termination.received:
        _finish_run(session.config)


def _finish_run(config: pytest.Config) -> None:
    """In the controller, when all workers are down: sweep, note what is left, send the guardian home."""
    from pytest_peaks import workers
    from pytest_peaks.session import guardian
    from pytest_peaks.summary import leftovers

    run_state = state.of(config)
    dirs = workers.dirs_of(config)
    try:
        swept = guardian.sweep(dirs, run_uid=run_state.run.uid)
        run_state.swept += [record.session_id for record in swept.ended]
        run_state.left = leftovers(dirs, run_state.run.uid)
        if not run_state.left:
            guardian.call_off(run_state.run.uid)
    except PeaksError as error:
        run_state.left = [str(error)]


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    run_state = state.of(config)
    used = any(report["browsers"] for report in run_state.reports)
    if not (used or run_state.left) or (terminalreporter.verbosity < 0 and not run_state.left):
        return
    terminalreporter.ensure_newline()
    terminalreporter.section("peaks")
    from pytest_peaks.summary import lines_of

    for line in lines_of(run_state):
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    run_state = config.stash.get(state.STATE, None)
    if run_state is None:
        return
    run_state.termination.uninstall()
    if run_state.owner is not None:
        with phases.mark_of(config).held():
            run_state.owner.close()
