"""Hooks and the fixture of runs in which something is recorded; other runs have none of this."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_peaks import playwright_options, state
from pytest_peaks.artifacts import folder, reporting
from pytest_peaks.artifacts.errors import VideoNotPossibleError
from pytest_peaks.artifacts.options import ArtifactOptions, Keep
from pytest_peaks.artifacts.recording import Recording
from pytest_peaks.fixtures import BROWSER_FIXTURES

if TYPE_CHECKING:
    from pytest_peaks.artifacts.recorder import Recorders
    from pytest_peaks.owner import Owner

_FFMPEG = {"linux": "ffmpeg-linux", "darwin": "ffmpeg-mac", "win32": "ffmpeg-win64.exe"}


def install(config: pytest.Config, options: ArtifactOptions) -> None:
    """Have tests of this run recorded."""
    config.pluginmanager.register(sys.modules[__name__], "peaks-artifacts")
    if options.video is not Keep.OFF:
        config.pluginmanager.register(VideoCheck(), "peaks-video-check")
    if not hasattr(config, "workerinput"):
        kept = state.of(config).kept = reporting.Kept(options.output, config.invocation_params.dir)
        config.pluginmanager.register(kept, "peaks-kept")


@pytest.fixture
def _peaks_recorder(request: pytest.FixtureRequest, _peaks_owner: Owner) -> Iterator[Recorders]:
    """Makes the recorders of this test's sessions."""
    item = request.node
    config = state.of(request.config).config
    retry = max(getattr(item, "execution_count", 1) - 1, 0)  # pytest-rerunfailures

    def taint(reason: str) -> None:
        _peaks_owner.recycler.taint(reason)

    recording = Recording(
        config.artifacts,
        target=_folder_of(request, config.artifacts, retry),
        temp=_peaks_owner.manager.temp_dir / "artifacts",
        title=item.nodeid,
        retry=retry,
        has_failed=lambda: state.has_failed(item),
        say=_peaks_owner.said_once.add,
        taint=taint,
    )
    item.stash[reporting.RECORDING] = recording
    yield recording.session
    if state.is_cut_off(item):  # there will be no report
        del item.stash[reporting.RECORDING]
        with contextlib.suppress(OSError):
            recording.keep(failed=True)


def _folder_of(request: pytest.FixtureRequest, options: ArtifactOptions, retry: int) -> Path:
    """The folder of a test, with nothing in it that an earlier run of ours kept."""
    theirs = _their_folder(request, options)
    if theirs is not None:
        return theirs  # and theirs to clear
    name = folder.folder_name(request.node.nodeid, retry=retry)
    given = getattr(request.config, "workerinput", {})
    if given.get("peaks", {}).get("each"):
        name = f"{name}-{given['workerid']}"  # every worker runs every test
    found = options.output / name
    folder.clear_earlier(found, retry=retry)
    return found


def _their_folder(request: pytest.FixtureRequest, options: ArtifactOptions) -> Path | None:
    """What pytest-playwright's fixture `output_path` says, unless our own option names another place."""
    if playwright_options.plugin(request.config) is None:
        return None
    if Path(request.config.getoption("--output")).absolute() != options.output:
        return None
    try:
        return Path(request.getfixturevalue("output_path")).absolute()
    except pytest.FixtureLookupError:
        return None


class VideoCheck:
    """Says at collection, once, that videos are not possible here."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        items = report.result if report.passed else ()
        if not any(map(_opens_a_context, items)):
            return report
        try:
            check_ffmpeg()
        except VideoNotPossibleError as error:
            if not hasattr(collector.config, "workerinput"):
                raise pytest.UsageError(str(error)) from None
            # xdist drops a worker's UsageError without a word; a collection error reaches the user.
            report.outcome = "failed"
            report.longrepr = str(error)
            report.result = []
        return report


def _opens_a_context(item: pytest.Item | pytest.Collector) -> bool:
    names = getattr(item, "fixturenames", ())
    bridged = isinstance(item, pytest.Item) and state.is_bridged(item) and "new_context" in names
    return bridged or not BROWSER_FIXTURES.isdisjoint(names)


def check_ffmpeg() -> None:
    """Whether Playwright will find the ffmpeg that it writes videos with.

    :raises VideoNotPossibleError: it won't.
    """
    from pytest_peaks.session.browsers import download_folder

    place = download_folder("ffmpeg")
    name = _FFMPEG.get(sys.platform, "ffmpeg-linux")
    if place is not None and not (place / name).is_file():
        raise VideoNotPossibleError(
            f"videos need Playwright's ffmpeg, which is not in {place}",
            hint="run `playwright install ffmpeg`, or leave out --peaks-video",
        )
