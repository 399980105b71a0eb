"""Acquire and release: ties browsers, ports, profiles, processes and records together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from pytest_peaks.errors import (
    BrowserLostError,
    ConflictError,
    PortExhaustedError,
    StartFailedError,
)
from pytest_peaks.session import (
    browsers,
    guardian,
    machine,
    ports,
    processes,
    profiles,
    spawning,
    startup,
    switches,
)
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import LiveSession, child_environment
from pytest_peaks.session.paths import ProjectDirs, owner_temp_dir
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.spec import BrowserSpec, Hosting, Run

# How often a bind may be lost to somebody who does not reserve ports, before that is said.
BIND_ATTEMPTS = 8


class SessionManager:
    """The sessions that this process owns. Safe to release from another thread."""

    def __init__(self, dirs: ProjectDirs, run: Run | None, port_range: PortRange) -> None:
        self.dirs = dirs
        self.run = run
        self.port_range = port_range
        self.owner = ProcessIdentity.of_self()
        self.live: list[LiveSession] = []
        self._registry = Registry(dirs.records)
        self._count = 0
        self._prepared = False
        self._preparing = threading.Lock()
        self._temp: Path | None = None
        self._closed = False
        self._sandbox_failed = False
        self.swept = guardian.Swept()

    @property
    def temp_dir(self) -> Path:
        """This owner's short temp dir; made on first use."""
        if self._temp is None:
            self._temp = owner_temp_dir(self.owner)
        return self._temp

    def acquire(
        self,
        spec: BrowserSpec,
        hosting: Hosting | None = None,
        *,
        skip: frozenset[int] = frozenset(),
        meanwhile: Callable[[LiveSession], None] | None = None,
    ) -> LiveSession:
        """Start a session: reserve, record, spawn, wait until it is ready.

        A hosted one is not marked as ready: its owner does that when all its doors work.

        :param skip: ports not to be tried.
        :param meanwhile: called when the browser's process is there and recorded, and is not ready yet.
        :raises ConflictError: a live session has the name of the hosted one.
        :raises PeaksError: it could not be started; nothing of it is left.
        """
        found = browsers.find(spec)
        machine.check_display(spec)
        self.prepare()
        sandboxed = machine.sandbox().usable and not self._sandbox_failed
        lost = set(skip)
        while True:
            session = self._begin(spec, found, frozenset(lost), hosting)
            try:
                if spec.own_process:
                    self._spawn(session, sandboxed=sandboxed, meanwhile=meanwhile)
                if hosting is None:
                    self.note(session, status="ready")
                return session
            except startup.LostBindError:
                lost.add(session.record.port)
                session.release()
                if len(lost) >= BIND_ATTEMPTS:
                    raise PortExhaustedError(
                        f"lost {len(lost)} ports in a row to other programs: {sorted(lost)}",
                        hint="give --peaks-ports a range that nothing else uses, or 0",
                    ) from None
            except startup.SandboxError:
                session.release()
                sandboxed = False
                self._sandbox_failed = True
            except BaseException:
                session.release()
                raise

    def release(self, session: LiveSession) -> bool:
        """See :meth:`LiveSession.release`."""
        if os.getpid() != self.owner.pid:
            return True  # a forked child owns nothing
        with session.lock:
            if session.released:
                return True
            session.released = True
            # As on disk: who stops a hosted session may have noted there that its profile is to be kept.
            gone = guardian.clear(self.dirs, self._registry.read(session.session_id) or session.record)
            session.close_pipes()
            for identity in session.record.processes.values():
                processes.reap_child(identity.pid)
            if session in self.live:
                self.live.remove(session)
            return gone

    def refuse(self) -> None:
        """Start no further session."""
        self._closed = True

    def close(self, *, keep_temp_dir: bool = False) -> bool:
        """Release every session and remove the temp dir. Idempotent; True if nothing is left."""
        if os.getpid() != self.owner.pid:
            return True
        self.refuse()
        released = [session.release() for session in list(self.live)]
        gone = all(released)
        if self._temp is not None and not keep_temp_dir:
            gone = profiles.remove_tree(self._temp, self._temp.parent) and gone
        return gone

    def prepare(self) -> None:
        """Once, before the first session: folders, the sweep of dead owners, a run's guardian."""
        with self._preparing:
            if not self._prepared:
                self._prepare()

    def _prepare(self) -> None:
        self.dirs.create()
        _ = self.temp_dir  # made here, where no other thread is at work
        self.swept = guardian.sweep(self.dirs)
        try:
            if self.run is not None:
                guardian.start(self.dirs, self.run.uid, self.run.controller)
        except OSError as error:
            raise StartFailedError(
                f"the guardian of this run cannot be started: {error.strerror or error}",
                hint="it runs the same Python as pytest; `peaks doctor` says what is wrong with this machine",
            ) from error
        self._prepared = True

    def _begin(
        self, spec: BrowserSpec, found: browsers.Found, lost: frozenset[int], hosting: Hosting | None
    ) -> LiveSession:
        """Reserve and record a session; its folders are made, nothing is spawned."""
        if self._closed:
            raise BrowserLostError("the run is ending; no new browser is started")
        self._count += 1
        port = 0
        if hosting is not None:
            name, port = self._take_name(hosting, lost)
        elif self.run is not None:
            name = f"r{self.run.uid[:12]}-s{self.run.slot}-{self.owner.pid}-{self._count}"
        else:
            name = f"p{self.owner.pid}-{self.owner.started:x}-{self._count}"
        if spec.user_data_dir is not None:
            profile: Path | None = profiles.check_user_data_dir(spec.user_data_dir, self.dirs.root)
        else:
            profile = self.dirs.profiles / name if spec.needs_profile else None
        record = Record(
            session_id=name,
            port=port,
            browser=str(spec.browser),
            user_data_dir=str(profile or ""),
            started_at=now_iso(),
            owner=self.owner,
            ephemeral=spec.user_data_dir is None,
            temp_dir=str(self.temp_dir / str(self._count)),
            run_uid=self.run.uid if self.run else "",
            slot=self.run.slot if self.run else None,
            worker=self.run.worker if self.run else "",
            kind="worker" if hosting is None else "hosted",
            terminal=hosting.terminal if hosting else "",
            launch=hosting.launch if hosting else "",
        )
        session = LiveSession(self, spec, found, record)
        self.live.append(session)
        try:
            if profile is not None:
                profiles.hold(profile, self.owner, name)
            if (spec.own_process or spec.by_driver) and hosting is None:
                port = ports.reserve(self.port_range, self.owner, name, skip=lost)
            self.note(session, port=port)
            Path(record.temp_dir).mkdir(mode=0o700)
            if profile is not None and record.ephemeral:
                # A hosted session's may have been kept for its terminal.
                profile.mkdir(mode=0o700, exist_ok=hosting is not None)
                (profile / profiles.KEEP).unlink(missing_ok=True)
        except OSError as error:
            session.release()
            raise StartFailedError(f"the session's folders cannot be made: {error}") from error
        except BaseException:
            session.release()
            raise
        return session

    def _take_name(self, hosting: Hosting, lost: frozenset[int]) -> tuple[str, int]:
        """Reserve a port and then the name of a hosted session.

        :raises ConflictError: a live session has that name.
        """
        port = ports.reserve(hosting.ports, self.owner, hosting.base, skip=lost)
        name = hosting.name(port)
        with allocating() as runtime:
            names = Reservations(runtime, "sessions")
            key = guardian.name_key(self.dirs, name)
            file = self._registry.path_of(name)
            if names.holder(key) is not None or os.path.lexists(file):
                Reservations(runtime, "ports").drop(str(port), hosting.base)
                raise ConflictError(
                    f"session {name} is being started or is running already",
                    hint=f"what cannot be seen from here is in {file}; `peaks playwright ls` tells of it",
                )
            names.take(key, self.owner, name, where=str(self.dirs.base))
            Reservations(runtime, "ports").take(str(port), self.owner, name)
        return name, port

    def note(self, session: LiveSession, **changes: object) -> None:
        """Change the session's record, in memory and on disk; one that is released has none any more."""
        with session.lock:
            session.record = session.record.with_(**changes)
            if not session.released:
                self._registry.write(session.record)

    def _spawn(
        self, session: LiveSession, *, sandboxed: bool, meanwhile: Callable[[LiveSession], None] | None
    ) -> None:
        executable, profile = session.found.executable, session.user_data_dir
        assert executable is not None, "a browser that peaks spawns has an executable"
        assert profile is not None, "and a profile"
        log = self.dirs.logs / f"{session.session_id}.log"
        command = switches.command(
            executable,
            port=0 if session.record.kind == "hosted" else session.record.port,
            user_data_dir=profile,
            headed=session.spec.headed,
            sandboxed=sandboxed,
            extra=session.spec.switches,
        )
        env = child_environment(session.record.mark, Path(session.record.temp_dir))
        try:
            with session.lock:
                if session.released:  # by the watchdog, from its thread
                    raise BrowserLostError("the run is ending; no new browser is started")
                session.spawned = spawning.spawn_browser(command, env, log)
        except OSError as error:
            raise StartFailedError(
                f"{executable} cannot be run: {error.strerror or error}",
                hint="`peaks doctor` says what is wrong",
            ) from error
        identity = session.spawned.identity
        self.note(session, pid=identity.pid, processes={"browser": identity})
        if meanwhile is not None:
            meanwhile(session)
        endpoint, port = startup.wait_until_ready(
            str(session.found), identity, log, profile, sandboxed=sandboxed
        )
        if session.record.kind == "hosted":
            port = session.record.port  # that of its MCP server
        elif session.record.port == 0:
            ports.reserve_exactly(port, self.owner, session.session_id)
        self.note(session, port=port, endpoints={"cdp": endpoint})
