"""The end of turns, and what is kept of them: save, close, cleanup, and the desks of those who died."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from pytest_peaks.auth.model import EXTRAS, State
from pytest_peaks.desks import hosted, tabs
from pytest_peaks.desks.errors import DeskFailedError, LeaseLostError, NotSavedError, SessionBusyError
from pytest_peaks.desks.holding import Freed, Owner, held_by
from pytest_peaks.desks.lease import Claim
from pytest_peaks.desks.ledger import Session
from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.states import differs, loses_login
from pytest_peaks.errors import (
    BrowserLostError,
    McpFailedError,
    PeaksError,
    StartFailedError,
    StateNotFoundError,
    WipeFailedError,
)
from pytest_peaks.session.identity import check_name

# Failures that say something of the desk, and nothing of this machine or of what was asked for.
DESK_FAULTS = (DeskFailedError, StartFailedError, BrowserLostError, McpFailedError, WipeFailedError)


@dataclass(frozen=True, slots=True)
class Saved:
    """What came of a save.

    :ivar claim: the lease under which it was made.
    :ivar written: the state is in its file.
    :ivar lost: what a state cannot carry and was there.
    """

    claim: Claim
    written: bool
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """What came of a close.

    :ivar freed: the desk that it sat at; None if it had none.
    :ivar state_removed: there was a state, and it is gone.
    """

    freed: str | None
    saved: bool = False
    discarded: bool = False
    state_removed: bool = False
    note: str = ""


@dataclass(slots=True)
class Ending:
    """How turns end.

    :ivar pool: whose desks they are.
    """

    pool: Pool

    def save(self, name: str, *, lease: str | None = None, given: State | None = None) -> Saved:
        """Save what a session's browser holds; its tabs stay as they are.

        :param lease: the lease under which it is to be done.
        :param given: the state, where peaks can't get it itself.
        :raises UnknownSessionError: there is no such session.
        :raises NotSeatedError: it has no desk.
        :raises LeaseLostError: the lease is over; nothing is saved.
        :raises NotSavedError: the desk's browser is gone, or does not answer.
        """
        check_name(name)
        self.sweep()
        self.pool.settled(name)
        rules = self.pool.look()
        if lease is not None and rules.known(name).desk is None:
            presented(None, lease)
        claim = presented(rules.claim(name), lease)
        session = rules.check(claim)
        lost: tuple[str, ...] = ()
        desk = self.pool.desk(claim.desk)
        if given is None and (not desk.works or session.lease is None or not session.lease.browser):
            with self.pool.changing() as rules:
                rules.heartbeat(claim)
            self.pool.states.prepare()
            return Saved(claim, written=False)
        if given is None:
            state, lost = self._captured(claim)
        else:
            state = given
        with self.pool.changing() as rules:
            # Under the lock, so that nobody else's state is written over this one's file.
            session = rules.check(claim)
            assert session.lease is not None, "checked"
            if session.lease.phase != "held":
                raise SessionBusyError(
                    f"session {name!r} is being closed", hint="nothing was saved; try again"
                )
            self.pool.states.save(name, state)
            rules.heartbeat(claim)
        return Saved(claim, written=True, lost=lost)

    def close(
        self, name: str, *, discard: bool = False, save: bool = True, lease: str | None = None
    ) -> Closed:
        """End a session's turn: save it, blank the desk, free it.

        :param discard: forget the session, and remove its state.
        :param save: False frees the desk without a look at what is unsaved.
        :raises UnknownSessionError: there is no such session.
        :raises SessionBusyError: a live process holds it.
        :raises LeaseLostError: the lease is over.
        :raises NotSavedError: it could not be saved, and keeps its desk.
        :raises UnlinkFailedError: the state can't be removed; the session stays as it is.
        """
        check_name(name)
        self.sweep()
        self.pool.settled(name)
        with self.pool.changing() as rules:
            session = rules.known(name)
            if session.desk is None:
                if lease is not None:
                    presented(None, lease)
                if not discard:
                    return Closed(None)
                removed = self.pool.states.remove(name)
                del rules.ledger.sessions[name]
                return Closed(None, discarded=True, state_removed=removed)
            old = presented(rules.claim(name), lease)
            if lease is None and rules.is_held_by_process(session):
                raise SessionBusyError(
                    f"session {name!r} is held by {held_by(session)}, which lives",
                    hint="it frees the desk itself; a test does at its end",
                )
            assert session.lease is not None, "it sits"
            before = session.lease
            claim = rules.reclaim(name, self.pool.me)
        try:
            removed = self.pool.states.remove(name) if discard else False
            saved, note = self._saved_if_unsaved(claim) if save and not discard else (False, "")
        except BaseException:
            self._give_back(claim, Owner(before.kind, before.owner))
            raise
        self._free(claim)
        if discard:
            with self.pool.changing() as rules:
                left = rules.ledger.sessions.get(name)
                if left is not None and left.desk is None:
                    del rules.ledger.sessions[name]
        return Closed(old.desk, saved, discard, removed, note)

    def cleanup(self, idle: float | None = None, *, save: bool = True) -> list[Freed]:
        """Free the desks of sessions that nobody has used for `idle` seconds, and of those whose owner is dead.

        What is unsaved is saved first; a session of which that fails keeps its desk.
        """
        threshold = self.pool.settings.idle_timeout if idle is None else idle
        found = self.sweep(save=save)
        for name, session in sorted(self.pool.look().ledger.sessions.items()):
            if session.desk is None or session.lease is None:
                continue
            age = self.idle_of(session)
            if age < threshold or session.lease.phase != "held":
                continue
            with self.pool.changing() as rules:
                now = rules.ledger.sessions.get(name)
                same = now is not None and now.lease is not None and now.lease.id == session.lease.id
                if now is None or not same or now.used != session.used:
                    continue  # somebody uses it after all
                if rules.is_held_by_process(now):
                    note = f"held by {held_by(now)}, which lives"
                    found.append(Freed(name, session.desk, age, note=note, kept=True))
                    continue
                claim = rules.reclaim(name, self.pool.me)
            owner = Owner(session.lease.kind, session.lease.owner)
            found.append(self._ended(claim, age, save=save, owner=owner))
        return found

    def sweep(self, *, save: bool = True) -> list[Freed]:
        """Free the desks of sessions whose owner is dead, and end desks that are not the pool's any more."""
        found = []
        rules = self.pool.look()
        # Looked at before the lock is taken: a desk that does not answer would hold up everybody.
        ages = {name: self.idle_of(rules.ledger.sessions[name]) for name in rules.vacated()}
        if ages:
            with self.pool.changing() as rules:
                claims = [rules.reclaim(name, self.pool.me) for name in rules.vacated() if name in ages]
            for claim in claims:
                found.append(self._ended(claim, ages[claim.session], save=save, owner=None))
        for desk in hosted.removed(self.pool.settings):
            if desk not in self.pool.look().ledger.seated():
                self.pool.desk(desk).drain()
        return found

    def idle_of(self, session: Session) -> float:
        """Seconds since a session was used: by a verb, a heartbeat, or through a door."""
        rules = self.pool.look()
        age = session.used.until(rules.now())
        if session.desk is not None:
            health = self.pool.desk(session.desk).health()
            if health.idle is not None:
                age = min(age, health.idle)
        return age

    def _ended(self, claim: Claim, age: float, *, save: bool, owner: Owner | None) -> Freed:
        """Save what is unsaved and free the desk.

        :param owner: who gets the lease back if that fails; None frees the desk whatever happens.
        """
        saved, note = False, "not saved, as asked"
        lease = self.pool.look().check(claim).lease
        if lease is None or not lease.browser or not self.pool.desk(claim.desk).works:
            note = "it was only leased: peaks saved nothing"
        elif save:
            try:
                saved, note = self._saved_if_unsaved(claim)
            except PeaksError as error:
                note = f"not saved: {error.message}"
                if owner is not None:
                    self._give_back(claim, owner)
                    return Freed(claim.session, claim.desk, age, note=note, kept=True)
        self._free(claim)
        return Freed(claim.session, claim.desk, age, saved, note)

    def _give_back(self, claim: Claim, owner: Owner) -> None:
        with contextlib.suppress(PeaksError), self.pool.changing() as rules:
            session = rules.check(claim)
            assert session.lease is not None, "checked"
            rules.hand_over(claim, owner.process, owner.kind, session.lease.seat)

    def _saved_if_unsaved(self, claim: Claim) -> tuple[bool, str]:
        """Save what the desk's browser holds and is not saved. Whether it was, and what there is to say.

        A saved login is not replaced by what is left after a logout.
        """
        desk = self.pool.desk(claim.desk)
        session = self.pool.look().check(claim)
        if not desk.works or session.lease is None or not session.lease.browser:
            return False, ""
        if session.fresh or session.lease.phase == "starting":
            return False, ""  # it was never handed over: what is in the browser need not be its
        seat = session.lease.seat
        if seat is not None and seat.state() == "dead":
            return False, "its desk was gone: what was not saved is lost"
        found, _ = self._captured(claim, ending=True)
        try:
            saved = self.pool.states.load(claim.session)
        except StateNotFoundError:
            saved = None
        if not differs(found, saved):
            return False, ""
        if saved is not None and loses_login(found, saved):
            return False, "what was saved before is kept: the browser has lost that login"
        with self.pool.changing() as rules:
            rules.check(claim)
            self.pool.states.save(claim.session, found)
        return True, ""

    def _captured(self, claim: Claim, *, ending: bool = False) -> tuple[State, tuple[str, ...]]:
        """
        :param ending: the tabs go anyway: those that hold it up are closed.
        :raises NotSavedError: the browser is gone, or does not answer.
        """
        desk = self.pool.desk(claim.desk)
        health = desk.health()
        hint = f"`peaks session close {claim.session} --no-save` frees the desk; what was saved before stays"
        lease = self.pool.look().check(claim).lease
        seat = lease.seat if lease is not None else None
        is_another = seat is not None and health.place.process not in (None, seat)
        if not health.up or is_another:
            raise NotSavedError(f"{claim.session!r} can't be saved: {claim.desk} is not running", hint=hint)
        saved: State | None = None
        with contextlib.suppress(PeaksError):
            saved = self.pool.states.load(claim.session)
        known = [str(origin["origin"]) for origin in saved.origins] if saved is not None else []
        closed: list[str] | None = None
        while True:
            try:
                with desk.work(health.place) as work:
                    captured = work.capture(claim.session, more_origins=[*known, *(closed or [])])
                break
            except DESK_FAULTS as error:
                if ending and closed is None and health.place.record is not None:
                    closed = tabs.close_all(health.place.endpoint)
                    if closed is not None:
                        continue
                raise NotSavedError(f"{claim.session!r} can't be saved: {error.message}", hint=hint) from None
        if closed is not None and saved is not None:
            # What only those tabs could have told is as it was saved before.
            session = captured.state[EXTRAS]["sessionStorage"]
            for origin, items in saved.session_storage.items():
                session.setdefault(origin, dict(items))
        return captured.state, captured.lost

    def _free(self, claim: Claim) -> None:
        """Blank the desk, or end what is worn out, and free it. A desk that fails is put aside."""
        desk = self.pool.desk(claim.desk)
        lease = self.pool.look().check(claim).lease
        # Of one that was only leased somebody may have used the browser, if it runs.
        works = desk.works and lease is not None and (lease.browser or desk.health().up)
        if works:
            with self.pool.changing() as rules:
                rules.blanking(claim)
        try:
            if works and self.pool.is_worn(claim):
                desk.drain()
                self.pool.renewed(claim)
            elif works:
                try:
                    desk.release()
                except PeaksError:
                    desk.drain()  # the next one gets a new browser
                    self.pool.renewed(claim)
        except PeaksError as error:
            self.pool.failed(claim, error, at_fault=True)
            return
        self.pool.left(claim)


def presented(claim: Claim | None, lease: str | None) -> Claim:
    """The lease that there is, if it is the one that the caller has.

    :raises LeaseLostError: it is another one.
    """
    if lease is not None and (claim is None or claim.id != lease):
        raise LeaseLostError(
            f"the lease {lease[:40]!r} is over" + (f": {claim.desk} has another one" if claim else ""),
            hint="nothing was done; `peaks session list` shows who sits where",
        )
    assert claim is not None, "without a lease to compare, there is one"
    return claim
