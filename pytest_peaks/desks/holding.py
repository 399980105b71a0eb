"""Who holds a desk, and what became of those who did."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_peaks.desks.ledger import OwnerKind, Session
from pytest_peaks.session.identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a desk is held.

    :ivar process: None for a desk that is held for as long as it lives.
    """

    kind: OwnerKind
    process: ProcessIdentity | None = None


@dataclass(frozen=True, slots=True)
class Freed:
    """A session that was taken from its desk, or stays there because its state could not be saved.

    :ivar idle: seconds since it was used.
    :ivar saved: its state was saved before.
    :ivar note: what there is to say of it.
    """

    session: str
    desk: str
    idle: float
    saved: bool = False
    note: str = ""
    kept: bool = False


def held_by(session: Session) -> str:
    """Who holds a session's desk, in words."""
    lease = session.lease
    if lease is None:
        return "nobody"
    if lease.owner is None:
        return "nobody in particular"
    what = {"process": "process", "terminal": "the terminal of process"}.get(lease.kind, "process")
    return f"{what} {lease.owner.pid}" + (
        "" if lease.owner.state() != "foreign" else f" on {lease.owner.host}"
    )
