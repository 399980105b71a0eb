"""A session whose owner is this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.session import browsers, processes, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import node_cache_dir
from pytest_peaks.session.record import Record
from pytest_peaks.session.spec import BrowserSpec

if TYPE_CHECKING:
    from pytest_peaks.session.manager import SessionManager


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

    def hold(self, part: str, spawned: spawning.Spawned) -> None:
        """As :meth:`adopt`, but written with the next change of the record; until then it is found by its mark."""
        with self.lock:
            self._pipes.append(spawned.pipe)
            self.record = self.record.with_(processes={**self.record.processes, part: spawned.identity})

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


def child_environment(mark: str, temp_dir: Path) -> Mapping[str, str]:
    """The environment of a session's processes.

    Without ``PLAYWRIGHT_MCP_*`` (a server started with explicit switches obeys them all the same) and
    without saved logins and their key, with a short TMPDIR of the session's own and with the mark by which
    it can be found.
    """
    env = {
        key: value
        for key, value in spawning.without_secrets().items()
        if not key.startswith("PLAYWRIGHT_MCP_")
    }
    for name in ("TMPDIR", "TEMP", "TMP"):
        env[name] = str(temp_dir)
    env[processes.MARK] = mark
    return env


def node_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node that runs Playwright's code: `env`, and where it keeps what it compiled."""
    cache = node_cache_dir()
    return {**env, "NODE_COMPILE_CACHE": str(cache)} if cache is not None else dict(env)
