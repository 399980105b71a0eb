"""What the ledger of desks holds: schema 2, and how it is read from JSON and checked.

Schema 1 is that of the first design's ledger (``{version, updated_at, sessions: {name: {desk, status,
created_at, last_used_at}}}``), whose field names are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_args

from pytest_peaks.desks.clock import Moment
from pytest_peaks.errors import InvalidNameError
from pytest_peaks.session.identity import NAME, ProcessIdentity, check_name

VERSION = 2
SEED_VERSION = 1
DeskState = Literal["free", "leased", "draining", "quarantined", "dead"]
Phase = Literal["starting", "held", "ending"]
OwnerKind = Literal["process", "terminal", "desk", "nobody"]
OCCUPIED: tuple[DeskState, ...] = ("leased", "draining")
T = TypeVar("T")


class NewerLedgerError(ValueError):
    """A later pytest-peaks wrote the ledger."""


@dataclass(slots=True)
class Lease:
    """The right to sit at a desk.

    :ivar id: drawn by lot; whoever acts on a lease presents it.
    :ivar epoch: the desk's count of leases, which only rises.
    :ivar owner: the process for which the desk is held: when it is dead, the desk is free.
    :ivar kind: ``process`` (a test's or program's, which sends heartbeats), ``terminal`` (a terminal's
        session leader), ``desk`` (nobody's in particular: it lasts as long as the desk does), or ``nobody``.
    :ivar seat: the process behind the desk; when it is dead, the seat is lost.
    :ivar phase: ``starting`` and ``ending`` while a process is at work on it, which then is the owner.
    :ivar heartbeat: when the owner was last heard of.
    :ivar taken_at: when the session sat down, Unix time in whole seconds.
    :ivar browser: whether peaks itself works on the desk's browser.
    """

    id: str
    epoch: int
    owner: ProcessIdentity | None
    kind: OwnerKind
    phase: Phase
    heartbeat: Moment
    seat: ProcessIdentity | None = None
    browser: bool = True
    taken_at: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "epoch": self.epoch,
            "owner": self.owner.to_json() if self.owner else None,
            "kind": self.kind,
            "seat": self.seat.to_json() if self.seat else None,
            "phase": self.phase,
            "heartbeat": self.heartbeat.to_json(),
            "browser": self.browser,
            "taken_at": self.taken_at,
        }

    @classmethod
    def from_json(cls, data: object) -> Lease:
        owner, seat = _of(data, "owner", dict, None), _of(data, "seat", dict, None)
        return cls(
            id=_of(data, "id", str),
            epoch=_natural(data, "epoch"),
            owner=ProcessIdentity.from_json(owner) if owner is not None else None,
            kind=cast(OwnerKind, _one_of(data, "kind", get_args(OwnerKind))),
            seat=ProcessIdentity.from_json(seat) if seat is not None else None,
            phase=cast(Phase, _one_of(data, "phase", get_args(Phase))),
            heartbeat=Moment.from_json(_of(data, "heartbeat", dict)),
            browser=_of(data, "browser", bool),
            taken_at=_natural(data, "taken_at"),
        )


@dataclass(slots=True)
class Session:
    """One named identity.

    :ivar desk: where it sits; None if it is detached.
    :ivar created_at: Unix time in whole seconds.
    :ivar used: when it was last used by a verb, a heartbeat, or through a door.
    :ivar fresh: it was never handed over: if its start fails, there was no such session.
    """

    desk: str | None
    created_at: int
    used: Moment
    lease: Lease | None = None
    fresh: bool = False

    @property
    def status(self) -> str:
        return "active" if self.desk is not None else "detached"

    def to_json(self) -> dict[str, Any]:
        return {
            "desk": self.desk,
            "status": self.status,
            "created_at": self.created_at,
            "last_used_at": int(self.used.wall),
            "used": self.used.to_json(),
            "lease": self.lease.to_json() if self.lease else None,
            "fresh": self.fresh,
        }

    @classmethod
    def from_json(cls, data: object) -> Session:
        desk, lease = _of(data, "desk", str, None), _of(data, "lease", dict, None)
        status = _one_of(data, "status", ("active", "detached"))
        if (status == "active") != (desk is not None) or (desk is None) != (lease is None):
            raise ValueError("status, desk and lease contradict each other")
        return cls(
            desk=desk,
            created_at=_natural(data, "created_at"),
            used=Moment.from_json(_of(data, "used", dict)),
            lease=Lease.from_json(lease) if lease is not None else None,
            fresh=_of(data, "fresh", bool),
        )


@dataclass(slots=True)
class Desk:
    """What the ledger knows of one desk.

    :ivar uses: leases since its browser was last started.
    :ivar errors: failures in a row.
    :ivar reason: why it is quarantined or dead.
    :ivar since: when it failed last.
    :ivar kind: see :class:`pytest_peaks.desks.settings.DeskSettings`.
    :ivar place: the address of one that is not hosted here.
    """

    state: DeskState = "free"
    uses: int = 0
    errors: int = 0
    reason: str = ""
    since: Moment | None = None
    kind: str = "hosted"
    place: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "uses": self.uses,
            "errors": self.errors,
            "reason": self.reason,
            "since": self.since.to_json() if self.since else None,
            "kind": self.kind,
            "place": self.place,
        }

    @classmethod
    def from_json(cls, data: object) -> Desk:
        since = _of(data, "since", dict, None)
        return cls(
            state=cast(DeskState, _one_of(data, "state", get_args(DeskState))),
            uses=_natural(data, "uses"),
            errors=_natural(data, "errors"),
            reason=_of(data, "reason", str),
            since=Moment.from_json(since) if since is not None else None,
            kind=_of(data, "kind", str),
            place=_of(data, "place", str),
        )


@dataclass(slots=True)
class Waiter:
    """Somebody who waits for a desk, or for a name to be free of its holder."""

    id: str
    session: str
    owner: ProcessIdentity

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "session": self.session, "owner": self.owner.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Waiter:
        owner = ProcessIdentity.from_json(_of(data, "owner", dict))
        return cls(_of(data, "id", str), _of(data, "session", str), owner)


@dataclass(slots=True)
class Ledger:
    """The whole of it.

    :ivar epochs: the last epoch of every desk there ever was.
    :ivar queue: who waits, first come first.
    """

    desks: dict[str, Desk] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    queue: list[Waiter] = field(default_factory=list)

    def seated(self) -> dict[str, str]:
        """Who sits where: desk to name."""
        return {session.desk: name for name, session in self.sessions.items() if session.desk is not None}

    def to_json(self, updated_at: int) -> dict[str, Any]:
        return {
            "version": VERSION,
            "updated_at": updated_at,
            "desks": {name: desk.to_json() for name, desk in sorted(self.desks.items())},
            "sessions": {name: session.to_json() for name, session in sorted(self.sessions.items())},
            "epochs": dict(sorted(self.epochs.items())),
            "queue": [waiter.to_json() for waiter in self.queue],
        }

    @classmethod
    def from_json(cls, data: object) -> Ledger:
        """Read a ledger of schema 2, checking every field and how they go together.

        :raises NewerLedgerError: a later schema.
        :raises ValueError: anything is missing, of the wrong type, or contradicts the rest; says where.
        """
        version = version_of(data)
        if version != VERSION:
            raise ValueError(f"version is {version!r}, not {VERSION}")
        made = cls(
            desks={
                name: _at(f"desks.{name}", Desk.from_json, value) for name, value in _items(data, "desks")
            },
            sessions={
                name: _at(f"sessions.{name}", Session.from_json, value)
                for name, value in _items(data, "sessions")
            },
            epochs={name: _at(f"epochs.{name}", _epoch, value) for name, value in _items(data, "epochs")},
            queue=[_at("queue", Waiter.from_json, value) for value in _of(data, "queue", list)],
        )
        fault = next(made.faults(), None)
        if fault is not None:
            raise ValueError(fault)
        return made

    def faults(self) -> Iterator[str]:
        """What contradicts itself."""
        occupied: dict[str, str] = {}
        for name, session in self.sessions.items():
            try:
                check_name(name)
            except InvalidNameError:
                yield f"sessions has the unusable name {name[:60]!r}"
            if session.desk is None:
                continue
            if session.desk in occupied:
                yield f"{name} and {occupied[session.desk]} both sit at {session.desk}"
            occupied[session.desk] = name
            if session.desk not in self.desks:
                yield f"{name} sits at {session.desk}, which is no desk"
            assert session.lease is not None, "checked when it was read"
            if session.lease.epoch > self.epochs.get(session.desk, 0):
                yield f"the epoch of {name}'s lease is above that of {session.desk}"
        for name, desk in self.desks.items():
            try:
                check_name(name)
            except InvalidNameError:
                yield f"desks has the unusable name {name[:60]!r}"
            if (desk.state in OCCUPIED) != (name in occupied):
                yield f"{name} is {desk.state}, and {occupied.get(name, 'nobody')} sits there"


def version_of(data: object) -> int:
    """The schema of a ledger.

    :raises NewerLedgerError: it is a later one.
    :raises ValueError: it is no ledger.
    """
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - one error for bad data
    version = data.get("version")
    if type(version) is not int or version < SEED_VERSION:
        raise ValueError(f"version is {version!r}")
    if version > VERSION:
        raise NewerLedgerError(f"version {version} is newer than {VERSION}")
    return version


def from_seed(data: Mapping[str, Any]) -> Ledger:
    """The ledger that a file of schema 1 means: its sessions, all detached, since nobody can say who held them.

    :raises ValueError: it is no such file; says where.
    """
    made = Ledger()
    for name, value in _items(data, "sessions"):
        if not NAME.fullmatch(name):
            continue  # that design checked no names; what could never become a path stays in the backup
        used = _at(f"sessions.{name}", lambda value: _natural(value, "last_used_at"), value)
        created = _at(f"sessions.{name}", lambda value: _natural(value, "created_at"), value)
        made.sessions[name] = Session(None, created, Moment(float(used), 0.0, "before"))
    return made


def _items(data: object, key: str) -> list[tuple[str, object]]:
    return list(_of(data, key, dict).items())


def _at(where: str, read: Any, value: object) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _of(data: object, key: str, kind: type[T], *otherwise: None) -> Any:
    if not isinstance(data, dict):
        raise ValueError("is no object")  # noqa: TRY004 - one error for bad data
    value = data.get(key)
    if type(value) is not kind and not (value is None and otherwise):
        raise ValueError(f"{key} is {type(value).__name__}, not {kind.__name__}")
    return value


def _natural(data: object, key: str) -> int:
    number: int = _of(data, key, int)
    if number < 0:
        raise ValueError(f"{key} is {number}")
    return number


def _epoch(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"is {value!r}")
    return value


def _one_of(data: object, key: str, known: tuple[str, ...]) -> str:
    value: str = _of(data, key, str)
    if value not in known:
        raise ValueError(f"{key} is {value[:40]!r}, none of {', '.join(known)}")
    return value
