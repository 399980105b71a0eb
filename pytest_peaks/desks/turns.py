"""The turns of named identities at desks: create and resume here, their end in :mod:`.ending`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pytest_peaks.auth.model import State
from pytest_peaks.desks.browsing import Visit
from pytest_peaks.desks.desk import Place
from pytest_peaks.desks.ending import DESK_FAULTS, Ending
from pytest_peaks.desks.errors import (
    DeskFailedError,
    NotSeatedError,
    SessionBusyError,
    SessionExistsError,
    StateExistsError,
)
from pytest_peaks.desks.holding import Owner, held_by
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.errors import (
    BrowserNotFoundError,
    InvalidOptionError,
    PeaksError,
    PortExhaustedError,
    ReplayFailedError,
)
from pytest_peaks.session.identity import ProcessIdentity, check_name

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


@dataclass(slots=True)
class Turns(Ending):
    """What can be done with named identities.

    :ivar owner_of: for whom a desk is held when a turn begins.
    """

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
                claim = self.pool.take(
                    name, wait=wait, browser=browser, check=check, without=tuple(failed), sweep=self.sweep
                )
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
