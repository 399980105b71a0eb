"""A world of processes, desks and clocks, in which everything that may happen to the ledger happens in any order.

The verbs, the pool, the ledger and its file are the product's own; the processes are greenlets that can be left
lying at every step (a crash, or a pause of any length), and the desks are made up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from pytest_peaks.auth.capture import Captured
from pytest_peaks.auth.model import State
from pytest_peaks.desks import clock, pool
from pytest_peaks.desks.desk import Health, Place
from pytest_peaks.desks.errors import BadJsonError, DeskFailedError
from pytest_peaks.desks.holding import Owner
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.desks.ledger import OCCUPIED, Waiter
from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.desks.states import States
from pytest_peaks.desks.turns import Turn, Turns
from pytest_peaks.errors import PeaksError
from pytest_peaks.session import identity, light
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs

NAMES = ("ann", "bob", "cleo", "dan", "eve")
DESKS = ("desk-1", "desk-2", "desk-3")
IDLE = 1800.0
MOST_PROCESSES = 6
FIRST_PID = 5_000_000
STEPS_OF_A_VERB = 80
STEPS = st.sampled_from([STEPS_OF_A_VERB, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, STEPS_OF_A_VERB])


@dataclass
class Browser:
    """What stands at a desk.

    :ivar cookie: who is logged in, as `<name> <number>`; None if it is blank.
    :ivar sick: nothing that is asked of it works.
    :ivar at_work: who changes what it holds at this moment.
    """

    process: ProcessIdentity | None = None
    cookie: str | None = None
    sick: bool = False
    at_work: set[int] = field(default_factory=set)


class World:
    """Processes, clocks, and the desks' browsers."""

    def __init__(self) -> None:
        self.boot, self.wall, self.machine = 1, 1_800_000_000.0, 1000.0
        self.processes: dict[int, int] = {os.getpid(): 1}
        self.last_pid, self.last_start = FIRST_PID, 1
        self.browsers = {name: Browser() for name in DESKS}
        self.hub = greenlet.getcurrent()
        self.over = False
        self.who_sits_at: Callable[[str], tuple[str, str] | None] = lambda _: None
        # By task: at whose lease it found what it is about to save.
        self.captured: dict[int, tuple[str, str] | None] = {}

    def spawn(self, pid: int | None = None) -> ProcessIdentity:
        while pid is None or pid in self.processes:
            self.last_pid += 1
            pid = self.last_pid
        self.last_start += 1
        self.processes[pid] = self.last_start
        found = ProcessIdentity.of(pid)
        assert found is not None
        return found

    def kill(self, process: ProcessIdentity | None) -> None:
        if process is not None and process.is_alive():
            del self.processes[process.pid]

    def pause(self, *_: object) -> None:
        """A process is left here; whether and when it goes on, the machine decides."""
        if greenlet.getcurrent() is not self.hub and not self.over:
            self.hub.switch()

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        now = SimpleNamespace(time=lambda: self.wall, monotonic=lambda: self.machine, sleep=self.pause)
        with pytest.MonkeyPatch.context() as patch:
            for module in (identity, light):
                patch.setattr(module, "start_of", self.processes.get)
                patch.setattr(module, "boot_id", lambda: f"boot-{self.boot}")
            patch.setattr(clock, "boot_id", lambda: f"boot-{self.boot}")
            patch.setattr(clock, "time", now)
            patch.setattr(pool, "time", now)
            patch.setattr(os, "fsync", lambda _: None)  # the machine itself does not crash here
            yield


class Work:
    def __init__(self, world: World, desk: str, place: Place) -> None:
        self._world, self._desk, self._place = world, desk, place
        self._browser = world.browsers[desk]

    def restore(self, state: State) -> None:
        with at_work(self._world, self._browser):
            self._check()
            self._browser.cookie = next((cookie["value"] for cookie in state.cookies), None)

    def capture(self, name: str, *, more_origins: object = ()) -> Captured:  # noqa: ARG002
        self._world.pause()
        self._check()
        found = state_with(self._browser.cookie)
        self._world.captured[id(greenlet.getcurrent())] = self._world.who_sits_at(self._desk)
        self._world.pause()
        return Captured(found, ())

    def _check(self) -> None:
        process = self._browser.process
        if self._browser.sick or process is None or not process.is_alive() or process != self._place.process:
            raise DeskFailedError("the browser does not answer")


@contextlib.contextmanager
def at_work(world: World, browser: Browser) -> Iterator[None]:
    me = id(greenlet.getcurrent())
    browser.at_work.add(me)
    try:
        world.pause()
        yield
        world.pause()
    finally:
        browser.at_work.discard(me)


class Desk:
    """A desk that is made up. What is done at it takes time: the caller is left there."""

    works = True

    def __init__(self, world: World, settings: DeskSettings) -> None:
        self.settings = settings
        self._world = world
        self._browser = world.browsers[settings.name]

    def start(self) -> None:
        if not self.health().up:
            self._browser.process, self._browser.cookie = self._world.spawn(), None

    def acquire(self) -> Place:
        with at_work(self._world, self._browser):
            self._check()
            self.start()
            self._world.pause()
            self._browser.cookie = None
        return self.health().place

    def release(self) -> None:
        with at_work(self._world, self._browser):
            self._check()
            self._browser.cookie = None

    def health(self) -> Health:
        process = self._browser.process
        if process is None or not process.is_alive():
            return Health(up=False)
        return Health(True, None, Place("ws://desk", process=process))

    def drain(self) -> None:
        with at_work(self._world, self._browser):
            self._check()
            self._world.kill(self._browser.process)

    @contextlib.contextmanager
    def work(self, place: Place) -> Iterator[Any]:
        yield Work(self._world, self.settings.name, place)

    def _check(self) -> None:
        if self._browser.sick:
            raise DeskFailedError("it does not work")


def state_with(cookie: str | None) -> State:
    one = {"name": "sid", "domain": "shop.test", "path": "/", "expires": -1}
    rest = {"httpOnly": True, "secure": False, "sameSite": "Lax"}
    return State({"cookies": [{**one, **rest, "value": cookie}] if cookie else [], "origins": []})


class GoneError(PeaksError):
    """Thrown at what is left of processes when an example is over."""


@dataclass(frozen=True, slots=True)
class WatchedStates(States):
    """States that are written only by who has the lease under which they were found."""

    machine: LedgerMachine

    def save(self, name: str, state: Mapping[str, Any]) -> Path:
        found = self.machine.world.captured.pop(id(greenlet.getcurrent()), None)
        session = self.machine.ledger()["sessions"].get(name)
        now = (name, session["lease"]["id"]) if session and session["lease"] else None
        assert found is not None, "what nobody found is saved"
        assert found == now, f"what was found under {found} is saved under {now}"
        return States.save(self, name, state)


class WatchedPool(Pool):
    """A pool whose caller is left before each change of the ledger, and that notes who got a desk before whom."""

    machine: LedgerMachine

    @contextlib.contextmanager
    def changing(self) -> Iterator[Rules]:
        self.machine.world.pause()
        if self.machine.world.over:
            raise GoneError("the example is over")
        with super().changing() as rules:
            yield rules

    def _try(self, rules: Rules, name: str, waiter: Waiter | None, **rest: Any) -> Claim | None:
        free = self.free(rules)
        earlier = self.machine.who_waits_before(rules, waiter)
        claim = super()._try(rules, name, waiter, **rest)
        if claim is not None:
            assert len(earlier - {name}) < len(free), f"{name} overtook {earlier}, {free} were free"
        return claim


@dataclass
class Process:
    """One process of the world, that does one thing at a time.

    :ivar turn: the turn that it holds as a test or program does.
    :ivar heard: when it last gave a sign of life for that.
    """

    identity: ProcessIdentity
    turns: Turns
    task: greenlet.greenlet | None = None
    doing: str = ""
    checks: Callable[[object], None] | None = None
    turn: Turn | None = None
    heard: float = 0.0


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.who_sits_at = self.who_sits_at
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self.world.in_force())
        self.folder = Path(tempfile.mkdtemp(prefix="pkt-"))
        dirs = ProjectDirs(self.folder, self.folder / ".peaks")
        self.settings = PoolSettings(
            dirs=dirs,
            config=dirs.base / "pool.json",
            config_exists=True,
            ledger=dirs.base / "playwright-sessions.json",
            state_dir=dirs.base / "playwright-state",
            desks=tuple(DeskSettings(name, port=8911 + number) for number, name in enumerate(DESKS)),
            idle_timeout=IDLE,
            max_uses=3,
            max_errors=2,
        )
        self.processes: list[Process] = []
        self.lying: list[Process] = []
        self.claims: list[Claim] = []
        self.epochs: dict[str, int] = {}
        self.leases: dict[str, tuple[str, int]] = {}
        self.waiting: list[str] = []
        self.cookies = 0

    # What the machine knows

    def pool_of(self, me: ProcessIdentity) -> WatchedPool:
        made = WatchedPool(self.settings, make=lambda settings, *_: Desk(self.world, settings))
        made.machine, made.me = self, me
        made.states = WatchedStates(made.states.folder, made.states.dirs, self)
        return made

    def ledger(self) -> dict[str, Any]:
        if not self.settings.ledger.exists():
            return {"desks": {}, "sessions": {}, "epochs": {}, "queue": []}
        found: dict[str, Any] = json.loads(self.settings.ledger.read_text())
        return found

    def who_sits_at(self, desk: str) -> tuple[str, str] | None:
        for name, session in self.ledger()["sessions"].items():
            if session["desk"] == desk:
                return name, session["lease"]["id"]
        return None

    def saved(self) -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in self.settings.state_dir.glob("*.json")}

    def who_waits_before(self, rules: Rules, waiter: Waiter | None) -> set[str]:
        """The sessions for which somebody who lives has waited longer for a desk, by the order of their coming."""
        self._note_waiters([one.id for one in rules.ledger.queue])
        there = {one.id: one for one in rules.ledger.queue if one.owner.is_alive()}
        before = self.waiting if waiter is None else self.waiting[: self.waiting.index(waiter.id)]
        seated = set(rules.ledger.seated().values())
        return {there[one].session for one in before if one in there} - seated

    def _note_waiters(self, ids: list[str]) -> None:
        self.waiting += [one for one in ids if one not in self.waiting]

    def alive(self, *, idle: bool | None = None) -> list[Process]:
        return [one for one in self.processes if idle is None or (one.task is None) == idle]

    def pick(self, number: int, *, idle: bool) -> Process | None:
        found = self.alive(idle=idle)
        return found[number % len(found)] if found else None

    # Processes

    @initialize(taken=st.sampled_from([3, 2, 0, 3]), waiting=st.sampled_from([2, 1, 0]))
    def first(self, taken: int, waiting: int) -> None:
        """Some desks are taken from the beginning, and some wait."""
        for number in range(taken):
            self.start(None)
            self.begin(len(self.alive(idle=True)) - 1, NAMES[number], "seat", "process", STEPS_OF_A_VERB)
        for number in range(waiting):
            self.start(None)
            self.begin(len(self.alive(idle=True)) - 1, NAMES[-1 - number], "wait", "process", 12)
        self.start(None)

    @precondition(lambda self: len(self.processes) < MOST_PROCESSES)
    @rule(reused=st.none() | st.integers(0, 20))
    def start(self, reused: int | None) -> None:
        """A process begins, perhaps with the pid of one that is gone."""
        pids = [one.identity.pid for one in self.lying]
        me = self.world.spawn(pids[reused % len(pids)] if reused is not None and pids else None)
        self.processes.append(Process(me, Turns(self.pool_of(me))))

    @precondition(lambda self: self.alive(idle=True))
    @rule(
        number=st.integers(0, 20),
        name=st.sampled_from(NAMES),
        verb=st.sampled_from(["create", "resume", "seat", "seat", "wait"]),
        kind=st.sampled_from(["process", "process", "terminal", "desk"]),
        steps=STEPS,
    )
    def begin(self, number: int, name: str, verb: str, kind: str, steps: int) -> None:
        """Somebody wants to sit down."""
        process = self.pick(number, idle=True)
        assert process is not None
        if process.turn is not None:
            return  # a test has one turn at a time
        if kind == "process" or verb in ("seat", "wait"):
            owner = Owner("process", process.identity)
        elif kind == "terminal":
            others = [one.identity for one in self.processes]
            owner = Owner("terminal", others[number % len(others)])
        else:
            owner = Owner("desk")
        turns = process.turns
        turns.owner_of = lambda: owner

        def verbs() -> Turn:
            if verb == "create":
                return turns.create(name, orphan="restore")
            if verb == "resume":
                return turns.resume(name)
            return turns.seat(name, wait=60.0 if verb == "wait" else None)

        def check(result: object) -> None:
            if isinstance(result, Turn):
                self.claims.append(result.claim)
                if owner.kind == "process":
                    process.turn, process.heard = result, self.world.machine

        self._begin(process, f"{verb} {name}", verbs, check, steps)

    @precondition(lambda self: self.alive(idle=True))
    @rule(
        number=st.integers(0, 20),
        name=st.sampled_from(NAMES),
        verb=st.sampled_from(["save", "close", "close", "discard", "cleanup", "cleanup all", "sweep"]),
        steps=STEPS,
    )
    def end(self, number: int, name: str, verb: str, steps: int) -> None:
        """Somebody, with no lease to show, saves, closes or cleans up."""
        process = self.pick(number, idle=True)
        assert process is not None
        turns = process.turns
        verbs: dict[str, Callable[[], object]] = {
            "save": lambda: turns.save(name),
            "close": lambda: turns.close(name),
            "discard": lambda: turns.close(name, discard=True),
            "cleanup": turns.cleanup,
            "cleanup all": lambda: turns.cleanup(0),
            "sweep": turns.sweep,
        }
        dead = self._leases_of_the_dead()

        def check(result: object) -> None:
            if verb in ("cleanup", "cleanup all", "sweep") and isinstance(result, list):
                assert not dead & self._leases_of_the_dead(), "the dead keep their desks"

        self._begin(process, f"{verb} {name}", verbs[verb], check, steps)

    def _leases_of_the_dead(self) -> set[str]:
        found = set()
        for session in self.ledger()["sessions"].values():
            owner = session["lease"]["owner"] if session["lease"] else None
            if owner is not None:
                lives = self.world.processes.get(owner["pid"]) == owner["started"]
                if not lives or owner["boot"] != f"boot-{self.world.boot}":
                    found.add(session["lease"]["id"])
        return found

    @rule(number=st.integers(0, 20), verb=st.sampled_from(["save", "close", "beat", "beat"]))
    def holder(self, number: int, verb: str) -> None:
        """A program does something with the turn that it has."""
        holders = [one for one in self.alive(idle=True) if one.turn is not None]
        if not holders:
            return
        process = holders[number % len(holders)]
        assert process.turn is not None
        claim, turns = process.turn.claim, process.turns

        def beat() -> None:
            with turns.pool.changing() as rules:
                rules.heartbeat(claim)
            process.heard = self.world.machine

        verbs: dict[str, Callable[[], object]] = {
            "save": lambda: turns.save(claim.session, lease=claim.id),
            "close": lambda: turns.close(claim.session, lease=claim.id),
            "beat": beat,
        }
        if verb == "close":
            process.turn = None  # from here on it is anybody's
        self._begin(process, f"{verb} {claim.session}", verbs[verb], lambda _: None, STEPS_OF_A_VERB)

    @precondition(lambda self: self.claims and self.alive(idle=True))
    @rule(
        number=st.integers(0, 20),
        which=st.integers(0, 50),
        verb=st.sampled_from(["save", "close", "beat", "hand over"]),
        steps=STEPS,
    )
    def stale(self, number: int, which: int, verb: str, steps: int) -> None:
        """Somebody comes with a lease that is over."""
        process = self.pick(number, idle=True)
        claim = self.claims[which % len(self.claims)]
        session = self.ledger()["sessions"].get(claim.session)
        lease = session["lease"] if session else None
        if process is None or (lease is not None and lease["id"] == claim.id):
            return
        turns = process.turns

        def rules(change: Callable[[Rules], object]) -> None:
            with turns.pool.changing() as found:
                change(found)

        verbs: dict[str, Callable[[], object]] = {
            "save": lambda: turns.save(claim.session, lease=claim.id, given=state_with("nobody 0")),
            "close": lambda: turns.close(claim.session, lease=claim.id),
            "beat": lambda: rules(lambda found: found.heartbeat(claim)),
            "hand over": lambda: turns.pool.hand_over(claim, Owner("process", process.identity), Place()),
        }

        def check(result: object) -> None:
            assert isinstance(result, PeaksError), f"{verb} with an old lease was done: {result}"

        self._begin(process, f"stale {verb} {claim.session}", verbs[verb], check, steps)

    @precondition(lambda self: self.alive(idle=False))
    @rule(number=st.integers(0, 20), steps=STEPS)
    def go_on(self, number: int, steps: int) -> None:
        process = self.pick(number, idle=False)
        assert process is not None
        self._go_on(process, steps)

    @precondition(lambda self: self.processes)
    @rule(number=st.integers(0, 20), busy=st.booleans())
    def crash(self, number: int, busy: bool) -> None:
        """A process is killed, in the middle of whatever it does."""
        process = self.pick(number, idle=not busy)
        if process is not None:
            self._crash(process)

    def _crash(self, process: Process) -> None:
        self.world.kill(process.identity)
        self.processes.remove(process)
        self.lying.append(process)
        for browser in self.world.browsers.values():
            browser.at_work.discard(id(process.task))

    def _begin(
        self,
        process: Process,
        doing: str,
        verb: Callable[[], object],
        check: Callable[[object], None],
        steps: int,
    ) -> None:
        def body() -> object:
            try:
                return verb()
            except PeaksError as error:
                return error

        process.doing, process.checks = doing, check
        process.task = greenlet.greenlet(body, self.world.hub)
        self._go_on(process, steps)

    def _go_on(self, process: Process, steps: int) -> None:
        for _ in range(steps):
            task = process.task
            if task is None:
                return
            result = task.switch()
            if task.dead:
                process.task = None
                assert process.checks is not None
                process.checks(result)
            self.look()

    # What else happens

    @rule(seconds=st.sampled_from([0.5, 30.0, 100.0, IDLE - 1, IDLE + 1, 86400.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wall += seconds
        self.world.machine += seconds

    @rule(seconds=st.sampled_from([-86400.0, -3600.0, 3600.0, 10 * 86400.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.world.wall += seconds

    @rule()
    def reboot(self) -> None:
        for process in list(self.processes):
            self._crash(process)
        self.world.processes.clear()
        self.world.boot += 1
        self.world.machine = 5.0
        self.world.last_pid, self.world.last_start = FIRST_PID, 1  # the same numbers come again
        self.world.processes[os.getpid()] = 1
        self.start(None)

    @rule(desk=st.sampled_from(DESKS))
    def browser_dies(self, desk: str) -> None:
        self.world.kill(self.world.browsers[desk].process)

    @rule(desk=st.sampled_from(DESKS))
    def browser_is_started(self, desk: str) -> None:
        Desk(self.world, DeskSettings(desk)).start()

    @rule(desk=st.sampled_from(DESKS), sick=st.booleans())
    def falls_sick(self, desk: str, sick: bool) -> None:
        self.world.browsers[desk].sick = sick

    @rule(desk=st.sampled_from(DESKS))
    def logs_in(self, desk: str) -> None:
        """Who sits at a desk logs in there; where nobody sits, a stranger does, who went on with an old turn."""
        browser = self.world.browsers[desk]
        name, session = next(
            ((n, s) for n, s in self.ledger()["sessions"].items() if s["desk"] == desk), ("stranger", None)
        )
        if session is not None and session["lease"]["phase"] != "held":
            return
        seat = session["lease"]["seat"] if session is not None else None
        if browser.process is None or (seat is not None and seat != browser.process.to_json()):
            return
        self.cookies += 1
        browser.cookie = f"{name} {self.cookies}"

    @rule(desk=st.sampled_from(DESKS[1:]))
    def is_removed_or_returned(self, desk: str) -> None:
        """The configuration changes; whoever runs already keeps the one that it read."""
        wanted = {one.name for one in self.settings.desks} ^ {desk}
        desks = [DeskSettings(n, port=8911 + i) for i, n in enumerate(DESKS) if n in wanted]
        self.settings = replace(self.settings, desks=tuple(desks))

    @rule(spoil=st.sampled_from(["cut", "garbage", "empty", "list", "lost"]), share=st.floats(0, 0.99))
    def is_spoilt(self, spoil: str, share: float) -> None:
        """The ledger is damaged, nobody touches it, and mending brings back whoever sits somewhere."""
        path = self.settings.ledger
        if not path.exists():
            return
        before = self.ledger()
        text = path.read_bytes()
        bad = {"cut": text[: int((len(text) - 2) * share)], "garbage": b"\0\xff", "empty": b"", "list": b"[]"}
        if spoil == "lost":
            path.unlink()
        else:
            path.write_bytes(bad[spoil])
            self._all_refuse(bad[spoil])
        me = self.world.spawn()
        mending = self.pool_of(me)
        assert (mending.file.set_aside() is None) == (spoil == "lost")
        with mending.changing():
            pass
        self.world.kill(me)
        after = self.ledger()
        for name, session in before["sessions"].items():
            lease = session["lease"]
            seat = lease and lease["seat"] and ProcessIdentity.from_json(lease["seat"])
            if lease and (seat is None or seat.is_alive()):
                now = after["sessions"].get(name, {})
                assert now.get("desk") == session["desk"], f"{name} lost its desk with the ledger"
                assert now["lease"]["id"] == lease["id"]
                assert now["lease"]["owner"] == lease["owner"]
        self.waiting.clear()  # they queue up anew

    def _all_refuse(self, bad: bytes) -> None:
        turns = Turns(self.pool_of(self.world.spawn()))
        verbs: tuple[Callable[[], object], ...] = (
            lambda: turns.create("fay"),
            lambda: turns.resume("ann"),
            lambda: turns.save("ann"),
            lambda: turns.close("ann"),
            turns.cleanup,
            turns.sweep,
            turns.pool.look,
        )
        for verb in verbs:
            with pytest.raises(BadJsonError):
                verb()
        assert self.settings.ledger.read_bytes() == bad, "a damaged ledger was touched"
        self.world.kill(turns.pool.me)

    # What is always so

    @invariant()
    def look(self) -> None:
        ledger = self.ledger()
        self._note_waiters([one["id"] for one in ledger["queue"]])
        seated: dict[str, dict[str, Any]] = {}
        for name, session in ledger["sessions"].items():
            if session["desk"] is not None:
                assert session["desk"] not in seated, f"two sit at {session['desk']}"
                seated[session["desk"]] = {**session["lease"], "session": name}
        for name, desk in ledger["desks"].items():
            assert (desk["state"] in OCCUPIED) == (name in seated), f"{name} is {desk['state']}"
        assert seated.keys() <= ledger["desks"].keys(), "somebody sits at no desk"
        self._check_epochs(ledger, seated)
        self._check_turns(ledger)
        for name, browser in self.world.browsers.items():
            assert len(browser.at_work) < 2, f"two are at work on {name}"
        for name, content in self.saved().items():
            for cookie in json.loads(content)["cookies"]:
                assert cookie["value"].split()[0] == name, f"{name} was saved with {cookie['value']}"

    def _check_epochs(self, ledger: dict[str, Any], seated: dict[str, dict[str, Any]]) -> None:
        for desk, epoch in self.epochs.items():
            assert ledger["epochs"].get(desk, 0) >= epoch, f"the epoch of {desk} fell from {epoch}"
        for desk, lease in seated.items():
            known = self.leases.get(lease["id"])
            if known is None:
                last = max((epoch for at, epoch in self.leases.values() if at == desk), default=0)
                assert lease["epoch"] > last, f"a new lease of {desk} has epoch {lease['epoch']} after {last}"
                self.leases[lease["id"]] = (desk, lease["epoch"])
            else:
                assert known == (desk, lease["epoch"]), "a lease changed its desk or epoch"
        self.epochs = dict(ledger["epochs"])

    def _check_turns(self, ledger: dict[str, Any]) -> None:
        """A program that lives and gives signs of life keeps its desk, as long as that stands."""
        for process in self.processes:
            turn = process.turn
            if turn is None:
                continue
            silent = self.world.machine - process.heard > IDLE
            if silent or (turn.place.process is not None and not turn.place.process.is_alive()):
                process.turn = None  # it may be gone
                continue
            session = ledger["sessions"].get(turn.claim.session)
            assert session is not None, f"the granted lease of {turn.claim.session} is in no ledger"
            assert session["desk"] == turn.claim.desk, f"{turn.claim.session} was robbed of its desk"
            assert session["lease"]["id"] == turn.claim.id, f"{turn.claim.session} was robbed of its lease"

    def teardown(self) -> None:
        try:
            self._end_of_the_world()
        finally:
            self.world.over = True
            for process in self.lying + self.processes:
                if process.task is not None and not process.task.dead:
                    with contextlib.suppress(PeaksError):
                        process.task.throw()
            self._stack.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end_of_the_world(self) -> None:
        """When everybody is dead and all desks work, one cleanup frees all of them."""
        for process in list(self.processes):
            self._crash(process)
        for browser in self.world.browsers.values():
            browser.sick = False
        me = self.world.spawn()
        turns = Turns(self.pool_of(me))
        freed = turns.cleanup(0)
        left = turns.pool.look().ledger
        assert not left.seated(), f"{left.seated()} sit there for ever; freed were {freed}"
        with turns.pool.changing():
            pass
        assert not self.ledger()["queue"], "the dead wait"


QUICK = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_whatever_happens_a_desk_has_one_holder_and_nobody_else_s_login_is_saved() -> None:
    run(LedgerMachine, settings=QUICK)


@pytest.mark.slow
def test_whatever_happens_for_long_a_desk_has_one_holder_and_nobody_else_s_login_is_saved() -> None:
    run(LedgerMachine, settings=settings(QUICK, max_examples=1500, stateful_step_count=80))


@pytest.mark.parametrize("verb", ["save", "close", "discard", "cleanup all", "resume"])
@pytest.mark.parametrize("dies", [False, True])
def test_whoever_is_left_at_any_step_of_a_verb_does_no_harm_when_others_go_on_meanwhile(
    verb: str, dies: bool
) -> None:
    for steps in range(1, 25):
        machine = LedgerMachine()
        try:
            for _ in range(6):
                machine.start(None)
            machine.begin(0, "ann", "create", "desk", STEPS_OF_A_VERB)
            if verb == "resume":
                machine.end(0, "ann", "close", STEPS_OF_A_VERB)
            machine.logs_in("desk-1")  # ann, or a stranger
            if verb == "resume":
                machine.begin(0, "ann", "resume", "process", steps)
            else:
                machine.end(0, "ann", verb, steps)
            [left] = [one for one in machine.processes if one.task is not None] or [None]
            if left is None:
                break  # it is done in so many steps
            if dies:
                machine._crash(left)
            machine.end(1, "ann", "close", STEPS_OF_A_VERB)
            machine.begin(2, "bob", "create", "desk", STEPS_OF_A_VERB)
            for desk in DESKS:
                machine.logs_in(desk)
            machine.begin(1, "ann", "resume", "desk", STEPS_OF_A_VERB)
            for desk in DESKS:
                machine.logs_in(desk)
            if not dies:
                machine._go_on(left, STEPS_OF_A_VERB)
        finally:
            machine.teardown()


def test_a_browser_that_was_started_anew_during_a_save_is_not_saved_over_the_login() -> None:
    for steps in range(1, 12):
        machine = LedgerMachine()
        try:
            machine.start(None)
            machine.begin(0, "ann", "create", "desk", STEPS_OF_A_VERB)
            machine.logs_in("desk-1")
            machine.end(0, "ann", "save", STEPS_OF_A_VERB)
            before = machine.saved()
            assert list(before) == ["ann"]
            machine.end(0, "ann", "save", steps)
            machine.browser_dies("desk-1")
            machine.browser_is_started("desk-1")
            for process in machine.processes:
                machine._go_on(process, STEPS_OF_A_VERB)
            assert machine.saved() == before
        finally:
            machine.teardown()
