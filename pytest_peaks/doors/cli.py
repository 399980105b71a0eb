"""The CLI door: playwright-cli on the browser of a test's session.

Its daemon comes with the Python wheel of Playwright. It is attached over CDP to the session's browser,
in a scope of its own (workspace, registry, sockets), and ends with its owner: it reads the end of a
pipe that the owner holds. So nothing that it does closes the browser, and nobody else's playwright-cli
can see it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.auth import through_cli
from pytest_peaks.auth.state import Place
from pytest_peaks.doors import bundled, cli_client, cli_line
from pytest_peaks.doors.cli_client import Answer
from pytest_peaks.doors.cli_line import Args, Command
from pytest_peaks.doors.cli_refs import CATCH_UP_TIMEOUT, Documents, tabs_in
from pytest_peaks.doors.cli_snapshot import Node, read_snapshot
from pytest_peaks.errors import CliUsageError, PeaksError, StartFailedError
from pytest_peaks.session import processes, spawning
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.startup import log_tail

# Listening after 0.4 s on an idle machine.
LISTEN_TIMEOUT = 60.0
# What the daemon calls the session; its scope is private, so any name will do.
NAME = "test"
# Commands about sessions. The session of a test is the test's, and is opened and closed with it.
NOT_HERE = frozenset(
    {"open", "attach", "close", "detach", "list", "close-all", "kill-all", "delete-data", "show"}
    | {"install", "install-browser"}
)
# Commands whose effects end with the tab they work on, so that the next test can have the same daemon.
# Others leave something in it: routes, emulation, a recording.
HARMLESS = frozenset(
    {"goto", "go-back", "go-forward", "reload", "resize", "snapshot", "find", "eval", "screenshot", "pdf"}
    | {"type", "click", "dblclick", "fill", "drag", "drop", "hover", "select", "upload", "check", "uncheck"}
    | {"press", "keydown", "keyup", "mousemove", "mousedown", "mouseup", "mousewheel", "generate-locator"}
    | {"tab-list", "tab-new", "tab-close", "tab-select", "state-load", "state-save", "console"}
    | {"requests", "request", "request-headers", "request-body", "response-headers", "response-body"}
    | {"cookie-list", "cookie-get", "cookie-set", "cookie-delete", "cookie-clear"}
    | {f"{store}storage-{verb}" for store in ("local", "session") for verb in ("list", "get", "set")}
    | {f"{store}storage-{verb}" for store in ("local", "session") for verb in ("delete", "clear")}
)
# Commands that show refs to whoever calls them.
SHOWING_REFS = frozenset({"snapshot", "find"})
# Commands about tabs, of which others open and close some.
ABOUT_TABS = frozenset({"tab-list", "tab-select", "tab-close"})


@dataclass(frozen=True, slots=True)
class CliDaemon:
    """A running daemon: its process with its stdin, and the socket that it listens on."""

    spawned: spawning.Spawned
    socket: str

    def is_alive(self) -> bool:
        return self.spawned.identity.is_alive()

    def knows_tabs(self, number: int) -> bool:
        """Whether it has come to know that the last test's tabs are gone and this one's are there."""

        def look(command: str) -> Answer:
            return cli_client.ask(self.socket, {"_": [command]}, cwd="/", raw=True, timeout=CATCH_UP_TIMEOUT)

        try:
            # The browser's answer comes after its word of the tabs that are gone; else one of them might be counted.
            look("cookie-list")
            return processes.wait_until(lambda: tabs_in(look("tab-list")) == number, CATCH_UP_TIMEOUT)
        except PeaksError:
            return False


def start(endpoint: str, folder: Path, env: Mapping[str, str], *, settle: int) -> CliDaemon:
    """Start a daemon on the browser at a CDP WebSocket URL and wait until it listens.

    :param folder: its scope; made.
    :param settle: how long an action waits for what it set off, in milliseconds.
    :raises StartFailedError: it exited, or did not listen in time; with the end of its log.
    """
    workspace = folder / "w"
    (workspace / ".playwright").mkdir(parents=True)
    environment = bundled.cli_scope(env, folder, folder / "output")
    # A user's own settings are for a user's own sessions.
    environment[bundled.GLOBAL_CONFIG] = str(workspace)
    environment["PLAYWRIGHT_MCP_TIMEOUT_SETTLE"] = str(settle)
    node = bundled.driver_command()[0]
    into_scope = f"{bundled.STDIN_GUARD};process.chdir({json.dumps(str(workspace))})"
    command = [node, "--import", into_scope, str(bundled.cli_daemon_script()), NAME, f"--cdp={endpoint}"]
    log = folder / "cli.log"
    try:
        spawned = spawning.spawn_held(command, environment, log)
    except OSError as error:
        raise StartFailedError(
            f"the CLI's daemon {node} cannot be run: {error.strerror or error}",
            hint="`peaks doctor` says what is wrong with this machine",
        ) from error
    found: list[str] = []

    def listens() -> bool:
        alive = spawned.identity.is_alive()  # asked first, so that its last words are in the log
        socket = cli_client.socket_of(folder / "d", NAME)
        if socket is not None:
            found.append(socket)
        return bool(found) or not alive

    try:
        in_time = processes.wait_until(listens, LISTEN_TIMEOUT)
        if not found:
            what = (
                f"did not listen after {LISTEN_TIMEOUT:.0f} s" if not in_time else "exited before it listened"
            )
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            raise StartFailedError(  # noqa: TRY301 - what was spawned is ended below
                f"the CLI's daemon {what}{log_tail(text)}",
                hint="`peaks doctor` says what is wrong with this machine",
            )
    except BaseException:
        spawned.pipe.close()
        processes.end_tree(spawned.identity, grace=0.0)
        processes.reap_child(spawned.identity.pid)
        raise
    return CliDaemon(spawned, found[0])


class PeaksCli:
    """playwright-cli on a test's session: ``cli("click", "e5")`` gives what the command would print.

    Positional arguments are words of the command line, options can be given by name:
    ``cli("screenshot", full_page=True)``. Files that get no name are removed with the session; a
    relative name starts at the working directory.

    :param socket: the daemon's.
    :param after_call: called after every command.
    :param meanwhile: called again and again while a command is under way.
    :param tabs: how many tabs the test has, which the daemon learns of a moment later.
    """

    def __init__(
        self,
        socket: str,
        dirs: ProjectDirs,
        scratch: Path,
        *,
        after_call: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
        tabs: Callable[[], int] | None = None,
    ) -> None:
        self._socket = socket
        self._dirs = dirs
        self._scratch = scratch
        self._after_call = after_call
        self._meanwhile = meanwhile
        self._tabs = tabs
        self._documents = Documents(self._look)
        self.commands: set[str] = set()

    def __repr__(self) -> str:
        return "<PeaksCli>"

    def __call__(self, command: str, /, *arguments: object, **options: Any) -> str:
        """Run a command; gives what playwright-cli would print.

        :raises CliUsageError: it does not take such arguments, or is about sessions.
        :raises StaleRefError: a ref is of a page that is gone; take a new snapshot.
        :raises CliFailedError: the command failed; with its own text.
        :raises CliNotOpenError: the daemon is gone.
        """
        return self._run(command, arguments, options)

    def raw(self, command: str, /, *arguments: object, **options: Any) -> str:
        """As a call, with the bare value and nothing around it (``--raw``)."""
        return self._run(command, arguments, {**options, "raw": True})

    def json(self, command: str, /, *arguments: object, **options: Any) -> Any:
        """As a call, decoded from ``--json``."""
        return json.loads(self._run(command, arguments, {**options, "json": True}))

    def snapshot(self, target: str | None = None, depth: int | None = None) -> Node:
        """The accessibility tree of the page, or of one element, with refs for commands.

        :param target: a ref or a selector.
        :param depth: how many levels.
        """
        options = {} if depth is None else {"depth": depth}
        return read_snapshot(self._run("snapshot", (target,) if target else (), {**options, "json": True}))

    def state_save(self, name: str | os.PathLike[str]) -> Path:
        """Save the login under a name, or in a file; gives the file (mode 0600).

        More than playwright-cli's own: IndexedDB, OPFS, passkeys and sessionStorage as well.

        :param name: a name is a saved login of the project (``.peaks/auth``), a path a file.
        :raises InvalidStateError: the file is a link or no file.
        """
        place = Place.of(self._dirs, name)
        self._documents.settled("eval", "1")
        place.write(self._dirs, through_cli.capture(self._value_of, name=place.name).state)
        return place.path

    def state_load(self, name: str | os.PathLike[str]) -> None:
        """Replace cookies and storage by what :meth:`state_save` saved; reload to let the page see it.

        sessionStorage comes along where the tab is blank.

        :raises StateNotFoundError: there is nothing of that name.
        :raises InvalidStateError: it is no storage state, or the browser refuses it.
        """
        place = Place.of(self._dirs, name)
        state = place.read(self._dirs)
        self._documents.settled("eval", "1")
        try:
            through_cli.replay(
                self._value_of, state, self._scratch, blank=through_cli.is_blank(self._value_of)
            )
        except PeaksError as error:
            raise place.refused(error) from None
        finally:
            if self._after_call is not None:
                self._after_call()

    def _value_of(self, words: list[str]) -> str:
        """The bare value that a command line gives."""
        answer = self._look(*words)
        if answer.is_error:
            raise cli_client.failure(answer, words[0])
        return answer.text

    def _run(self, command: str, arguments: tuple[object, ...], options: Mapping[str, Any]) -> str:
        surface = cli_line.surface()
        args = cli_line.parse([str(command), *map(_word, arguments)], surface.booleans)
        for key, value in options.items():
            args[key.replace("_", "-")] = value if isinstance(value, bool) else _option(value)
        known = cli_line.check(args)
        if known.name in NOT_HERE:
            raise CliUsageError(
                f"{known.name} is not for a test's session, which opens and closes with the test",
                hint="`peaks cli` has it, for sessions of a terminal",
            )
        if "session" in args:
            raise CliUsageError("-s is not for a test's session: there is no other", hint="leave it out")
        if known.always_raw:
            args["raw"] = True
        if known.name in ("state-save", "state-load") and len(args["_"]) == 2:
            return self._state(known.name, args)
        return self._checked(known.name, args, known).text

    def _state(self, command: str, args: Args) -> str:
        name = args["_"][1]
        if command == "state-save":
            said = f"- [Storage state]({self.state_save(name)})"
        else:
            self.state_load(name)
            said = f"Storage state restored from {Place.of(self._dirs, name).path}"
        if args.get("json"):
            return json.dumps({"result": said})
        return said if args.get("raw") else f"### Result\n{said}"

    def _checked(self, name: str, args: Args, command: Command | None = None) -> Answer:
        if command is not None:
            self._documents.check(command, args["_"][1:])
        # A context of its own lives as long as the daemon.
        self.commands.add(f"{name} --isolated-context" if "isolated-context" in args else name)
        if name in SHOWING_REFS:
            self._documents.remember()
        elif name in ABOUT_TABS and self._tabs is not None:
            self._documents.wait_for_tabs(self._tabs())
        elif command is not None and not name.startswith(("cookie-", "dialog-", "state-", "tab-")):
            self._documents.settled("eval", "1")
        answer = self._ask(args)
        if self._after_call is not None:
            self._after_call()
        if answer.is_error:
            raise cli_client.failure(answer, name)
        return answer

    def _look(self, *words: str) -> Answer:
        return self._ask({"_": list(words), "raw": True})

    def _ask(self, args: Args) -> Answer:
        return cli_client.ask(
            self._socket,
            args,
            cwd=os.getcwd(),  # noqa: PTH109 - text is what goes over the wire
            raw=bool(args.get("raw")),
            as_json=bool(args.get("json")),
            meanwhile=self._meanwhile,
        )


def _word(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise CliUsageError(f"{value!r} is no word of a command line", hint="give text, a number or a path")
    return str(value)


def _option(value: object) -> str | list[str]:
    return [_word(each) for each in value] if isinstance(value, list | tuple) else _word(value)
