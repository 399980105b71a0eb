"""Browsers that fixtures of any scope may have, apart from the sessions in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pytest_peaks.session.spec import BrowserSpec, SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from pytest_peaks.owner import Owner


class Lending:
    """Lends the browser processes that sessions without a process of their own share.

    :param owner: the owner of those sessions.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lent: dict[BrowserSpec, Browser] = {}

    def lend(self, browser: BrowserSpec) -> Browser:
        """The shared browser of a kind, for whoever makes contexts in it.

        :raises PeaksError: no browser could be had.
        """
        spec = SessionSpec(browser)
        live, _ = self._owner.live_for(spec)
        attached: Any = self._owner.attach(live, spec)
        self._lent[browser] = attached
        return cast("Browser", attached)

    def take_back(self, browser: BrowserSpec) -> None:
        """Whoever was lent a browser does not need it any more; one that is not the run's own ends."""
        if self._lent.pop(browser, None) is not None and browser != self._owner.config.browser_spec:
            self._owner.end_shared(browser)

    def is_lent(self, browser: Browser | None) -> bool:
        """Whether contexts in a browser may be of a wider scope than a test."""
        return browser is not None and any(lent is browser for lent in self._lent.values())

    def has_lost(self, browser: object) -> bool:
        """Whether a browser that was lent has died."""
        if not any(lent is browser for lent in self._lent.values()):
            return False
        return not self._owner.is_running(browser)
