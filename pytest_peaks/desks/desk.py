"""What the pool knows of a desk: something to ``acquire``, ``release``, ask for its ``health`` and ``drain``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pytest_peaks.desks.browsing import Browsing, Work
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.record import Record


@dataclass(frozen=True, slots=True)
class Place:
    """Where a desk is, when it is up.

    :ivar endpoint: the CDP WebSocket URL of its browser; empty where peaks can't work in it.
    :ivar mcp_url: its MCP server; empty where peaks knows of none.
    :ivar process: what the desk lives and dies with, on this machine; None if that is not known.
    :ivar record: of a desk that is hosted here.
    """

    endpoint: str = ""
    mcp_url: str = ""
    process: ProcessIdentity | None = None
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How a desk is.

    :ivar up: it could be used at once.
    :ivar idle: seconds since it was last used through any door; None if nobody can tell.
    :ivar place: where it is, if it is up.
    """

    up: bool
    idle: float | None = None
    place: Place = Place()


class Desk(Protocol):
    """A desk of any kind.

    :ivar works: whether peaks can blank, restore and save by itself.
    """

    settings: DeskSettings
    works: bool

    def start(self) -> None:
        """Have the desk up, as it is.

        :raises PeaksError: it can't be.
        """
        ...

    def acquire(self) -> Place:
        """Have the desk up and blank.

        :raises PeaksError: it can't be.
        """
        ...

    def release(self) -> None:
        """Blank the desk for whoever comes next.

        :raises PeaksError: it can't be; it is not to be used before it was drained.
        """
        ...

    def health(self) -> Health: ...

    def drain(self) -> None:
        """End what runs for the desk; the next :meth:`acquire` begins anew."""
        ...

    def work(self, place: Place) -> AbstractContextManager[Work]:
        """Work in its browser."""
        ...


Maker = Callable[[DeskSettings, PoolSettings, Browsing], Desk]
