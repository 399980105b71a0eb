"""The sweep, and the process that runs it when nobody else can.

A sweep ends what dead owners left: browsers, profiles, temp dirs, reservations, records. The
guardian is one small detached process a pytest run. It waits until the controller is dead and then
sweeps what the run left; a run that ends in order calls it off by dropping its reservation.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_peaks.session import ports, processes, profiles, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import (
    ProjectDirs,
    is_session_temp_dir,
    orphaned_temp_dirs,
    temp_dir_owner,
)
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Problem, Registry
from pytest_peaks.session.reservations import Reservations, allocating

BEAT = 0.25
# So long the guardian only sleeps: while a run starts, its browser and its driver need the processor.
FIRST_BEATS = 3
# A worker lets go of its browser within one beat of its watchdog. One that could not (stopped, or
# in native code that never yields) has its browser ended by the guardian after this.
ORPHAN_GRACE = 3.0
# How long the guardian stays for workers that outlive their controller: execnet ends them after 15 s.
ORPHAN_LIMIT = 60.0
# The browser's output, the MCP server's, the supervisor's.
LOG_ENDINGS = (".log", ".mcp.log", ".supervisor.log")
# What is reserved, a folder of the runtime dir each.
RESERVED = ("ports", "profiles", "guardians", "sessions", "uses", "logins", "accounts")
# A browser on a user's own profile gets this long to write it out.
PROFILE_GRACE = 3.0


@dataclass
class Swept:
    """What a sweep found.

    :ivar ended: records of dead owners whose leftovers are gone.
    :ivar failed: records whose processes could not be ended or folders not be removed.
    :ivar foreign: records of owners on other hosts, left alone.
    :ivar temp_dirs: temp dirs of dead owners that were removed.
    :ivar problems: files among the records that could not be used, with where they are now.
    """

    ended: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    foreign: list[Record] = field(default_factory=list)
    temp_dirs: list[Path] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    problems: list[tuple[Problem, Path | None]] = field(default_factory=list)

    @property
    def found_something(self) -> bool:
        return bool(self.ended or self.failed or self.temp_dirs or self.profiles or self.problems)


def sweep(
    dirs: ProjectDirs,
    *,
    run_uid: str | None = None,
    runtime: Path | None = None,
    spare_living: bool = True,
    spare: Callable[[Record], bool] = lambda _: False,
) -> Swept:
    """End what dead owners of this project left behind.

    :param run_uid: only records of this run; None for all, files set aside included.
    :param spare_living: False ends sessions whose owner lives as well (an orphaned worker's).
    :param spare: records to leave alone whatever their owner.
    """
    swept = Swept()
    registry = Registry(dirs.records)
    records, problems = registry.list()
    for record in records:
        if (run_uid is not None and record.run_uid != run_uid) or spare(record):
            continue
        state = record.owner.state()
        if state == "foreign":
            swept.foreign.append(record)
        elif state == "dead" or not spare_living:
            (swept.ended if clear(dirs, record, runtime=runtime) else swept.failed).append(record)
    swept.temp_dirs += remove_orphaned_temp_dirs()
    if run_uid is None:
        swept.problems = [(problem, registry.set_aside(problem)) for problem in problems]
        swept.profiles = _remove_unrecorded_profiles(dirs, registry)
        with allocating(runtime) as folder:
            for kind in RESERVED:
                Reservations(folder, kind).drop_dead()
    return swept


def remove_orphaned_temp_dirs() -> list[Path]:
    """Remove the temp dirs of dead owners of this user; returns those that are gone."""
    return [folder for folder in orphaned_temp_dirs() if profiles.remove_tree(folder, folder.parent)]


def clear(dirs: ProjectDirs, record: Record, *, runtime: Path | None = None) -> bool:
    """End the processes of one session and remove all that is its own. True if all is gone.

    Idempotent, and safe to run in two processes at once.
    """
    profile = Path(record.user_data_dir) if record.user_data_dir else None
    # A path from a file is not trusted: only what lies in our own folder counts as ours.
    ours = profile is not None and record.ephemeral and dirs.profiles in profile.parents
    gone = True
    # The browser last: what hangs on it would only complain of its loss.
    for part in sorted(record.processes, key="browser".__eq__):
        kept = part == "browser" and not record.ephemeral
        gone = processes.end_tree(record.processes[part], grace=PROFILE_GRACE if kept else 0.0) and gone
    gone = processes.end_marked(record.mark, str(profile) if ours else "") and gone
    if not gone:
        return False
    if ours and profile is not None and profile.exists():
        gone = profiles.remove_tree(profile, dirs.profiles)
    if record.temp_dir:
        _remove_session_temp(Path(record.temp_dir))
    if not gone:
        return False
    if record.port:
        ports.release(record.port, record.session_id, runtime)
    if profile is not None:
        profiles.release(profile, profile_holder(record), runtime)
    if record.kind == "cli":
        with allocating(runtime) as folder:
            # Of several that clear it away at once, one may have opened its name anew.
            registry = Registry(dirs.records)
            current = registry.read(record.session_id)
            same = current is not None and current.temp_dir == record.temp_dir
            if same or not os.path.lexists(registry.path_of(record.session_id)):
                _release_name(folder, dirs, record.session_id)
                _remove_files(dirs, record)
        return True
    if record.kind != "worker":
        release_name(dirs, record.session_id, runtime)
    _remove_files(dirs, record)
    return True


def _remove_files(dirs: ProjectDirs, record: Record) -> None:
    for log in (dirs.logs / f"{record.session_id}{ending}" for ending in LOG_ENDINGS):
        log.unlink(missing_ok=True)
    Registry(dirs.records).remove(record.session_id)


def name_key(dirs: ProjectDirs, session_id: str) -> str:
    """The key under which the name of a hosted or named session is reserved; names are the project's own."""
    return hashlib.sha256(os.fsencode(f"{dirs.base}|{session_id}")).hexdigest()[:32]


def profile_holder(record: Record) -> str:
    """For whom a session's profile is reserved. A named session may have a namesake in another project."""
    return record.mark if record.kind == "cli" else record.session_id


def release_name(dirs: ProjectDirs, session_id: str, runtime: Path | None = None) -> None:
    with allocating(runtime) as folder:
        _release_name(folder, dirs, session_id)


def _release_name(runtime: Path, dirs: ProjectDirs, session_id: str) -> None:
    Reservations(runtime, "sessions").drop(name_key(dirs, session_id), session_id)


def _remove_session_temp(folder: Path) -> None:
    """Remove a session's temp dir, and its owner's around it if that owner is dead."""
    if is_session_temp_dir(folder):
        profiles.remove_tree(folder, folder.parent)
        return
    owner = temp_dir_owner(folder.parent)
    if owner is None:
        return
    profiles.remove_tree(folder, folder.parent)
    if owner.state() == "dead":
        profiles.remove_tree(folder.parent, folder.parent.parent)


def _remove_unrecorded_profiles(dirs: ProjectDirs, registry: Registry) -> list[Path]:
    """Remove profiles in our folder that no record names.

    A session's record is written before its profile is made, so the folders are listed first.
    """
    try:
        folders = sorted(path for path in dirs.profiles.iterdir() if path.is_dir())
    except OSError:
        return []
    return [
        folder
        for folder in folders
        if not registry.path_of(folder.name).exists()
        and not (folder / profiles.KEEP).exists()
        and profiles.remove_tree(folder, dirs.profiles)
    ]


def start(dirs: ProjectDirs, run_uid: str, controller: ProcessIdentity) -> None:
    """Start the guardian of a run, unless it has one."""
    with allocating() as runtime:
        guardians = Reservations(runtime, "guardians")
        if guardians.holder(run_uid) is not None:
            return
        arguments = json.dumps(
            {
                "root": str(dirs.root),
                "base": str(dirs.base),
                "run": run_uid,
                "runtime": str(runtime),
                "controller": controller.to_json(),
            }
        )
        guardians.take(run_uid, controller, run_uid)  # there before the guardian, which leaves when it is not
        command = spawning.idle_python_command(
            "pytest_peaks.session.guardian",
            arguments,
            file=guardians.path_of(run_uid),
            beats=FIRST_BEATS,
            beat=BEAT,
        )
        try:
            identity = spawning.spawn_detached(command, _guardian_env())
        except OSError:
            guardians.drop(run_uid, run_uid)
            raise
        guardians.take(run_uid, identity, run_uid)


def _guardian_env() -> dict[str, str]:
    # Coverage and pytest settings of the run are not the guardian's.
    return {
        key: value
        for key, value in spawning.without_secrets().items()
        if not key.startswith(("COV_", "COVERAGE_", "PYTEST_", "PYTHONSTARTUP"))
    }


def call_off(run_uid: str) -> None:
    """Tell the guardian of a run that all is in order; it leaves within a beat."""
    with allocating() as runtime:
        _drop_of_run(runtime, run_uid)


def watch(dirs: ProjectDirs, run_uid: str, controller: ProcessIdentity, runtime: Path) -> None:
    """Wait for the end of a run; sweep if it did not end in order."""
    reservation = runtime / "guardians" / f"{run_uid}.json"
    orphans: set[ProcessIdentity] = set()

    def orphans_hold_sessions() -> bool:
        records, _ = Registry(dirs.records).list()
        holding = {
            record.owner for record in records if record.run_uid == run_uid and record.owner.is_alive()
        }
        orphans.update(holding)
        return bool(holding)

    while controller.is_alive():
        if not reservation.exists():
            return
        time.sleep(BEAT)
    processes.wait_until(lambda: not orphans_hold_sessions(), ORPHAN_GRACE, pause=BEAT / 2)
    sweep(dirs, run_uid=run_uid, runtime=runtime, spare_living=False)
    # A worker's own temp dir can go only when it is dead.
    processes.wait_until(lambda: not any(orphan.is_alive() for orphan in orphans), ORPHAN_LIMIT, pause=BEAT)
    sweep(dirs, run_uid=run_uid, runtime=runtime, spare_living=False)
    with allocating(runtime):
        _drop_of_run(runtime, run_uid)


def _drop_of_run(runtime: Path, run_uid: str) -> None:
    """Remove what was noted for a run."""
    Reservations(runtime, "guardians").drop(run_uid, run_uid)
    for kind in ("logins", "accounts"):
        Reservations(runtime, kind).drop_session(run_uid)


def main() -> None:
    """Entry point of the guardian process; takes one JSON argument."""
    asked = json.loads(sys.argv[1])
    runtime = Path(asked["runtime"])
    # Its reservation is written by the process that started it, within the lock.
    with allocating(runtime):
        pass
    watch(
        ProjectDirs(Path(asked["root"]), Path(asked["base"])),
        asked["run"],
        ProcessIdentity.from_json(asked["controller"]),
        runtime,
    )
