"""The named sessions of a project: which there are, which of them live, and how one is ended.

A named session is a daemon of playwright-cli with a browser of its own. Its record, its reservation of the
name and its temp dir are the daemon's; what it works with (registry, sockets, browser's temp files) lies in
that temp dir, so that no other playwright-cli can see or end it.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_peaks.doors import cli_client
from pytest_peaks.errors import CliNotOpenError, ReapIncompleteError
from pytest_peaks.session import guardian, processes, profiles
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating

PREFIX = "cli-"
# A daemon that was told to stop has closed its browser; its process is gone some milliseconds later.
END_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What was asked for when a session was opened; kept in its record as JSON.

    :ivar attached: the CDP URL or endpoint of the browser that it is a guest of, or ``extension``; empty if it
        has its own.
    :ivar place: the working directory that it was opened in.
    :ivar version: Playwright's.
    """

    headed: bool = False
    persistent: bool = False
    attached: str = ""
    place: str = ""
    version: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Facts:
        """Read what :meth:`to_text` wrote; what can't be read is left at its default."""
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            data = json.loads(text)
            return cls(
                data.get("headed") is True,
                data.get("persistent") is True,
                str(data.get("attached") or ""),
                str(data.get("place") or ""),
                str(data.get("version") or ""),
            )
        return cls()


@dataclass(frozen=True, slots=True)
class Named:
    """One named session as it is now.

    :ivar state: ``open``; ``starting``; ``dead`` (its daemon is gone, or listens no more, or whoever was
        starting it died); ``elsewhere`` (of another host or container, and not to be seen from here).
    """

    dirs: ProjectDirs
    record: Record
    state: str

    @property
    def name(self) -> str:
        return self.record.session_id.removeprefix(PREFIX)

    @property
    def facts(self) -> Facts:
        return Facts.from_text(self.record.launch)

    @property
    def socket(self) -> str:
        return self.record.endpoints.get("cli", "")

    @property
    def holds_its_name(self) -> bool:
        return self.state != "dead"

    @property
    def artifacts(self) -> Path:
        return artifacts_of(self.dirs, self.name)

    def described(self) -> str:
        """Who holds it, in words."""
        who = f"process {self.record.owner.pid}, since {self.record.started_at}"
        return f"{self.name} ({who}{f', opened in {self.facts.place}' if self.facts.place else ''})"


def record_id(name: str) -> str:
    return f"{PREFIX}{name}"


def profile_of(dirs: ProjectDirs, name: str) -> Path:
    """The profile of a session that was opened with ``--persistent``."""
    return dirs.profiles / record_id(name)


def artifacts_of(dirs: ProjectDirs, name: str) -> Path:
    return dirs.artifacts / name


def look(dirs: ProjectDirs) -> list[Named]:
    """The named sessions of a project, by name, dead ones included."""
    records, _ = Registry(dirs.records).list()
    return [probe(dirs, record) for record in records if record.kind == "cli"]


def look_everywhere(dirs: ProjectDirs) -> list[Named]:
    """The named sessions of this project and of every other one of this user that has a live one."""
    with allocating() as runtime:
        places = Reservations(runtime, "sessions").places()
    found = look(dirs)
    for place in map(Path, places):
        if place != dirs.base:
            found += look(ProjectDirs(place.parent, place))
    return found


def find(dirs: ProjectDirs, name: str) -> Named | None:
    """The session of that name, dead or alive."""
    record = Registry(dirs.records).read(record_id(name))
    return probe(dirs, record) if record is not None and record.kind == "cli" else None


def probe(dirs: ProjectDirs, record: Record) -> Named:
    state = record.owner.state()
    if state == "foreign":
        return Named(dirs, record, "elsewhere")
    if state == "dead":
        return Named(dirs, record, "dead")
    if record.status == "starting":
        return Named(dirs, record, "starting")
    return Named(dirs, record, "open" if cli_client.is_open(record.endpoints.get("cli", "")) else "dead")


def close(session: Named) -> bool:
    """End a session with everything that is its own; a persistent profile stays. True if it was open.

    :raises CliNotOpenError: it is of another host or container.
    :raises ReapIncompleteError: a part of it could not be ended or removed.
    """
    if session.state == "elsewhere":
        raise CliNotOpenError(
            f"session {session.name} is not of this machine: its daemon is on {session.record.owner.host}, "
            "or in another container",
            hint="close it there; `peaks reap --foreign` removes its files if it is gone",
        )
    if session.state == "open" and hasattr(signal, "SIGCONT"):
        for part in session.record.processes.values():
            processes.send(part, signal.SIGCONT)  # one that is stopped would not hear the rest
    was_open = session.state == "open" and cli_client.stop(session.socket)
    if was_open:
        # It has closed its browser in order; what is left of it goes by force.
        processes.wait_until(lambda: not session.record.owner.is_alive(), END_WAIT)
    end(session)
    return was_open


def end(session: Named) -> None:
    """End a session by force, if its record still says what it said.

    :raises ReapIncompleteError: a part of it could not be ended or removed.
    """
    current = Registry(session.dirs.records).read(session.record.session_id)
    if current is None or current.temp_dir != session.record.temp_dir:
        return  # ended by another, or opened anew under its name
    if not guardian.clear(session.dirs, current):
        raise ReapIncompleteError(
            f"not all of session {session.name} could be ended or removed",
            hint="`peaks reap` tries it again and says what is left",
        )


def delete_data(dirs: ProjectDirs, name: str) -> bool:
    """Close a session and remove its persistent profile and its artifacts. True if there was such a profile.

    A profile that a user named with ``--profile`` is the user's, and stays.
    """
    session = find(dirs, name)
    if session is not None:
        close(session)
    profile = profile_of(dirs, name)
    existed = profile.exists()
    for folder, inside in ((profile, dirs.profiles), (artifacts_of(dirs, name), dirs.artifacts)):
        if folder.exists() and not profiles.remove_tree(folder, inside):
            raise ReapIncompleteError(f"{folder} could not be removed", hint="`ls -l` on it says whose it is")
    return existed


def quarantine(found: Iterable[Named]) -> list[Named]:
    """Clear away dead sessions; live siblings are left alone. Returns what is left of `found`."""
    left = []
    for session in found:
        if session.state == "dead":
            with contextlib.suppress(ReapIncompleteError):
                end(session)
                continue
        left.append(session)
    guardian.remove_orphaned_temp_dirs()
    return left
