"""What is recorded of one run of one test, by all of its sessions."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_peaks.artifacts import folder
from pytest_peaks.artifacts.options import ArtifactOptions, Keep

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

# Seconds for the pictures of one session: a picture takes 0.05 s, a page that is stuck or has a dialog open takes all.
PICTURES_TIMEOUT = 5.0
# The least that a further page gets.
LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Artifact:
    """A recorded file, in the temp dir until the test's end is known.

    :ivar kind: ``trace``, ``screenshot`` or ``video``.
    :ivar session: a named session's name; empty for the one without.
    """

    kind: str
    session: str
    path: Path


class Recording:
    """The files of one test.

    :param target: the test's folder.
    :param temp: a folder for this recording alone, not there yet.
    :param retry: how often the test was repeated before.
    :param has_failed: whether the test has failed so far.
    :param say: tells the user something once in a run.
    :param taint: has contexts in use not be used again.
    """

    def __init__(
        self,
        options: ArtifactOptions,
        *,
        target: Path,
        temp: Path,
        title: str,
        retry: int,
        has_failed: Callable[[], bool],
        say: Callable[[str], None],
        taint: Callable[[str], None],
    ) -> None:
        self.options = options
        self.target = target
        self.temp = temp
        self.title = title
        self.say = say
        self.taint = taint
        self.tracing = options.tracing.records(retry)
        self.video = options.video.records(retry)
        self._screenshot = options.screenshot.records(retry)
        self._has_failed = has_failed
        self._artifacts: list[Artifact] = []
        self._count = 0

    @property
    def is_wanted(self) -> bool:
        """Whether anything is recorded in this run of the test."""
        return self.tracing or self.video or self._screenshot

    @property
    def takes_pictures(self) -> bool:
        """Whether the pages are to be shown as they are now."""
        return self._screenshot and self.options.screenshot.keeps(failed=self._has_failed())

    def session(self, name: str = "") -> SessionRecording:
        """The recorder of one session."""
        return SessionRecording(self, name)

    def new_path(self, suffix: str) -> Path:
        """A path in the temp dir for the next file."""
        self.temp.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._count += 1
        return self.temp / f"{self._count}{suffix}"

    def add(self, kind: str, session: str, path: Path) -> None:
        self._artifacts.append(Artifact(kind, session, path))

    def keep(self, *, failed: bool) -> list[tuple[str, Path]]:
        """Put what is to be kept into the test's folder, and remove the rest: kinds and paths.

        :raises OSError: something can't be put there.
        """
        try:
            return list(self._kept(failed=failed))
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what is not kept."""
        self._artifacts.clear()
        shutil.rmtree(self.temp, ignore_errors=True)

    def _kept(self, *, failed: bool) -> Iterable[tuple[str, Path]]:
        keeps = {
            "trace": self.options.tracing,
            "screenshot": self.options.screenshot,
            "video": self.options.video,
        }
        wanted = [found for found in self._artifacts if keeps[found.kind].keeps(failed=failed)]
        for found in wanted:
            same = [other for other in wanted if (other.kind, other.session) == (found.kind, found.session)]
            name = folder.file_name(
                found.kind, found.session, same.index(found) + 1, len(same), failed=failed
            )
            yield found.kind, folder.put(found.path, self.target, name)


class SessionRecording:
    """Records one session; a :class:`pytest_peaks.artifacts.recorder.Recorder`."""

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._name = name
        self._context: BrowserContext | None = None
        self._films = False
        self._strangers: list[Page] = []
        self._pages: list[Page] = []

    def context_options(self) -> dict[str, Any]:
        """Where videos are written, if there are to be any."""
        if not self._recording.video:
            return {}
        self._films = True
        return {"record_video_dir": str(self._recording.new_path("-video"))}

    def started(self, context: BrowserContext, strangers: list[Page]) -> None:
        """Start the trace, and note the pages whose videos there will be."""
        recording = self._recording
        self._context = context
        self._strangers = strangers
        if self._films:
            context.on("page", self._note)
        elif recording.video:
            recording.say("no video of a browser's own context: a profile's, a desk's, one with doors")
        if recording.tracing:
            context.tracing.start(title=recording.title, screenshots=True, snapshots=True, sources=True)
        close = context.close

        def closing(*args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(Exception):
                self.ending(context, [])
            close(*args, **kwargs)

        context.close = closing  # type: ignore[method-assign]

    def ending(self, context: BrowserContext, others: list[BrowserContext]) -> None:
        """Write the trace, and take pictures of the pages."""
        if context is self._context:
            self._context = None
            del context.close  # the class's own is back
            if self._recording.tracing:
                self._write_trace(context)
            shown = [context, *others]
        else:
            shown = others  # the test has closed its own
        if self._recording.takes_pictures:
            pages = [page for found in shown for page in found.pages]
            self._take_pictures([page for page in pages if page not in self._strangers])

    def ended(self, context: BrowserContext) -> None:  # noqa: ARG002 - the same for all recorders
        """Collect the videos."""
        from playwright.sync_api import Error

        pages, self._pages = self._pages, []
        for page in pages:
            path = self._recording.new_path(".webm")
            with contextlib.suppress(Error):  # a page without a picture has no video
                if page.video is not None:
                    page.video.save_as(path)
                    self._recording.add("video", self._name, path)

    def _note(self, page: Page) -> None:
        self._pages.append(page)

    def _write_trace(self, context: BrowserContext) -> None:
        from playwright.sync_api import Error

        path = self._recording.new_path(".zip")
        with contextlib.suppress(Error):  # the test may have stopped it
            context.tracing.stop(path=path)
            self._recording.add("trace", self._name, path)
        if self._recording.options.tracing is Keep.ON_FIRST_RETRY:
            # What tracing puts into pages stays, and the next test is not traced.
            self._recording.taint("it was traced")

    def _take_pictures(self, pages: list[Page]) -> None:
        from playwright.sync_api import Error

        deadline = time.monotonic() + PICTURES_TIMEOUT
        for page in pages:
            path = self._recording.new_path(".png")
            left = max(deadline - time.monotonic(), LEAST)
            with contextlib.suppress(Error):
                page.screenshot(path=path, timeout=left * 1000, full_page=self._recording.options.full_page)
                self._recording.add("screenshot", self._name, path)
