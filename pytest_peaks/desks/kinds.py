"""The kinds of desks that there are: hosted here, a browser that somebody else runs, an MCP server of the user's."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pytest_peaks.desks.browsing import Browsing, Work
from pytest_peaks.desks.desk import Desk, Health, Place
from pytest_peaks.desks.errors import DeskFailedError
from pytest_peaks.desks.hosted import HostedDesk
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.errors import PeaksError
from pytest_peaks.session.urls import shown_host


class EndpointDesk:
    """A browser that somebody else runs, reached over CDP."""

    works = True

    def __init__(self, settings: DeskSettings, pool: PoolSettings, browsing: Browsing) -> None:  # noqa: ARG002
        self.settings = settings
        self._browsing = browsing
        self._proved = False

    def start(self) -> None:
        self._place()

    def acquire(self) -> Place:
        place = self._place()
        with self.work(place) as work:
            if not self._proved:
                work.prove()
                self._proved = True
            work.blank(all_contexts=False)
        return place

    def release(self) -> None:
        self.acquire()

    def health(self) -> Health:
        try:
            return Health(up=True, place=self._place())
        except PeaksError:
            return Health(up=False)

    def drain(self) -> None:
        """Nothing of it is ours to end."""

    def work(self, place: Place) -> AbstractContextManager[Work]:
        return self._browsing.at(place.endpoint, lambda: None)

    def _place(self) -> Place:
        """
        :raises DeskFailedError: nothing answers there.
        """
        from pytest_peaks.hosting.endpoint import websocket_of

        endpoint = self.settings.endpoint
        try:
            found = websocket_of(endpoint, f"the endpoint of {self.settings.name}")
        except PeaksError as error:
            # The path of the URL is a key to the browser.
            raise DeskFailedError(
                error.message.replace(endpoint, shown_host(endpoint)), hint=error.hint
            ) from None
        return Place(found, self.settings.mcp_url)


class ExternalDesk:
    """An MCP server that the user registered: peaks leases it and says what the agent is to call."""

    works = False

    def __init__(self, settings: DeskSettings) -> None:
        self.settings = settings

    def start(self) -> None:
        """Its user starts it."""

    def acquire(self) -> Place:
        return Place(mcp_url=self.settings.mcp_url)

    def release(self) -> None:
        """Only its clients can blank it."""

    def health(self) -> Health:
        from pytest_peaks.desks.registered import listens

        url = self.settings.mcp_url
        return Health(up=bool(url) and listens(url), place=Place(mcp_url=url))

    def drain(self) -> None:
        """Nothing of it is ours to end."""

    def work(self, place: Place) -> AbstractContextManager[Work]:  # noqa: ARG002 - as the other kinds
        raise DeskFailedError(
            f"{self.settings.name} is an MCP server of yours, in which peaks can do nothing",
            hint="its own tools do: see `next`",
        )


def make(settings: DeskSettings, pool: PoolSettings, browsing: Browsing) -> Desk:
    if settings.kind == "hosted":
        return HostedDesk(settings, pool, browsing)
    if settings.kind == "endpoint":
        return EndpointDesk(settings, pool, browsing)
    return ExternalDesk(settings)
