"""The turns of named identities at desks: create, resume, save, close, cleanup."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pytest_peaks.auth.model import State
from pytest_peaks.desks.browsing import Visit
from pytest_peaks.desks.errors import (
    DeskFailedError,
    NotSavedError,
    NotSeatedError,
    SessionBusyError,
    SessionExistsError,
    StateExistsError,
)
from pytest_peaks.desks.kinds import Place
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.desks.ledger import Session
from pytest_peaks.desks.pool import Freed, Owner, Pool, held_by
from pytest_peaks.desks.states import differs, loses_login
from pytest_peaks.errors import (
    BrowserLostError,
    BrowserNotFoundError,
    InvalidOptionError,
    McpFailedError,
    PeaksError,
    PortExhaustedError,
    ReplayFailedError,
    StartFailedError,
    StateNotFoundError,
    WipeFailedError,
)
from pytest_peaks.session.identity import ProcessIdentity, check_name

# Failures that say something of the desk, and nothing of this machine or of what was asked for.
DESK_FAULTS = (DeskFailedError, StartFailedError, BrowserLostError, McpFailedError, WipeFailedError)
OwnerOf = Callable[[], Owner]


def for_the_desk() -> Owner:
    """Nobody in particular: the lease lasts as long as the desk does."""
    return Owner("desk")


@dataclass(slots=True)
class Turn:
    """A session at its desk.

    :ivar claim: what its holder presents.
    :ivar works: whether peaks itself works in the desk's browser.
    :ivar restored: its saved state was put into the browser.
    :ivar already: it sat there before; nothing was restored.
    :ivar visit: where the page was taken, if anywhere.
    :ivar notes: what else there is to say.
    """

    claim: Claim
    place: Place
    works: bool
    restored: bool = False
    already: bool = False
    visit: Visit | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Saved:
    """What came of a save.

    :ivar claim: the lease under which it was made; None if the session has no desk any more.
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
class Turns:
    """What can be done with named identities.

    :ivar pool: whose desks they are.
    :ivar owner_of: for whom a desk is held when a turn begins.
    """

    pool: Pool
    owner_of: OwnerOf = for_the_desk

    def create(
        self,
        name: str,
        *,
        url: str | None = None,
        orphan: str | None = None,
        login: State | None = None,
        browser: bool = True,
        wait: float | None = None,
    ) -> Turn:
        """Begin a new session at a blank desk.

        :param orphan: what to do with a saved state of that name that no session has: ``restore``, ``discard``,
            or None to refuse.
        :param login: a saved login that it begins with.
        :param browser: False only leases the desk.
        :raises SessionExistsError: there is a session of that name.
        :raises StateExistsError: there is a saved state of that name.
        :raises NoFreeDeskError: every desk is taken.
        :raises DeskFailedError: no desk works.
        """
        check_name(name)
        check_url(url)
        restores = False
        if self.pool.states.exists(name) and name not in self.pool.look().ledger.sessions:
            if orphan is None:
                raise StateExistsError(
                    f"a saved state of {name!r} is there already, of no session: {self.pool.states.path(name)}",
                    hint="--restore begins with it, --discard removes it",
                )
            restores = orphan == "restore"

        def load() -> State | None:
            return self._state_of(name) if restores else login

        def check(rules: Rules) -> None:
            if name in rules.ledger.sessions:
                session = rules.ledger.sessions[name]
                where = f"at {session.desk}" if session.desk else "without a desk now"
                raise SessionExistsError(
                    f"there is a session {name!r} already, {where}",
                    hint=f"`peaks session resume {name}` goes on with it",
                )

        turn = self._sit_down(
            name, check, load, browser=browser, wait=wait, discard=orphan == "discard", url=url
        )
        turn.restored = turn.restored and login is None
        return turn

    def resume(
        self, name: str, *, url: str | None = None, browser: bool = True, wait: float | None = None
    ) -> Turn:
        """Go on with a session: where it sits, or at a free desk, with its saved state restored there.

        :raises UnknownSessionError: there is no such session.
        :raises SessionBusyError: another process holds it.
        :raises NoFreeDeskError: every desk is taken.
        :raises DeskFailedError: no desk works.
        """
        check_name(name)
        check_url(url)
        seated = self._still_seated(name)
        if seated is not None:
            if url is not None and seated.works:
                seated.visit = self._visit(seated, url)
            return seated

        def check(rules: Rules) -> None:
            rules.known(name)

        return self._sit_down(
            name, check, lambda: self._state_of(name), browser=browser, wait=wait, discard=False, url=url
        )

    def seat(self, name: str, *, url: str | None = None, wait: float | None = None) -> Turn:
        """A turn of a program's own with a session, which is made if there is none; its saved state is restored.

        Whoever sits there already is waited for, whatever holds it.

        :raises SessionBusyError: the session was not free in time.
        :raises NoFreeDeskError: no desk was.
        :raises DeskFailedError: no desk works.
        """
        check_name(name)
        check_url(url)
        return self._sit_down(
            name,
            lambda _: None,
            lambda: self._state_of(name),
            browser=True,
            wait=wait,
            discard=False,
            url=url,
        )

    def _state_of(self, name: str) -> State | None:
        return self.pool.states.load(name) if self.pool.states.exists(name) else None

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
        claim = presented(rules.claim(name), lease)
        session = rules.check(claim)
        lost: tuple[str, ...] = ()
        desk = self.pool.desk(claim.desk)
        if given is None and (not desk.works or session.lease is None or not session.lease.browser):
            with self.pool.changing() as rules:
                rules.heartbeat(claim)
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
        if rules.vacated():
            ages, claims = {}, []
            with self.pool.changing() as rules:
                for name in rules.vacated():
                    ages[name] = self.idle_of(rules.ledger.sessions[name])
                    claims.append(rules.reclaim(name, self.pool.me))
            for claim in claims:
                found.append(self._ended(claim, ages[claim.session], save=save, owner=None))
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

    # One turn

    def _sit_down(
        self,
        name: str,
        check: Callable[[Rules], None],
        load: Callable[[], State | None],
        *,
        browser: bool,
        wait: float | None,
        discard: bool,
        url: str | None,
    ) -> Turn:
        failed: dict[str, PeaksError] = {}
        while True:
            self.sweep()
            try:
                claim = self.pool.take(name, wait=wait, browser=browser, check=check, without=tuple(failed))
            except PeaksError:
                if failed:
                    raise _no_desk_works(failed) from None
                raise
            try:
                with self._unless_interrupted(claim):
                    if discard:
                        self.pool.states.remove(name)
                    # Only now: whoever sat there before may have saved something meanwhile.
                    state = load() if browser else None
                    return self._seat_down(claim, state, browser=browser, url=url)
            except PortExhaustedError as error:
                failed[claim.desk] = error
                self.pool.failed(claim, error, at_fault=False)
            except DESK_FAULTS as error:
                failed[claim.desk] = error
                self.pool.failed(claim, error, at_fault=True)
            except PeaksError as error:
                self.pool.failed(claim, error, at_fault=False)
                raise

    @contextlib.contextmanager
    def _unless_interrupted(self, claim: Claim) -> Iterator[None]:
        """Whatever else ends a turn before it has begun gives the desk back."""
        try:
            yield
        except PeaksError:
            raise
        except BaseException:
            with contextlib.suppress(PeaksError):
                self.pool.left(claim)
            raise

    def _seat_down(self, claim: Claim, state: State | None, *, browser: bool, url: str | None) -> Turn:
        desk = self.pool.desk(claim.desk)
        if not browser or not desk.works:
            turn = Turn(claim, desk.acquire() if not desk.works else Place(), works=False)
            self._mark_leased_only(claim)
            self.pool.hand_over(claim, self._owner(Place()), Place())
            return turn
        try:
            place = desk.acquire()
        except BrowserNotFoundError as error:
            if not desk.settings.bare:
                raise
            # Only a name, on a machine without a browser: an MCP server that the user registered.
            self._mark_leased_only(claim)
            self.pool.hand_over(claim, self._owner(Place()), Place())
            return Turn(claim, Place(), works=False, notes=[f"{error.message}: the desk is only leased"])
        turn = Turn(claim, place, works=True)
        if state is not None or url is not None:
            try:
                with desk.work(place) as work:
                    if state is not None:
                        work.restore(state)
                        turn.restored = True
                    if url is not None:
                        turn.visit = work.visit(url)
            except ReplayFailedError:
                desk.release()  # half a state is nobody's
                raise
        self.pool.hand_over(claim, self._owner(place), place)
        return turn

    def _mark_leased_only(self, claim: Claim) -> None:
        with self.pool.changing() as rules:
            lease = rules.check(claim).lease
            assert lease is not None, "checked"
            lease.browser = False

    def _owner(self, place: Place) -> Owner:
        owner = self.owner_of()
        return Owner("nobody") if owner.kind == "desk" and place.process is None else owner

    def _still_seated(self, name: str) -> Turn | None:
        """The session's turn, if it sits somewhere and may go on there; its owner is from now on this caller's."""
        self.pool.look().known(name)
        with contextlib.suppress(NotSeatedError):
            session = self.pool.settled(name)
            if session.lease is None or session.desk is None:
                return None
            lease = session.lease
            lost = lease.seat is not None and lease.seat.state() == "dead"
            if lost or lease.phase != "held":
                return None
            health = self.pool.desk(session.desk).health()
            if lease.browser and not health.up and self.pool.desk(session.desk).works:
                return None
            with self.pool.changing() as rules:
                claim = rules.claim(name)
                now = rules.check(claim)
                assert now.lease is not None, "checked"
                if now.lease.id != lease.id:
                    return None
                if rules.is_held_by_process(now) and now.lease.owner != self.pool.me:
                    raise SessionBusyError(
                        f"session {name!r} sits at {now.desk}, held by {held_by(now)}",
                        hint="it is free when that process is done with it",
                    )
                owner = self._owner(Place(process=now.lease.seat))
                process = owner.process if owner.kind != "desk" else None
                if (process, owner.kind) != (now.lease.owner, now.lease.kind):
                    claim = rules.reclaim(name, self.pool.me)  # whoever had it has it no more
                rules.hand_over(claim, process, owner.kind, now.lease.seat)
            return Turn(
                claim, health.place, works=lease.browser and health.place.endpoint != "", already=True
            )
        return None

    def _visit(self, turn: Turn, url: str) -> Visit:
        with self.pool.desk(turn.claim.desk).work(turn.place) as work:
            return work.visit(url)

    # The end of a turn

    def _ended(self, claim: Claim, age: float, *, save: bool, owner: Owner | None) -> Freed:
        """Save what is unsaved and free the desk.

        :param owner: who gets the lease back if that fails; None frees the desk whatever happens.
        """
        saved, note = False, ""
        if save:
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
        if session.fresh:
            return False, ""  # it was never handed over
        seat = session.lease.seat
        if seat is not None and seat.state() == "dead":
            return False, "its desk was gone: what was not saved is lost"
        found, _ = self._captured(claim)
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

    def _captured(self, claim: Claim) -> tuple[State, tuple[str, ...]]:
        """
        :raises NotSavedError: the browser is gone, or does not answer.
        """
        desk = self.pool.desk(claim.desk)
        health = desk.health()
        if not health.up:
            raise NotSavedError(
                f"{claim.session!r} can't be saved: {claim.desk} is not running",
                hint=f"`peaks session close {claim.session} --no-save` frees the desk; what was saved before stays",
            )
        known: list[str] = []
        with contextlib.suppress(PeaksError):
            known = [str(origin["origin"]) for origin in self.pool.states.load(claim.session).origins]
        try:
            with desk.work(health.place) as work:
                captured = work.capture(claim.session, more_origins=known)
        except DESK_FAULTS as error:
            raise NotSavedError(
                f"{claim.session!r} can't be saved: {error.message}",
                hint=f"`peaks session close {claim.session} --no-save` frees the desk; what was saved before stays",
            ) from None
        return captured.state, captured.lost

    def _free(self, claim: Claim) -> None:
        """Blank the desk, or end what is worn out, and free it. A desk that fails is put aside."""
        desk = self.pool.desk(claim.desk)
        lease = self.pool.look().check(claim).lease
        works = desk.works and lease is not None and lease.browser
        try:
            if works and self.pool.is_worn(claim):
                desk.drain()
                self.pool.renewed(claim)
            elif works:
                try:
                    desk.release()
                except DESK_FAULTS:
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
    from pytest_peaks.desks.errors import LeaseLostError

    if lease is not None and (claim is None or claim.id != lease):
        raise LeaseLostError(
            f"the lease {lease[:40]!r} is over" + (f": {claim.desk} has another one" if claim else ""),
            hint="nothing was done; `peaks session list` shows who sits where",
        )
    assert claim is not None, "without a lease to compare, there is one"
    return claim


def check_url(url: str | None) -> None:
    """
    :raises InvalidOptionError: no address that a browser could be taken to.
    """
    if url is None:
        return
    try:
        parts = urlsplit(url)
        usable = url in ("about:blank",) or (
            parts.scheme in ("http", "https", "file", "data") and bool(parts.netloc or parts.path)
        )
        usable = usable and (parts.scheme not in ("http", "https") or bool(parts.hostname))
    except ValueError:
        usable = False
    if not usable:
        raise InvalidOptionError(
            "the URL is none that a page can be taken to", hint="such as https://example.com"
        )


def _no_desk_works(failed: dict[str, PeaksError]) -> PeaksError:
    if len(failed) == 1:
        [(name, error)] = failed.items()
        if isinstance(error, PortExhaustedError):
            return error
        return DeskFailedError(f"{name} does not work: {error.message}", hint=error.hint)
    told = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
    return DeskFailedError(
        f"no desk works: {told}", hint="`peaks doctor` says what is wrong with this machine"
    )


def owner_process(process: ProcessIdentity) -> OwnerOf:
    """A desk that is held for as long as a process lives."""
    return lambda: Owner("process", process)
