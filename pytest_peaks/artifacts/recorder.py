"""What a session tells whoever records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page


class Recorder(Protocol):
    """Records one session, which calls these methods in this order. What they raise is not heard of."""

    def context_options(self) -> Mapping[str, Any]:
        """What a context that is made for the session needs to be recorded; what the test asks for wins.

        Not called where the context is there already.
        """

    def started(self, context: BrowserContext, strangers: list[Page]) -> None:
        """The session has its context; nothing of the test has happened in it.

        :param strangers: tabs in it that are not the test's: those of a profile, which stay.
        """

    def ending(self, context: BrowserContext, others: list[BrowserContext]) -> None:
        """The test is over, its pages are still open.

        :param others: contexts that the test made itself and that end with it.
        """

    def ended(self, context: BrowserContext) -> None:
        """The session's context is closed, or blank again: videos are complete."""


# A test's recorder of one session, by the name of a named session; empty for the one without.
Recorders = Callable[[str], Recorder]
