"""The pool: who gets which desk, who waits, what becomes of a desk that fails. It knows nothing of browsers.

A desk is something to ``acquire``, ``release``, ask for its ``health`` and ``drain`` (:class:`~.desk.Desk`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pytest_peaks.desks import kinds
from pytest_peaks.desks.browsing import Browsing
from pytest_peaks.desks.desk import Desk, Maker, Place
from pytest_peaks.desks.errors import NoFreeDeskError, SessionBusyError
from pytest_peaks.desks.holding import Owner, held_by
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.desks.ledger import DeskState, Ledger, Session, Waiter
from pytest_peaks.desks.ledger_file import LedgerFile
from pytest_peaks.desks.seats import Seats
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.desks.states import States
from pytest_peaks.errors import PeaksError
from pytest_peaks.session.identity import ProcessIdentity

# How often somebody who waits looks at the ledger; a look takes a tenth of a millisecond.
LOOK = 0.05
# How long a turn of somebody else's with the same session is waited for.
TURN_LIMIT = 120.0
# A desk that failed is tried again after this, times its failures.
RETRY_AFTER = 20.0


class Pool:
    """One pool of desks, as one process sees it.

    :param say: tells the user what is waited for.
    """

    def __init__(
        self,
        settings: PoolSettings,
        browsing: Browsing | None = None,
        *,
        say: Callable[[str], None] = lambda _: None,
        make: Maker = kinds.make,
    ) -> None:
        self.settings = settings
        self.browsing = browsing if browsing is not None else Browsing()
        self.say = say
        self.me = ProcessIdentity.of_self()
        self.seats = Seats(settings)
        self.states = States(settings.state_dir, settings.dirs)
        self.file = LedgerFile(settings.ledger, say, self.seats.rebuilt)
        self._make = make
        self._desks: dict[str, Desk] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.browsing.close()

    # The ledger

    def look(self) -> Rules:
        """The ledger as it is now, with the configured desks in it; changes nothing."""
        rules = self._rules(self.file.read())
        self._configure(rules)
        return rules

    @contextlib.contextmanager
    def changing(self) -> Iterator[Rules]:
        """Change the ledger under its lock."""
        if self.settings.dirs.base in self.settings.ledger.parents:
            self.settings.dirs.create()
        with self.file.changing() as ledger:
            rules = self._rules(ledger)
            self._configure(rules)
            rules.prune()
            before = {desk: self._lease_at(ledger, name) for desk, name in ledger.seated().items()}
            yield rules
            after = {desk: self._lease_at(ledger, name) for desk, name in ledger.seated().items()}
            for desk in before.keys() - after.keys():
                self.seats.drop(ledger, desk)
            for desk, lease in after.items():
                if before.get(desk) != lease:
                    self.seats.note(ledger, ledger.seated()[desk])

    def _rules(self, ledger: Ledger) -> Rules:
        return Rules(ledger, expiry=self.settings.idle_timeout)

    def _configure(self, rules: Rules) -> None:
        rules.configure((desk.name, desk.kind, desk.place) for desk in self.settings.desks)

    @staticmethod
    def _lease_at(ledger: Ledger, name: str) -> object:
        lease = ledger.sessions[name].lease
        return (name, lease.id, lease.phase, lease.owner, lease.seat) if lease else None

    # Desks

    def desk(self, name: str, ledger: Ledger | None = None) -> Desk:
        """A desk of the pool, or one that was removed from it while somebody sits there."""
        if name not in self._desks:
            settings = self.settings.desk(name)
            if settings is None:
                noted = (ledger or self.file.read()).desks.get(name)
                settings = DeskSettings(name)
                if noted is not None and noted.kind == "endpoint":
                    settings = replace(settings, endpoint=noted.place)
                elif noted is not None and noted.kind == "external":
                    settings = replace(settings, mcp_url=noted.place, external=True)
            self._desks[name] = self._make(settings, self.settings, self.browsing)
        return self._desks[name]

    def free(self, rules: Rules) -> list[str]:
        """Desks that can be leased now, in the order of the configuration."""
        found = []
        for desk in self.settings.desks:
            known = rules.ledger.desks[desk.name]
            wait = RETRY_AFTER * known.errors
            rested = known.since is None or known.since.until(rules.now()) >= wait
            if known.state == "free" or (known.state == "quarantined" and rested):
                found.append(desk.name)
        return found

    # Leases

    def take(
        self,
        name: str,
        *,
        wait: float | None,
        browser: bool,
        check: Callable[[Rules], None],
        without: Sequence[str] = (),
        owner: Owner | None = None,
        sweep: Callable[[], object] = lambda: None,
    ) -> Claim:
        """Lease a desk for a session that has none. This process holds it until it is handed over.

        :param wait: seconds to wait for a desk, and for the session's name; None not to wait.
        :param check: called under the lock before anything is leased; raises to refuse.
        :param without: desks that have failed already.
        :param owner: for whom the lease is from the beginning, where nothing is to be done at the desk.
        :param sweep: frees the desks of those who died meanwhile; called while waiting.
        :raises NoFreeDeskError: every desk is taken, or promised to somebody who waits.
        :raises SessionBusyError: the session sits at a desk already, held by somebody else.
        """
        deadline = time.monotonic() + (wait or 0.0)
        waiter: Waiter | None = None
        said = ""
        try:
            while True:
                with self.changing() as rules:
                    check(rules)
                    if waiter is not None:
                        rules.stay(waiter)
                    claim = self._try(rules, name, waiter, browser=browser, without=without, owner=owner)
                    if claim is not None:
                        return claim
                    refusal = self._refusal(rules, name, waiter)
                    if time.monotonic() >= deadline:
                        raise refusal
                    if waiter is None:
                        waiter = rules.join(name, self.me)
                    news = f"waiting: {refusal.message}"
                if news != said:
                    said = news
                    self.say(news)
                self._wait_for_turn(name, waiter, deadline)
                sweep()
        finally:
            if waiter is not None:
                with self.changing() as rules:
                    rules.quit(waiter)

    def _try(
        self,
        rules: Rules,
        name: str,
        waiter: Waiter | None,
        *,
        browser: bool,
        without: Sequence[str],
        owner: Owner | None,
    ) -> Claim | None:
        session = rules.ledger.sessions.get(name)
        if session is not None and session.desk is not None:
            return None
        free = [desk for desk in self.free(rules) if desk not in without]
        if not free or not rules.may_take(waiter, free):
            return None
        claim = rules.seat(name, free[0], self.me, "process", browser=browser)
        if owner is not None:
            rules.hand_over(claim, owner.process, owner.kind)
        return claim

    def _refusal(self, rules: Rules, name: str, waiter: Waiter | None) -> PeaksError:
        session = rules.ledger.sessions.get(name)
        if session is not None and session.desk is not None:
            return SessionBusyError(
                f"session {name!r} sits at {session.desk}, held by {held_by(session)}",
                hint=f"wait for it with --wait SECONDS, or `peaks session close {name}`",
            )
        holders = ", ".join(f"{desk} -> {who}" for desk, who in sorted(rules.ledger.seated().items()))
        broken = [
            f"{d} is {e.state} ({e.reason})"
            for d, e in rules.ledger.desks.items()
            if e.state in ("quarantined", "dead")
        ]
        ahead = [waiting for waiting in rules.ahead() if waiter is None or waiting != waiter.id]
        if waiter is not None and waiter.id in rules.ahead():
            ahead = rules.ahead()[: rules.ahead().index(waiter.id)]
        parts = [holders, *broken, f"{len(ahead)} wait before" if ahead else ""]
        return NoFreeDeskError(
            f"no free desk: {'; '.join(filter(None, parts)) or 'none is left to try'}",
            hint=("`peaks session pool --up` tries those again that were put aside, " if broken else "")
            + "`peaks session close NAME` frees one, `peaks session cleanup` those that nobody uses, "
            "--wait SECONDS waits for one",
        )

    def _wait_for_turn(self, name: str, waiter: Waiter, deadline: float) -> None:
        """Until there is something to try: a desk for this waiter, somebody to take one from, or the end."""
        while time.monotonic() < deadline:
            time.sleep(LOOK)
            rules = self.look()
            session = rules.ledger.sessions.get(name)
            free = self.free(rules)
            if rules.vacated() or all(other.id != waiter.id for other in rules.ledger.queue):
                return
            if (session is None or session.desk is None) and free and rules.may_take(waiter, free):
                return

    def hand_over(self, claim: Claim, owner: Owner, place: Place) -> None:
        """The desk is ready: from here on `owner` holds it.

        :raises LeaseLostError: the lease is over.
        """
        process = owner.process if owner.kind != "desk" else None
        with self.changing() as rules:
            rules.hand_over(claim, process, owner.kind, place.process)
            desk = rules.ledger.desks[claim.desk]
            desk.errors, desk.reason, desk.since = 0, "", None

    def failed(self, claim: Claim, error: PeaksError, *, at_fault: bool) -> None:
        """A desk did not become ready: it is put aside, unless it is not its fault.

        :raises LeaseLostError: the lease is over.
        """
        with self.changing() as rules:
            rules.check(claim)
            desk = rules.ledger.desks[claim.desk]
            if not at_fault:
                rules.leave(claim)
                return
            desk.errors += 1
            state: DeskState = "dead" if desk.errors >= self.settings.max_errors else "quarantined"
            rules.leave(claim, state=state, reason=f"{error.code}: {error.message}"[:300])

    def left(self, claim: Claim) -> None:
        """The session leaves a desk that is blank, or was drained."""
        with self.changing() as rules:
            rules.leave(claim)

    def is_worn(self, claim: Claim) -> bool:
        """Whether a desk is to be drained rather than blanked: it was removed, or has been used often enough."""
        desk = self.look().ledger.desks.get(claim.desk)
        return desk is None or desk.state == "draining" or desk.uses >= self.settings.max_uses

    def renewed(self, claim: Claim) -> None:
        """A desk's browser was ended, so that its uses count from the beginning."""
        with self.changing() as rules:
            desk = rules.ledger.desks.get(claim.desk)
            if desk is not None:
                desk.uses = 0

    def settled(self, name: str) -> Session:
        """Wait until nobody is in the middle of a turn with a session; gives it as it is then.

        :raises UnknownSessionError: there is none.
        :raises SessionBusyError: somebody else's turn with it does not end.
        """
        deadline = time.monotonic() + TURN_LIMIT
        said = False
        while True:
            rules = self.look()
            session = rules.known(name)
            lease = session.lease
            if lease is None or lease.phase == "held" or rules.is_vacated(session):
                return session
            if time.monotonic() > deadline:
                raise SessionBusyError(
                    f"session {name!r} is in the middle of a turn of {held_by(session)}", hint="try again"
                )
            if not said:
                said = True
                self.say(f"waiting: {held_by(session)} is at work on session {name!r}")
            time.sleep(LOOK)

    def revive(self) -> list[str]:
        """Have desks that were put aside tried again; gives their names."""
        revived = []
        with self.changing() as rules:
            for name, desk in rules.ledger.desks.items():
                if desk.state in ("quarantined", "dead"):
                    desk.state, desk.errors, desk.reason, desk.since = "free", 0, "", None
                    revived.append(name)
        return revived
