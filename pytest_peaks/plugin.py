"""pytest's entry point: options, the marker, hooks in the order in which pytest calls them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import pytest

from pytest_peaks import marker_name, options, playwright_options, state
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

    from pytest_peaks.errors import PeaksError
    from pytest_peaks.owner import Owner

_BROWSERS = BROWSER_FIXTURES | {"playwright"}

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
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    options.give_reuse_its_value(args)


@pytest.hookimpl(optionalhook=True, tryfirst=True)  # of pytest-xdist, whose own implementation answers always
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    from pytest_peaks import auto_workers

    return auto_workers.number_of_workers(config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", marker_name.DESCRIPTION)
    run_state = config.stash[state.STATE] = state.RunState(config)
    with_theirs = playwright_options.plugin(config) is not None
    said = with_theirs or options.any_given(config)
    if said:
        _validate(run_state)
    if hasattr(config, "workerinput"):
        _ = run_state.run  # takes over what the controller hands out
    if with_theirs or (said and run_state.config.bridge and not playwright_options.is_async(config)):
        from pytest_peaks.bridge import hooks

        hooks.install(config)
    if said and run_state.config.artifacts.wanted:
        from pytest_peaks.artifacts import hooks as recording

        recording.install(config, run_state.config.artifacts)
    # xdist has decided by now whether there are workers.
    if not hasattr(config, "workerinput") and config.getoption("dist", "no") != "no":
        from pytest_peaks import workers

        config.pluginmanager.register(workers.WorkerHooks(config), "peaks-workers")


def _validate(run_state: state.RunState) -> None:
    from pytest_peaks.errors import PeaksError

    try:
        _ = run_state.config
    except PeaksError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise pytest.UsageError(f"{error.code}: {error.message}{hint}") from None


def pytest_report_header(config: pytest.Config) -> str:
    from pytest_peaks.errors import PeaksError
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
    if _has_browser_tests(session):
        from pytest_peaks import phases

        phases.decide(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    if _has_browser_tests(session):
        from pytest_peaks import early

        early.start(session)


def _has_browser_tests(session: pytest.Session) -> bool:
    """Whether a test of this process is at all likely to use a browser: a plain run is to import nothing for it."""
    items = getattr(session, "items", ())
    return any(not _BROWSERS.isdisjoint(getattr(item, "fixturenames", ())) for item in items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    try:
        return (yield from _naming_a_lost_browser(item))
    except Exception as error:
        if not _is_ours(error):
            raise
        _raise_at_users_line(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    try:
        return (yield from _naming_a_lost_browser(item))
    except Exception as error:
        if not _is_ours(error):
            raise
        _raise_at_users_line(error)


def _is_ours(error: Exception) -> TypeGuard[PeaksError]:
    """Whether it is one of this package's errors, which nobody has raised while their module is not loaded."""
    errors = sys.modules.get("pytest_peaks.errors")
    return errors is not None and isinstance(error, errors.PeaksError)


def _naming_a_lost_browser(item: pytest.Item) -> Generator[None, Any, Any]:
    """Turn whatever a test saw of its browser's death into BROWSER_LOST."""
    __tracebackhide__ = True
    try:
        result = yield
    except Exception as error:
        lost = None if _is_ours(error) else _lost(item, error)
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
    except Exception as error:
        if not _is_ours(error):
            raise
        _raise_at_users_line(error)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Keep saved logins out of the environment of a Playwright that the suite starts."""
    if fixturedef.argname != "playwright":
        return (yield)
    from pytest_peaks import phases

    phases.begin(request.config, only_if="on")
    item: Any = getattr(request, "_pyfuncitem", None)
    if item is not None and state.is_bridged(item):
        # It will be ours to use, so it is started as we start one.
        from pytest_peaks.doors.driver import driver_environment
        from pytest_peaks.early import owner_of

        with driver_environment(owner_of(request.config).manager.temp_dir):
            return (yield)
    from pytest_peaks.session.spawning import secrets_aside

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
    reporting = sys.modules.get("pytest_peaks.artifacts.reporting")  # not loaded where nothing is recorded
    if report.when == "teardown" and reporting is not None:
        # Here, between pytest-playwright, whose files are there by now, and a suite's own hooks.
        reporting.decide(item, report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    run_state = state.of(session.config)
    owner = run_state.owner
    if owner is not None:
        _close(owner, session.config)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["peaks"] = owner.report()
        else:
            run_state.reports.append(owner.report())
    if hasattr(session.config, "workerinput"):
        return
    hooks = session.config.pluginmanager.get_plugin("peaks-workers")
    if hooks is not None:
        hooks.take_leave()
    status = run_state.exit_status
    if status is not None:
        session.exitstatus = status
    if run_state.reports or status is not None:
        _finish_run(session.config)


def _close(owner: Owner, config: pytest.Config) -> None:
    from pytest_peaks import phases

    with phases.mark_of(config).held():
        owner.close()


def _finish_run(config: pytest.Config) -> None:
    """In the controller, when all workers are down: sweep, note what is left, send the guardian home."""
    from pytest_peaks import workers
    from pytest_peaks.errors import PeaksError
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
    run_state.uninstall()
    if run_state.owner is not None:
        _close(run_state.owner, config)
