"""pytest-playwright's recorder of traces, pictures and videos, for the context of a bridged test's session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks.recycling.watching import aside

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page


def recorder_of(request: pytest.FixtureRequest) -> TheirRecorder | None:
    """The recorder of a test; None where nothing is recorded, or by peaks."""
    option = request.config.getoption
    tracing = option("--tracing", default="off") != "off"
    video = option("--video", default="off") != "off"
    if not (tracing or video or option("--screenshot", default="off") != "off"):
        return None
    try:
        recorder = request.getfixturevalue("_artifacts_recorder")
    except pytest.FixtureLookupError:
        return None
    return TheirRecorder(recorder, tracing=tracing, video=video)


class TheirRecorder:
    """Tells pytest-playwright's recorder of a context what its own `new_context` would tell it."""

    def __init__(self, recorder: Any, *, tracing: bool, video: bool) -> None:
        self._recorder = recorder
        self._tracing = tracing
        self._video = video
        self._recording: BrowserContext | None = None

    def context_options(self) -> dict[str, Any]:
        """Nothing: ``browser_context_args`` says where videos go."""
        return {}

    def started(self, context: BrowserContext, strangers: list[Page]) -> None:  # noqa: ARG002 - all pages are its
        """A context is there, before the test has it."""
        self._recording = context
        with aside():
            if self._video:
                self._recorder.on_did_create_browser_context(context)
            elif self._tracing:
                # Its listener for pages is for videos only, and would stay in a context that is used again.
                self._recorder.on_did_create_browser_context(_Unheard(context))
        close = context.close

        def close_wrapper(*args: Any, **kwargs: Any) -> None:
            self.ending(context, [])
            close(*args, **kwargs)

        context.close = close_wrapper  # type: ignore[method-assign]

    def ending(self, context: BrowserContext, others: list[BrowserContext]) -> None:  # noqa: ARG002 - not its affair
        """A context is about to be closed, or blanked."""
        if self._recording is not context:
            return
        self._recording = None
        del context.close  # the class's own is back
        with aside():
            self._recorder.on_will_close_browser_context(context if self._tracing else _Untraced(context))

    def ended(self, context: BrowserContext) -> None:
        """Nothing: the recorder's fixture collects the videos when the contexts are closed."""


class _Unheard:
    """A context to which no listener is added."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context

    def on(self, *_: object) -> None:
        """Nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _Untraced(_Unheard):
    """A context whose tracing, which was never started, is not stopped."""

    class tracing:  # noqa: N801 - the name of the attribute
        @staticmethod
        def stop(**_: object) -> None:
            """Nothing."""
