"""The rules by which desks are leased: pure changes of a :class:`Ledger`, called under its lock."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_peaks.desks.clock import Moment
from pytest_peaks.desks.errors import LeaseLostError, NotSeatedError, UnknownSessionError
from pytest_peaks.desks.ledger import OCCUPIED, Desk, DeskState, Lease, Ledger, OwnerKind, Session, Waiter
from pytest_peaks.session.identity import ProcessIdentity, State


@dataclass(frozen=True, slots=True)
class Claim:
    """What the holder of a lease presents: only the lease that holds the desk now is good."""

    session: str
    desk: str
    id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules on one ledger.

    :ivar state_of: whether a process is alive, dead, or not to be seen from here.
    :ivar expiry: seconds without a sign of life after which an owner that can't be seen from here is given up.
    """

    ledger: Ledger
    state_of: Callable[[ProcessIdentity], State] = ProcessIdentity.state
    now: Callable[[], Moment] = Moment.now
    expiry: float = 1800.0

    def configure(self, desks: Iterable[tuple[str, str, str]]) -> None:
        """Take in the configured desks (name, kind, place): new ones are free, removed ones drain or go."""
        wanted = {name: (kind, place) for name, kind, place in desks}
        for name, (kind, place) in wanted.items():
            desk = self.ledger.desks.setdefault(name, Desk(kind=kind, place=place))
            if desk.state == "draining":
                desk.state = "leased"
            if desk.state not in OCCUPIED:
                desk.kind, desk.place = kind, place
        for name, desk in list(self.ledger.desks.items()):
            if name not in wanted:
                if desk.state in OCCUPIED:
                    desk.state = "draining"
                else:
                    del self.ledger.desks[name]

    def seat(
        self, name: str, desk: str, owner: ProcessIdentity | None, kind: OwnerKind, *, browser: bool
    ) -> Claim:
        """Give a free desk to a session that has none; the caller has asked :meth:`may_take` before."""
        place = self.ledger.desks[desk]
        assert place.state not in OCCUPIED, "only a desk where nobody sits is given away"
        session = self.ledger.sessions.get(name)
        if session is None:
            session = Session(None, int(self.now().wall), self.now(), fresh=True)
            self.ledger.sessions[name] = session
        assert session.desk is None, "nobody sits at two desks"
        place.state = "leased"
        place.uses += 1
        session.desk, session.used = desk, self.now()
        session.lease = Lease(
            id=secrets.token_hex(8),
            epoch=self._next_epoch(desk),
            owner=owner,
            kind=kind,
            phase="starting",
            heartbeat=self.now(),
            browser=browser,
            taken_at=int(self.now().wall),
        )
        return self.claim(name)

    def hand_over(
        self,
        claim: Claim,
        owner: ProcessIdentity | None,
        kind: OwnerKind,
        seat: ProcessIdentity | None = None,
    ) -> None:
        """The desk is ready: from here on it is held for `owner`.

        :raises LeaseLostError: the lease is another one's by now.
        """
        session = self.check(claim)
        assert session.lease is not None, "checked"
        lease = session.lease
        lease.owner, lease.kind, lease.seat, lease.phase = owner, kind, seat, "held"
        lease.heartbeat = session.used = self.now()
        session.fresh = False

    def claim(self, name: str) -> Claim:
        """The lease that a session has now.

        :raises UnknownSessionError: there is no such session.
        :raises NotSeatedError: it has no desk.
        """
        session = self.known(name)
        if session.desk is None or session.lease is None:
            raise NotSeatedError(
                f"session {name!r} has no desk", hint=f"`peaks session resume {name}` gives it one"
            )
        return Claim(name, session.desk, session.lease.id, session.lease.epoch)

    def known(self, name: str) -> Session:
        """
        :raises UnknownSessionError: there is no session of that name.
        """
        session = self.ledger.sessions.get(name)
        if session is None:
            known = ", ".join(sorted(self.ledger.sessions)[:20])
            raise UnknownSessionError(
                f"there is no session {name!r}" + (f"; there are: {known}" if known else ""),
                hint=f"`peaks session create {name}` makes it",
            )
        return session

    def check(self, claim: Claim) -> Session:
        """The session of a lease that is still good.

        :raises LeaseLostError: it is not.
        """
        session = self.ledger.sessions.get(claim.session)
        lease = session.lease if session is not None else None
        if session is None or lease is None or (lease.id, lease.epoch) != (claim.id, claim.epoch):
            where = f"sits at {session.desk} with another lease" if lease and session else "has no desk now"
            raise LeaseLostError(
                f"the lease of {claim.session!r} on {claim.desk} (epoch {claim.epoch}) is over: the session {where}",
                hint=f"nothing was done; `peaks session resume {claim.session}` takes a desk anew",
            )
        return session

    def heartbeat(self, claim: Claim) -> None:
        """Note that the owner of a lease lives, and uses it.

        :raises LeaseLostError: it is not its lease any more.
        """
        session = self.check(claim)
        assert session.lease is not None, "checked"
        session.lease.heartbeat = session.used = self.now()

    def reclaim(self, name: str, me: ProcessIdentity) -> Claim:
        """Take a lease over in order to end it: whoever had it has lost it.

        One that had not begun stays ``starting``: what is in the desk's browser need not be this session's.
        """
        session = self.ledger.sessions[name]
        assert session.desk is not None, "it sits somewhere"
        assert session.lease is not None, "with a lease"
        old = session.lease
        session.lease = Lease(
            id=secrets.token_hex(8),
            epoch=self._next_epoch(session.desk),
            owner=me,
            kind="process",
            phase="starting" if old.phase == "starting" else "ending",
            heartbeat=self.now(),
            seat=old.seat,
            browser=old.browser,
            taken_at=old.taken_at,
        )
        return self.claim(name)

    def blanking(self, claim: Claim) -> None:
        """From here on what the desk's browser holds need not be the session's: nothing of it is saved any more.

        :raises LeaseLostError: the lease is another one's by now.
        """
        session = self.check(claim)
        assert session.lease is not None, "checked"
        session.lease.phase = "starting"

    def leave(self, claim: Claim, *, state: DeskState = "free", reason: str = "") -> None:
        """The session leaves its desk, which is then `state`, or gone if it was draining.

        :raises LeaseLostError: it has left already.
        """
        session = self.check(claim)
        assert session.desk is not None, "checked"
        desk = self.ledger.desks[session.desk]
        if desk.state == "draining":
            del self.ledger.desks[session.desk]
        else:
            desk.state, desk.reason = state, reason
            if state in ("quarantined", "dead"):
                desk.since = self.now()
        session.desk = session.lease = None
        session.used = self.now()
        if session.fresh:
            del self.ledger.sessions[claim.session]

    def vacated(self) -> list[str]:
        """Sessions whose desk is free to be taken: the owner is dead, or the process behind the desk is."""
        return [name for name, session in self.ledger.sessions.items() if self.is_vacated(session)]

    def is_vacated(self, session: Session) -> bool:
        """Whether nobody is left who holds the session's desk. One that lives is never robbed."""
        lease = session.lease
        if lease is None:
            return False
        if lease.phase == "held" and lease.seat is not None and self.state_of(lease.seat) == "dead":
            return True
        if lease.owner is None:
            return False
        state = self.state_of(lease.owner)
        silent = lease.heartbeat.until(self.now()) > self.expiry
        return state == "dead" or (state == "foreign" and silent)

    def is_held_by_process(self, session: Session) -> bool:
        """Whether a live process, such as a test's, holds the session and gives signs of life."""
        lease = session.lease
        if lease is None or lease.kind != "process" or self.is_vacated(session):
            return False
        return lease.phase != "held" or lease.heartbeat.until(self.now()) <= self.expiry

    # Who waits

    def join(self, name: str, owner: ProcessIdentity) -> Waiter:
        waiter = Waiter(secrets.token_hex(8), name, owner)
        self.ledger.queue.append(waiter)
        return waiter

    def stay(self, waiter: Waiter) -> None:
        """Have a waiter in the queue, also of a ledger that was made anew."""
        if all(other.id != waiter.id for other in self.ledger.queue):
            self.ledger.queue.append(waiter)

    def quit(self, waiter: Waiter) -> None:
        self.ledger.queue[:] = [other for other in self.ledger.queue if other.id != waiter.id]

    def prune(self) -> None:
        """Take those out of the queue who have died."""
        self.ledger.queue[:] = [w for w in self.ledger.queue if self.state_of(w.owner) != "dead"]

    def ahead(self) -> list[str]:
        """The ids of those who could take a desk now, first come first; of several for one name the first."""
        found: dict[str, str] = {}
        for waiter in self.ledger.queue:
            session = self.ledger.sessions.get(waiter.session)
            if (session is None or session.desk is None) and self.state_of(waiter.owner) != "dead":
                found.setdefault(waiter.session, waiter.id)
        return list(found.values())

    def may_take(self, waiter: Waiter | None, free: Sequence[str]) -> bool:
        """Whether one of the free desks is for this waiter, or for somebody who does not wait."""
        ahead = self.ahead()
        if waiter is None:
            return len(ahead) < len(free)
        return waiter.id in ahead[: len(free)]

    def _next_epoch(self, desk: str) -> int:
        self.ledger.epochs[desk] = self.ledger.epochs.get(desk, 0) + 1
        return self.ledger.epochs[desk]
