"""Acquire and release: ties browsers, ports, profiles, processes and records together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
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
from pytest_peaks.session.paths import ProjectDirs, owner_temp_dir
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.spec import BrowserSpec

# How often a bind may be lost to somebody who does not reserve ports, before that is said.
BIND_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """The pytest run and the place in it that sessions are acquired for.

    :ivar uid: same in the controller and all its workers; ``[a-z0-9]``.
    :ivar worker: xdist's id, ``main`` without xdist.
    :ivar controller: the process that reports the run; without xdist the caller itself.
    :ivar workers: how many processes run tests.
    """

    uid: str
    slot: int
    worker: str
    controller: ProcessIdentity
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Hosting:
    """What makes a session a hosted one: a name that is found again, and a port for its MCP server.

    :ivar base: the terminal's id; the session's name, unless `with_port`.
    :ivar with_port: the name is ``<base>@<port>``: the terminal holds another session.
    :ivar ports: where its MCP server listens; its Chromium takes a port of the system's choice.
    :ivar terminal: see ``Record.terminal``.
    :ivar launch: see ``Record.launch``.
    """

    base: str
    with_port: bool
    ports: PortRange
    terminal: str = ""
    launch: str = ""

    def name(self, port: int) -> str:
        return f"{self.base}@{port}" if self.with_port else self.base


class LiveSession:
    """A session whose owner is this process.

    :ivar found: the browser that runs in it.
    :ivar record: as on disk.
    """

    def __init__(
        self, manager: SessionManager, spec: BrowserSpec, found: browsers.Found, record: Record
    ) -> None:
        self.manager = manager
        self.spec = spec
        self.found = found
        self.record = record
        self.spawned: spawning.Spawned | None = None
        self.released = False
        self._pipes: list[spawning.OwnerPipe] = []
        self.lock = threading.RLock()

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def user_data_dir(self) -> Path | None:
        return Path(self.record.user_data_dir) if self.record.user_data_dir else None

    @property
    def endpoint(self) -> str | None:
        """The CDP WebSocket URL, None for a browser that Playwright launches itself."""
        return self.record.endpoints.get("cdp")

    def is_alive(self) -> bool:
        """Whether the browser's process lives; for one that the driver launched, whether it is not released."""
        if self.released:
            return False
        browser = self.record.processes.get("browser")
        return browser is None or browser.is_alive()

    def adopt(self, part: str, spawned: spawning.Spawned) -> None:
        """Make a process that works on this session a part of it: recorded, and ended with it."""
        self._pipes.append(spawned.pipe)
        self.manager.note(self, processes={**self.record.processes, part: spawned.identity})

    def found_running(self, endpoint: str) -> None:
        """Note a browser that the driver launched and that has a debugging port all the same."""
        for process in processes.marked(self.record.mark, self.record.user_data_dir):
            if not any(part.startswith("--type=") for part in process.cmdline()):
                identity = ProcessIdentity.of(process.pid)
                if identity is not None:
                    parts = {**self.record.processes, "browser": identity}
                    self.manager.note(self, pid=process.pid, processes=parts, endpoints={"cdp": endpoint})
                return

    def close_pipes(self) -> None:
        for pipe in [*self._pipes, *([self.spawned.pipe] if self.spawned else [])]:
            pipe.close()

    def kill(self) -> None:
        """End the browser at once; the session stays, to be released."""
        browser = self.record.processes.get("browser")
        if browser is not None:
            processes.end_tree(browser, grace=0.0)

    def release(self) -> bool:
        """End the browser and remove all that is the session's own. Idempotent; True if all is gone."""
        return self.manager.release(self)


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
        self, spec: BrowserSpec, hosting: Hosting | None = None, *, skip: frozenset[int] = frozenset()
    ) -> LiveSession:
        """Start a session: reserve, record, spawn, wait until it is ready.

        A hosted one is not marked as ready: its owner does that when all its doors work.

        :param skip: ports not to be tried.
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
                    self._spawn(session, sandboxed=sandboxed)
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

    def close(self) -> bool:
        """Release every session and remove the temp dir. Idempotent; True if nothing is left."""
        if os.getpid() != self.owner.pid:
            return True
        self._closed = True
        released = [session.release() for session in list(self.live)]
        gone = all(released)
        if self._temp is not None:
            gone = profiles.remove_tree(self._temp, self._temp.parent) and gone
        return gone

    def prepare(self) -> None:
        """Once, before the first session: folders, the sweep of dead owners, a run's guardian."""
        if self._prepared:
            return
        self.dirs.create()
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
        """Change the session's record, in memory and on disk."""
        session.record = session.record.with_(**changes)
        self._registry.write(session.record)

    def _spawn(self, session: LiveSession, *, sandboxed: bool) -> None:
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
        endpoint, port = startup.wait_until_ready(
            str(session.found), identity, log, profile, sandboxed=sandboxed
        )
        if session.record.kind == "hosted":
            port = session.record.port  # that of its MCP server
        elif session.record.port == 0:
            ports.reserve_exactly(port, self.owner, session.session_id)
        self.note(session, port=port, endpoints={"cdp": endpoint})


def child_environment(mark: str, temp_dir: Path) -> Mapping[str, str]:
    """The environment of a session's processes.

    Without ``PLAYWRIGHT_MCP_*`` (a server started with explicit switches obeys them all the same),
    with a short TMPDIR of the session's own and with the mark by which it can be found.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("PLAYWRIGHT_MCP_")}
    for name in ("TMPDIR", "TEMP", "TMP"):
        env[name] = str(temp_dir)
    env[processes.MARK] = mark
    return env
