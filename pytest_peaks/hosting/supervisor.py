"""The owner of a hosted session: a small detached process without Playwright and without pytest.

It holds the pipe of a Chromium, runs the MCP server on the session's port, keeps the idle clock, and
ends all of it when it is told to, when nobody uses it, or when a part of it dies. If it is killed,
its pipes end Chromium and the MCP server.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.doors import mcp
from pytest_peaks.errors import PeaksError, PortExhaustedError, StartFailedError
from pytest_peaks.hosting.idle import IdleClock
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.manager import (
    BIND_ATTEMPTS,
    Hosting,
    LiveSession,
    SessionManager,
    child_environment,
)
from pytest_peaks.session.paths import ProjectDirs, runtime_dir
from pytest_peaks.session.ports import WORKER_PORTS, PortRange
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry, write_atomically
from pytest_peaks.session.spec import BrowserName, BrowserSpec
from pytest_peaks.session.startup import LostBindError, log_tail

BEAT = 0.25
# Ready after a second on an idle machine; the parts have limits of their own.
ANSWER_TIMEOUT = 180.0
# A supervisor that is told to end takes a tenth of a second; a browser on a user's own profile up to three.
END_GRACE = 8.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a supervisor is asked to host.

    :ivar idle_timeout: seconds without a client after which the session ends; 0 for never.
    """

    dirs: ProjectDirs
    spec: BrowserSpec
    hosting: Hosting
    mcp: mcp.McpOptions
    idle_timeout: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.dirs.root),
            "base": str(self.dirs.base),
            "browser": str(self.spec.browser),
            "executable": str(self.spec.executable or ""),
            "headed": self.spec.headed,
            "userDataDir": str(self.spec.user_data_dir or ""),
            "name": self.hosting.base,
            "withPort": self.hosting.with_port,
            "ports": [self.hosting.ports.first, self.hosting.ports.last, self.hosting.ports.strict],
            "terminal": self.hosting.terminal,
            "launch": self.hosting.launch,
            "caps": list(self.mcp.caps),
            "args": list(self.mcp.args),
            "settle": self.mcp.settle,
            "command": self.mcp.command,
            "idleTimeout": self.idle_timeout,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Order:
        first, last, strict = data["ports"]
        return cls(
            ProjectDirs(Path(data["root"]), Path(data["base"])),
            BrowserSpec(
                browser=BrowserName(data["browser"]),
                executable=Path(data["executable"]) if data["executable"] else None,
                headed=data["headed"],
                user_data_dir=Path(data["userDataDir"]) if data["userDataDir"] else None,
                persistent=True,
            ),
            Hosting(
                data["name"],
                data["withPort"],
                PortRange(first, last, strict),
                data["terminal"],
                data["launch"],
            ),
            mcp.McpOptions(tuple(data["caps"]), tuple(data["args"]), data["settle"], data["command"]),
            data["idleTimeout"],
        )


def start(order: Order) -> Record:
    """Start a supervisor and wait until its session is ready.

    An interrupt (or any other failure) ends what was started.

    :raises PeaksError: what the supervisor met; nothing of the session is left.
    """
    order.dirs.create()
    answers = runtime_dir() / "starts"
    answers.mkdir(exist_ok=True, mode=0o700)
    me = ProcessIdentity.of_self()
    answer = answers / f"{me.pid}-{time.monotonic_ns()}.json"
    log = order.dirs.logs / f"{answer.stem}.supervisor.log"
    content = json.dumps({"order": order.to_json(), "answer": str(answer), "starter": me.to_json()})
    supervisor: ProcessIdentity | None = None
    try:
        command = processes.python_command("pytest_peaks.hosting.supervisor", content)
        supervisor = processes.spawn_detached(command, os.environ, log)
        answered = processes.wait_until(lambda: answer.exists() or not supervisor.is_alive(), ANSWER_TIMEOUT)
        if not answer.exists():
            text = log.read_text(errors="replace") if log.exists() else ""
            what = "died before the session was ready" if answered else "gave no answer in time"
            raise StartFailedError(f"the session's supervisor {what}{log_tail(text)}")  # noqa: TRY301
        return _read_answer(order, answer)
    except BaseException:
        if supervisor is not None:
            processes.end_tree(supervisor, grace=END_GRACE)
            from pytest_peaks.session import guardian

            guardian.sweep(order.dirs, run_uid="", spare=lambda record: record.owner != supervisor)
        raise
    finally:
        answer.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _read_answer(order: Order, answer: Path) -> Record:
    data = json.loads(answer.read_text(encoding="utf-8"))
    if "session" in data:
        record = Registry(order.dirs.records).read(data["session"])
        if record is None:
            raise StartFailedError(f"session {data['session']} ended right after its start")
        return record
    raise _error(data)


def _error(data: Mapping[str, str]) -> PeaksError:
    """A failure as another process met it."""
    kinds = {kind.code: kind for kind in _all_kinds(PeaksError)}
    return kinds.get(data["error"], StartFailedError)(data["message"], hint=data["hint"])


def _all_kinds(kind: type[PeaksError]) -> list[type[PeaksError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _all_kinds(below))]


class Supervisor:
    """Hosts one session until it is to end."""

    def __init__(self, order: Order, starter: ProcessIdentity) -> None:
        self._order = order
        self._starter = starter
        self._stop = threading.Event()
        self._manager = SessionManager(order.dirs, None, WORKER_PORTS)
        self._server: mcp.McpServer | None = None
        self._client: mcp.McpClient | None = None

    def stop(self) -> None:
        self._stop.set()

    def open(self) -> LiveSession:
        """Start the browser and the MCP server on it; the session is ready when a tool call has worked.

        :raises PeaksError: one of them did not start.
        """
        skip: set[int] = set()
        while True:
            session = self._manager.acquire(self._order.spec, self._order.hosting, skip=frozenset(skip))
            try:
                self._serve(session)
                return session
            except LostBindError:
                skip.add(session.record.port)
                session.release()
                if len(skip) >= BIND_ATTEMPTS:
                    raise PortExhaustedError(
                        f"lost {len(skip)} ports in a row to other programs", hint="give another --port"
                    ) from None

    def _serve(self, session: LiveSession) -> None:
        record = session.record
        if session.endpoint is not None:
            target = mcp.on_endpoint(session.endpoint)
        else:
            assert session.user_data_dir is not None, "a hosted session has a profile"
            target = mcp.with_own_browser(
                record.browser, session.user_data_dir, headed=self._order.spec.headed
            )
        self._server = server = mcp.start(
            self._order.mcp,
            target,
            port=record.port,
            env=child_environment(session.session_id, Path(record.temp_dir)),
            log=self._order.dirs.logs / f"{session.session_id}.mcp.log",
            output_dir=Path(record.temp_dir) / "output",
        )
        if session.endpoint is None:
            self._client = mcp.McpClient(server.url)
            self._client.call("browser_tabs", action="list")
        self._manager.note(
            session,
            status="ready",
            processes={**record.processes, "mcp": server.identity},
            endpoints={**record.endpoints, "mcp": server.url},
        )

    def starter_is_alive(self) -> bool:
        return self._starter.is_alive()

    def watch(self, session: LiveSession) -> None:
        """Return when the session is to end."""
        assert self._server is not None, "an open session has a server"
        idle = IdleClock([self._server.identity], session, self._order.idle_timeout)
        while not self._stop.wait(BEAT):
            if not session.is_alive() or not self._server.identity.is_alive() or idle.is_over():
                return

    def close(self) -> None:
        if self._server is not None:
            self._server.pipe.close()
        self._manager.close()


def main() -> None:
    """Entry point of the supervisor process; takes one JSON argument."""
    asked = json.loads(sys.argv[1])
    order = Order.from_json(asked["order"])
    answer = Path(asked["answer"])
    supervisor = Supervisor(order, ProcessIdentity.from_json(asked["starter"]))
    for name in ("SIGHUP", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    with contextlib.suppress(OSError):
        os.chdir(order.dirs.root)
    try:
        session = supervisor.open()
    except PeaksError as error:
        supervisor.close()
        said = {"error": error.code, "message": error.message, "hint": error.hint}
        write_atomically(answer, json.dumps(said))
        return
    except BaseException:
        supervisor.close()
        raise
    try:
        if supervisor.starter_is_alive():
            write_atomically(answer, json.dumps({"session": session.session_id}))
            supervisor.watch(session)
    finally:
        supervisor.close()
