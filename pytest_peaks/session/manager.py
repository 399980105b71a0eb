"""Acquire and release: ties browsers, ports, profiles, processes and records together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.errors import (
    BrowserLostError,
    PortExhaustedError,
    StartFailedError,
)
from pytest_peaks.session import browsers, guardian, ports, processes, profiles, startup
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs, owner_temp_dir
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.spec import BrowserSpec

# How often a bind may be lost to somebody who does not reserve ports, before that is said.
BIND_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """The pytest run and the place in it that sessions are acquired for.

    :ivar uid: same in the controller and all its workers; ``[a-z0-9]``.
    :ivar worker: xdist's id, ``main`` without xdist.
    :ivar controller: the process that reports the run; without xdist the caller itself.
    """

    uid: str
    slot: int
    worker: str
    controller: ProcessIdentity


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
        self.spawned: processes.Spawned | None = None
        self.released = False
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
        if self.spawned is None:
            return True
        return self.spawned.identity.is_alive()

    def kill(self) -> None:
        """End the browser at once; the session stays, to be released."""
        if self.spawned is not None:
            processes.end_tree(self.spawned.identity, grace=0.0)

    def release(self) -> bool:
        """End the browser and remove all that is the session's own. Idempotent; True if all is gone."""
        return self.manager.release(self)


class SessionManager:
    """The sessions that this process owns. Safe to release from another thread."""

    def __init__(self, dirs: ProjectDirs, run: Run, port_range: PortRange) -> None:
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

    def acquire(self, spec: BrowserSpec) -> LiveSession:
        """Start a session: reserve, record, spawn, wait until it is ready.

        :raises PeaksError: it could not be started; nothing of it is left.
        """
        found = browsers.find(spec)
        browsers.check_display(spec)
        self._prepare()
        sandboxed = browsers.sandbox().usable and not self._sandbox_failed
        lost: set[int] = set()
        while True:
            session = self._begin(spec, found, frozenset(lost))
            try:
                if spec.own_process:
                    self._spawn(session, sandboxed=sandboxed)
                self._note(session, status="ready")
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
            gone = guardian.clear(self.dirs, session.record)
            if session.spawned is not None:
                session.spawned.pipe.close()
                processes.reap_child(session.spawned.identity.pid)
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

    def _prepare(self) -> None:
        """Once, before the first session: folders, the sweep of dead owners, the guardian."""
        if self._prepared:
            return
        self.dirs.create()
        self.swept = guardian.sweep(self.dirs)
        try:
            guardian.start(self.dirs, self.run.uid, self.run.controller)
        except OSError as error:
            raise StartFailedError(
                f"the guardian of this run cannot be started: {error.strerror or error}",
                hint="it runs the same Python as pytest; `peaks doctor` says what is wrong with this machine",
            ) from error
        self._prepared = True

    def _begin(self, spec: BrowserSpec, found: browsers.Found, lost: frozenset[int]) -> LiveSession:
        """Reserve and record a session; its folders are made, nothing is spawned."""
        if self._closed:
            raise BrowserLostError("the run is ending; no new browser is started")
        self._count += 1
        name = f"r{self.run.uid[:12]}-s{self.run.slot}-{self.owner.pid}-{self._count}"
        if spec.user_data_dir is not None:
            profile: Path | None = profiles.check_user_data_dir(spec.user_data_dir, self.dirs.root)
        else:
            profile = self.dirs.profiles / name if spec.needs_profile else None
        record = Record(
            session_id=name,
            port=0,
            browser=str(spec.browser),
            user_data_dir=str(profile or ""),
            started_at=now_iso(),
            owner=self.owner,
            ephemeral=spec.user_data_dir is None,
            temp_dir=str(self.temp_dir / str(self._count)),
            run_uid=self.run.uid,
            slot=self.run.slot,
            worker=self.run.worker,
        )
        session = LiveSession(self, spec, found, record)
        self.live.append(session)
        try:
            if profile is not None:
                profiles.hold(profile, self.owner, name)
            port = ports.reserve(self.port_range, self.owner, name, skip=lost) if spec.own_process else 0
            self._note(session, port=port)
            Path(record.temp_dir).mkdir(mode=0o700)
            if profile is not None and record.ephemeral:
                profile.mkdir(mode=0o700)
        except OSError as error:
            session.release()
            raise StartFailedError(f"the session's folders cannot be made: {error}") from error
        except BaseException:
            session.release()
            raise
        return session

    def _note(self, session: LiveSession, **changes: object) -> None:
        session.record = session.record.with_(**changes)
        self._registry.write(session.record)

    def _spawn(self, session: LiveSession, *, sandboxed: bool) -> None:
        executable, profile = session.found.executable, session.user_data_dir
        assert executable is not None, "a browser that peaks spawns has an executable"
        assert profile is not None, "and a profile"
        log = self.dirs.logs / f"{session.session_id}.log"
        command = browsers.command(
            executable,
            port=session.record.port,
            user_data_dir=profile,
            headed=session.spec.headed,
            sandboxed=sandboxed,
        )
        env = child_environment(session.session_id, Path(session.record.temp_dir))
        try:
            with session.lock:
                if session.released:  # by the watchdog, from its thread
                    raise BrowserLostError("the run is ending; no new browser is started")
                session.spawned = processes.spawn_browser(command, env, log)
        except OSError as error:
            raise StartFailedError(
                f"{executable} cannot be run: {error.strerror or error}",
                hint="`peaks doctor` says what is wrong",
            ) from error
        identity = session.spawned.identity
        self._note(session, pid=identity.pid, browser_process=identity)
        endpoint, port = startup.wait_until_ready(
            str(session.found), identity, log, profile, sandboxed=sandboxed
        )
        if session.record.port == 0:
            ports.reserve_exactly(port, self.owner, session.session_id)
        self._note(session, port=port, endpoints={"cdp": endpoint})


def child_environment(session_id: str, temp_dir: Path) -> Mapping[str, str]:
    """The environment of a session's processes.

    Without ``PLAYWRIGHT_MCP_*`` (a server started with explicit switches obeys them all the same),
    with a short TMPDIR of the session's own and with the mark by which it can be found.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("PLAYWRIGHT_MCP_")}
    for name in ("TMPDIR", "TEMP", "TMP"):
        env[name] = str(temp_dir)
    env[processes.MARK] = session_id
    return env
