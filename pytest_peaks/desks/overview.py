"""One look at a pool: who sits where, since when, idle for how long, with how much memory, on which page."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_peaks.desks.holding import held_by
from pytest_peaks.desks.hosted import session_id
from pytest_peaks.hosting import sessions
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.urls import shown

if TYPE_CHECKING:
    from pytest_peaks.desks.turns import Turns


@dataclass(frozen=True, slots=True)
class Row:
    """One desk.

    :ivar session: who sits there; None for nobody.
    :ivar holder: who holds the desk, in words.
    :ivar since: seconds since the session sat down.
    :ivar idle: seconds since it was used through a door or by a verb.
    :ivar memory: bytes of the desk's processes, shared ones counted by part where the system tells.
    :ivar url: of the tab used last, without query and fragment.
    """

    desk: str
    state: str
    session: str | None
    holder: str | None
    since: int | None
    idle: int | None
    memory: int | None
    url: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rows(turns: Turns) -> list[Row]:
    """The pool's desks, in the order of the configuration; those that drain come last."""
    rules = turns.pool.look()
    seats = rules.ledger.seated()
    order = [desk.name for desk in turns.pool.settings.desks]
    found = []
    for name in [*order, *(name for name in rules.ledger.desks if name not in order)]:
        who = seats.get(name)
        session = rules.ledger.sessions[who] if who is not None else None
        lease = session.lease if session is not None else None
        memory, url = _running(turns, name)
        found.append(
            Row(
                desk=name,
                state=rules.ledger.desks[name].state,
                session=who,
                holder=held_by(session) if session is not None else None,
                since=max(0, int(time.time()) - lease.taken_at) if lease is not None else None,
                idle=int(turns.idle_of(session)) if session is not None else None,
                memory=memory,
                url=url,
            )
        )
    return found


def _running(turns: Turns, name: str) -> tuple[int | None, str | None]:
    """Memory and page of a hosted desk that runs."""
    dirs = turns.pool.settings.dirs
    record = Registry(dirs.records).read(session_id(turns.pool.settings, name))
    hosted = sessions.probe(dirs, record) if record is not None else None
    if hosted is None or not hosted.alive:
        return None, None
    urls = hosted.tab_urls()
    return memory_of(hosted.record.owner.pid), shown(urls[0]) if urls else None


def memory_of(pid: int) -> int | None:
    """Bytes of a process and all below it; None if there is none."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                total += _part(process)
    return total or None


def _part(process: Any) -> int:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        full = process.memory_full_info()
        return int(getattr(full, "pss", 0) or full.uss)
    return int(process.memory_info().rss)
