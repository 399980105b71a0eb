"""The owner of a hosted session: a small detached process without Playwright and without pytest.

It holds the pipe of a Chromium, runs the MCP server on the session's port, keeps the idle clock, and
ends all of it when it is told to, when nobody uses it, or when a part of it dies. If it is killed,
its pipes end Chromium and the MCP server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.doors import mcp_process
from pytest_peaks.errors import PeaksError, PortExhaustedError, StartFailedError, all_kinds
from pytest_peaks.hosting import lasting, use
from pytest_peaks.hosting.idle import DirectUse, IdleClock
from pytest_peaks.hosting.order import Order
from pytest_peaks.session import guardian, processes, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import LiveSession, child_environment
from pytest_peaks.session.manager import BIND_ATTEMPTS, SessionManager
from pytest_peaks.session.paths import runtime_dir
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry, write_atomically
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.startup import LostBindError, log_tail
from pytest_peaks.session.watchdog import Watchdog

if TYPE_CHECKING:
    from pytest_peaks.doors import mcp

BEAT = 0.25
# Ready after a second on an idle machine; the parts have limits of their own.
ANSWER_TIMEOUT = 180.0
ANSWER_POLL = 0.003
# A supervisor that is told to end takes a tenth of a second; a browser on a user's own profile up to three.
END_GRACE = 8.0


class _CalledOffError(BaseException):
    """Nobody waits for this start any more."""


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
    log = _log_of(order, answer)
    content = json.dumps({"order": order.to_json(), "answer": str(answer), "starter": me.to_json()})
    supervisor: ProcessIdentity | None = None
    try:
        command = spawning.python_command("pytest_peaks.hosting.supervisor", content)
        supervisor = spawning.spawn_detached(command, spawning.without_secrets(), log)
        answered = processes.wait_until(
            lambda: answer.exists() or not supervisor.is_alive(), ANSWER_TIMEOUT, pause=ANSWER_POLL
        )
        if not answer.exists():
            text = log.read_text(errors="replace") if log.exists() else ""
            what = "died before the session was ready" if answered else "gave no answer in time"
            raise StartFailedError(f"the session's supervisor {what}{log_tail(text)}")  # noqa: TRY301
        record = _read_answer(order, answer)
        answer.unlink()  # by which the supervisor knows that its session has been taken over
        return record
    except BaseException:
        # If it is not known yet, it will see that we are gone.
        if supervisor is not None:
            processes.end_tree(supervisor, grace=END_GRACE)
            _remove_all_of(order, supervisor)
            answer.unlink(missing_ok=True)
        raise
    finally:
        log.unlink(missing_ok=True)


def _log_of(order: Order, answer: Path) -> Path:
    return order.dirs.logs / f"{answer.stem}.supervisor.log"


def _remove_all_of(order: Order, supervisor: ProcessIdentity) -> None:
    """Whatever a supervisor has left, also where it was stopped in the middle of something."""
    guardian.sweep(
        order.dirs, run_uid="", spare_living=False, spare=lambda record: record.owner != supervisor
    )
    with allocating() as runtime:
        for kind in guardian.RESERVED:
            Reservations(runtime, kind).drop_of(supervisor)


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
    kinds = {kind.code: kind for kind in all_kinds()}
    return kinds.get(data["error"], StartFailedError)(data["message"], hint=data["hint"])


class Supervisor:
    """Hosts one session until it is to end."""

    def __init__(self, order: Order, starter: ProcessIdentity, answer: Path) -> None:
        self._order = order
        self._starter = starter
        self._answer = answer
        self._stop = threading.Event()
        self._opening = False
        self._manager = SessionManager(order.dirs, None, WORKER_PORTS)
        self._spawned: spawning.Spawned | None = None
        self._server: mcp.McpServer | None = None
        self._client: mcp.McpClient | None = None

    def stop(self) -> None:
        """Handler of signals: end the session, or the start of it wherever that is."""
        self._stop.set()
        if self._opening:
            self._opening = False
            raise _CalledOffError

    def open(self) -> LiveSession:
        """Start the browser and the MCP server on it; the session is ready when a tool call has worked.

        :raises PeaksError: one of them did not start.
        """
        self._opening = True
        watchdog = Watchdog(self._starter, self._starter_died)
        try:
            return self._open()
        except PortExhaustedError as error:
            ports = self._order.hosting.ports
            raise PortExhaustedError(
                f"port {ports.first} is taken" if ports.first == ports.last else error.message,
                hint="`peaks playwright ls --all` shows which sessions have one; --port N names another, "
                "and one outside of 8931-8949 is tried alone",
            ) from None
        finally:
            self._opening = False
            watchdog.stop()

    def _starter_died(self) -> None:
        if self._opening:
            processes.interrupt_main_thread()

    def _open(self) -> LiveSession:
        skip: set[int] = set()
        while True:
            session = self._manager.acquire(
                self._order.spec, self._order.hosting, skip=frozenset(skip), meanwhile=self._spawn_meanwhile
            )
            try:
                self._serve(session)
                return session
            except LostBindError:
                skip.add(session.record.port)
                session.release()
                if len(skip) >= BIND_ATTEMPTS:
                    raise PortExhaustedError(f"lost {len(skip)} ports in a row to other programs") from None

    def _spawn_server(self, session: LiveSession, target: Sequence[str] | Path) -> None:
        """Spawn the MCP server; from now on it ends with the session."""
        record = session.record
        self._spawned = mcp_process.spawn(
            self._order.mcp,
            target,
            port=record.port,
            env=child_environment(record.mark, Path(record.temp_dir)),
            log=self._server_log(session),
            output_dir=Path(record.temp_dir) / "output",
            notes=use.prepare(record),
        )
        session.hold("mcp", self._spawned)

    def _spawn_meanwhile(self, session: LiveSession) -> None:
        """Spawn the MCP server while the browser starts: node loads its code for longer than that takes."""
        if not self._order.mcp.command:
            self._spawn_server(session, _awaited(session))
        importlib.import_module("pytest_peaks.doors.mcp")  # another thing that there is time for now

    def _serve(self, session: LiveSession) -> None:
        from pytest_peaks.doors import mcp

        if session.endpoint is None:
            assert session.user_data_dir is not None, "a hosted session has a profile"
            target = mcp.with_own_browser(
                session.record.browser, session.user_data_dir, headed=self._order.spec.headed
            )
        else:
            target = mcp.on_endpoint(session.endpoint)
        if "mcp" in session.record.processes:
            mcp_process.tell(_awaited(session), target)
        else:
            self._spawn_server(session, target)
        assert self._spawned is not None, "it was spawned"
        self._server = server = mcp.wait_until_ready(self._spawned, self._server_log(session))
        use.forget(session.record)  # the start's own calls are none
        if session.endpoint is None:
            self._client = mcp.McpClient(server.url)
            self._client.call("browser_tabs", action="list")
        self._manager.note(session, status="ready", endpoints={**session.record.endpoints, "mcp": server.url})

    def _server_log(self, session: LiveSession) -> Path:
        return self._order.dirs.logs / f"{session.session_id}.mcp.log"

    def hand_over(self, content: Mapping[str, str]) -> bool:
        """Answer the start. False if it died before it took the answer."""
        write_atomically(self._answer, json.dumps(content))
        while self._answer.exists():
            # In this order: it takes the answer before it ends.
            if not self._starter.is_alive() and self._answer.exists():
                return False
            if self._stop.wait(processes.POLL):
                break
        return True

    def watch(self, session: LiveSession) -> None:
        """Return when the session is to end."""
        assert self._server is not None, "an open session has a server"
        idle = IdleClock(session, self._order.idle_timeout)
        direct = DirectUse(session)
        while not self._stop.wait(BEAT):
            direct.look()
            if not session.is_alive() or not self._server.is_alive() or idle.is_over():
                return
            if lasting.is_over(Path(session.record.temp_dir), self._order.until):
                return

    def close(self) -> None:
        """End everything and leave nothing."""
        if self._server is not None:
            self._server.spawned.pipe.close()
        self._manager.close()
        _remove_all_of(self._order, self._manager.owner)
        if not self._starter.is_alive():
            self._answer.unlink(missing_ok=True)
            _log_of(self._order, self._answer).unlink(missing_ok=True)


def _awaited(session: LiveSession) -> Path:
    """Where a session's MCP server is told its browser."""
    return Path(session.record.temp_dir) / "browser.json"


def main() -> None:
    """Entry point of the supervisor process; takes one JSON argument."""
    asked = json.loads(sys.argv[1])
    order = Order.from_json(asked["order"])
    supervisor = Supervisor(order, ProcessIdentity.from_json(asked["starter"]), Path(asked["answer"]))
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    with contextlib.suppress(OSError):
        os.chdir(order.dirs.root)
    session, failure = None, None
    try:
        try:
            session = supervisor.open()
        except _CalledOffError:
            pass
        except PeaksError as error:
            failure = {"error": error.code, "message": error.message, "hint": error.hint}
        if session is not None and supervisor.hand_over({"session": session.session_id}):
            supervisor.watch(session)
    finally:
        supervisor.close()
    if failure is not None:
        supervisor.hand_over(failure)
        supervisor.close()
