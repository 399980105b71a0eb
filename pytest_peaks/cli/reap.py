"""``peaks reap``: end and remove what dead owners left behind, now instead of at the next run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, Reply
from pytest_peaks.cli.plain import counted
from pytest_peaks.errors import ReapIncompleteError

if TYPE_CHECKING:
    from pytest_peaks.session.paths import ProjectDirs
    from pytest_peaks.session.record import Record

KINDS = ("ports", "profiles", "guardians", "sessions")


@dataclass
class Reaped:
    """What was done, and what was not and why.

    :ivar sessions: records that are gone, with their processes, ports and logs.
    :ivar reservations: keys of the runtime dir that are free now, such as ``ports/8950``.
    :ivar set_aside: files among the records that were none: where each was, where it is, why.
    :ivar left: what was left alone on purpose, and why.
    :ivar failed: what should be gone and is not, and why.
    """

    sessions: list[Record] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    temp_dirs: list[Path] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)
    set_aside: list[tuple[Path, Path, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": [
                {
                    "session": record.session_id,
                    "port": record.port,
                    "pid": record.pid,
                    "owner": record.owner.pid,
                }
                for record in self.sessions
            ],
            "profiles": self.profiles,
            "temp_dirs": self.temp_dirs,
            "reservations": self.reservations,
            "set_aside": [
                {"file": file, "moved_to": target, "why": reason} for file, target, reason in self.set_aside
            ],
            "left": [{"what": what, "why": why} for what, why in self.left],
            "failed": [{"what": what, "why": why} for what, why in self.failed],
        }

    def lines(self) -> Iterator[str]:
        for record in self.sessions:
            yield f"removed session {record.session_id} (port {record.port}, owner {record.owner.pid})"
        yield from (f"removed profile {path}" for path in self.profiles)
        yield from (f"removed temp dir {path}" for path in self.temp_dirs)
        yield from (f"freed {key}" for key in self.reservations)
        yield from (f"set aside {file} as {target}: {reason}" for file, target, reason in self.set_aside)
        yield from (f"left {what}: {why}" for what, why in self.left)
        yield from (f"could not remove {what}: {why}" for what, why in self.failed)

    @property
    def message(self) -> str:
        done = [
            counted(len(things), what)
            for things, what in (
                (self.sessions, "session"),
                (self.profiles, "profile"),
                (self.temp_dirs, "temp dir"),
                (self.reservations, "reservation"),
            )
            if things
        ]
        said = [f"removed {', '.join(done)}"] if done else []
        if self.set_aside:
            said.append(f"set aside {counted(len(self.set_aside), 'file')}")
        return "; ".join(said) or "nothing to reap"


@click.command(cls=PeaksCommand)
@project_option
@click.option(
    "--foreign",
    is_flag=True,
    help="Also remove sessions of owners on other hosts or in other containers. Only if those are gone: "
    "nobody can see from here whether they are.",
)
def reap(project: Path | None, *, foreign: bool) -> Reply:
    """Remove what dead runs left: browsers, profiles, temp dirs, reservations, records.

    Sessions whose owner lives are left alone.
    """
    reaped = _reap(dirs_of(project), foreign=foreign)
    text = "\n".join([*reaped.lines(), reaped.message])
    if reaped.failed:
        failure = ReapIncompleteError(
            "; ".join(f"{what}: {why}" for what, why in reaped.failed),
            hint="run `peaks reap` as the user who started it, or remove it by hand",
        )
        return Reply(failure.message, reaped.to_json(), text, failure)
    return Reply(reaped.message, reaped.to_json(), text)


def _reap(dirs: ProjectDirs, *, foreign: bool) -> Reaped:
    from pytest_peaks.session import guardian
    from pytest_peaks.session.paths import orphaned_temp_dirs
    from pytest_peaks.session.registry import Registry

    # A sweep tells of sessions; what went with them is what was there before and is not any more.
    registry = Registry(dirs.records)
    living = {record.session_id for record in registry.list()[0] if record.owner.is_alive()}
    profiles_before = [path for path in _children(dirs.profiles) if path.name not in living]
    temp_before = orphaned_temp_dirs()
    held_before = set(_reservations_of_nobody())

    reaped = Reaped()
    swept = guardian.sweep(dirs)
    reaped.sessions += swept.ended
    reaped.failed += [(record.session_id, _whats_left(record)) for record in swept.failed]
    for record in swept.foreign:
        _deal_with_foreign(dirs, record, reaped, remove=foreign)
    for problem, target in swept.problems:
        if target is not None:
            reaped.set_aside.append((problem.path, target, problem.reason))
        elif problem.path.exists():
            (reaped.left if problem.left_in_place else reaped.failed).append(
                (str(problem.path), problem.reason)
            )
    for record in registry.list()[0]:
        if record.owner.is_alive():
            reaped.left.append((record.session_id, f"its owner, process {record.owner.pid}, is alive"))

    reaped.profiles = [path for path in profiles_before if not path.exists()]
    reaped.temp_dirs = [path for path in temp_before if not path.exists()]
    reaped.reservations = sorted(held_before - set(_reservations_of_nobody()))
    return reaped


def _deal_with_foreign(dirs: ProjectDirs, record: Record, reaped: Reaped, *, remove: bool) -> None:
    """Leave a session of another host or container, or remove its files. Nothing is signalled."""
    from pytest_peaks.session import guardian, processes

    if not remove:
        where = f"host {record.owner.host}" if record.owner.host else "another host"
        reaped.left.append(
            (record.session_id, f"its owner is on {where} or in another container; --foreign removes it")
        )
        return
    # From a host one sees into its containers: such a browser is alive, and not ours to end.
    seen = [process.pid for process in processes.marked(record.mark, record.user_data_dir)]
    if seen:
        reaped.left.append((record.session_id, f"its browser is alive (processes {seen})"))
    elif guardian.clear(dirs, record):
        reaped.sessions.append(record)
    else:
        reaped.failed.append((record.session_id, _whats_left(record)))


def _whats_left(record: Record) -> str:
    browser = record.processes.get("browser")
    if browser is not None and browser.is_alive():
        return f"its browser, process {browser.pid}, could not be ended"
    return f"its profile {record.user_data_dir} could not be removed"


def _reservations_of_nobody() -> Iterator[str]:
    """Reservations whose holder does not live here, as ``kind/key``."""
    from pytest_peaks.session.reservations import Reservations, allocating

    with allocating() as runtime:
        for kind in KINDS:
            held = Reservations(runtime, kind)
            for path in sorted(held.folder.glob("*.json")):
                holder = held.holder(path.stem)
                if holder is None or not holder[0].is_alive():
                    yield f"{kind}/{path.stem}"


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
