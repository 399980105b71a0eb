"""``peaks cli -s=NAME …``: a guarded front to playwright-cli.

What drives a page goes to the session's daemon as it is, and comes back as playwright-cli would print it.
What is about sessions (open, close, list, …) is done here, for the sessions of this project alone.

No click here: these commands take whatever playwright-cli takes, and one of them is to cost no more than
that itself does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.doors import cli_client, cli_line
from pytest_peaks.doors.cli_client import Answer
from pytest_peaks.doors.cli_line import Args
from pytest_peaks.errors import (
    CliNotOpenError,
    CliUsageError,
    InvalidNameError,
    InvalidOptionError,
    NameMissingError,
    PeaksError,
    ReapIncompleteError,
)
from pytest_peaks.named import sessions
from pytest_peaks.named.sessions import Named
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs, project_root

SCHEMA = 1
OWN_FLAGS = ("project", "auth", "executable")
# Commands that need no session's name.
NAMELESS = frozenset({"list", "close-all", "kill-all", "install", "install-browser", "show"})
_OWN_HELP = """
Options of `peaks cli` itself:
  -s=<session>                the session's name: PREFIX-…, see `peaks name`
  --project=<path>            a folder of the project; default: the working directory
  --auth=<name>               open: log in from a saved login before the first navigation
  --executable=<path>         open: the browser's executable"""


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Every failure ends here."""
    as_json = "--json" in (list(arguments[: list(arguments).index("--")]) if "--" in arguments else arguments)
    try:
        return Front(arguments).run()
    except KeyboardInterrupt:
        return _fail("INTERRUPTED", "interrupted", "", 130, as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads it any more
        return 1
    except PeaksError as error:
        if os.environ.get("PEAKS_DEBUG"):
            import traceback

            traceback.print_exc(file=sys.stderr)
        return _fail(error.code, error.message, error.hint, error.exit_code, as_json=as_json)


def _fail(code: str, message: str, hint: str, exit_code: int, *, as_json: bool) -> int:
    if as_json:
        # `isError` is how playwright-cli's own object says it.
        _print_json(
            {"schema": SCHEMA, "ok": False, "action": "cli", "isError": True}
            | {"error": code, "message": message, "hint": hint}
        )
    else:
        print(f"{code}: {message}", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
    return exit_code


def _print_json(content: object) -> None:
    _print(json.dumps(content, indent=2, ensure_ascii=False))


def _print(text: str) -> None:
    data = (text + "\n").encode("utf-8", errors="surrogateescape")
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


@dataclass
class Front:
    """One call of ``peaks cli``."""

    arguments: Sequence[str]

    def run(self) -> int:
        surface = cli_line.surface()
        self.args = args = cli_line.parse(self.arguments, surface.booleans)
        if args.get("version") or args.get("v"):
            return self._original(["--version"])
        name = args["_"][0] if args["_"] else ""
        if args.get("help") or args.get("h") or not name:
            command = surface.commands.get(name)
            text = command.help if command else f"peaks cli - playwright-cli, guarded\n\n{surface.help}"
            text = text.replace("playwright-cli", "peaks cli")
            own = _OWN_HELP if command is None or name == "open" else ""
            self._say(text + ("\n" + own if own else ""), help=text)
            return 0
        self.command = cli_line.check(args, OWN_FLAGS)
        self.dirs = self._project()
        own_ways: dict[str, Callable[[], int]] = {
            "open": self._open,
            "attach": self._attach,
            "list": self._list,
            "close": self._close,
            "detach": self._detach,
            "close-all": self._close_all,
            "kill-all": self._kill_all,
            "delete-data": self._delete_data,
            "state-save": self._state_save,
            "state-load": self._state_load,
        }
        if name in own_ways:
            return own_ways[name]()
        if name in NAMELESS:
            return self._original([*self.arguments])
        return self._drive()

    # What is asked for

    @property
    def _as_json(self) -> bool:
        return bool(self.args.get("json"))

    def _project(self) -> ProjectDirs:
        given = self.args.pop("project", None)
        if given is None:
            return ProjectDirs.locate(project_root(Path.cwd()))
        if not isinstance(given, str) or not Path(given).is_dir():
            raise InvalidOptionError(f"--project={given} is no folder", hint="name a folder of the project")
        return ProjectDirs.locate(project_root(Path(given)))

    def _name(self) -> str:
        given = self.args.get("session") or os.environ.get("PLAYWRIGHT_CLI_SESSION")
        if not isinstance(given, str) or not given:
            raise NameMissingError(
                f"{self.command.name} needs a session's name",
                hint=f"peaks cli -s=NAME {self.command.name} …; `peaks name PREFIX SLUG` makes names",
            )
        if self.command.name not in ("open", "attach"):
            try:
                check_name(sessions.record_id(given))
            except InvalidNameError:
                raise InvalidNameError(
                    f"{given[:60]!r} is no session's name", hint="`peaks cli list` shows those that are open"
                ) from None
        return given

    def _session(self) -> Named:
        """The open session that is meant.

        :raises CliNotOpenError: there is none of that name.
        """
        name = self._name()
        session = sessions.find(self.dirs, name)
        if session is not None and session.state == "open":
            return session
        state = f" ({session.state})" if session is not None else ""
        raise CliNotOpenError(
            f"The browser '{name}' is not open{state}, please run open first",
            hint=f"peaks cli -s={name} open [url]",
        )

    def _text(self, key: str) -> str | None:
        value = self.args.pop(key, None)
        if value is None or value is False:
            return None
        if not isinstance(value, str):
            raise CliUsageError(f"--{key} needs one value", hint=f"--{key}=…")
        return value

    # What is said

    def _say(self, text: str, **fields: Any) -> None:
        if self._as_json:
            _print_json(fields)
        elif text:
            _print(text)

    def _answer(self, answer: Answer) -> int:
        """Print what the daemon said as playwright-cli does; the exit code."""
        if answer.refused:
            raise cli_client.failure(answer, self.command.name)
        if answer.text:
            _print(answer.text)
        return 1 if answer.is_error else 0

    # What is done

    def _drive(self) -> int:
        for key in OWN_FLAGS:
            if self.args.pop(key, None) is not None:
                raise CliUsageError(f"--{key} is for open", hint="peaks cli --help")
        return self._answer(self._ask(self._session(), self.args))

    def _ask(self, session: Named, args: Args) -> Answer:
        return cli_client.ask(
            session.socket,
            args,
            cwd=os.getcwd(),  # noqa: PTH109 - text is what goes over the wire
            raw=bool(self.args.get("raw")) or self.command.always_raw,
            as_json=self._as_json,
        )

    def _open(self) -> int:
        from pytest_peaks.named.opening import Wish, open_session
        from pytest_peaks.named.settings import read_settings

        name = self._name()
        auth, executable, profile = self._text("auth"), self._text("executable"), self._text("profile")
        login = self._login(auth)
        flags = [
            f"--{key}={self.args[key]}" for key in ("config", "device") if isinstance(self.args.get(key), str)
        ]
        if self.args.get("mobile"):
            flags.append("--mobile")
        wish = Wish(
            browser=self._text("browser"),
            executable=Path(executable).expanduser().absolute() if executable else None,
            headed=self.args.get("headed") is True,
            persistent=self.args.get("persistent") is True,
            profile=Path.cwd() / Path(profile).expanduser() if profile else None,
            config=_config(config),
            flags=tuple(flags),
            idle_timeout=self._idle_timeout(),
        )
        session = open_session(self.dirs, read_settings(self.dirs.root), name, wish)
        url = self.args["_"][1] if len(self.args["_"]) > 1 else "about:blank"
        return self._first(session, ["goto", url], login)

    def _attach(self) -> int:
        from pytest_peaks.named.opening import Wish, open_session
        from pytest_peaks.named.settings import read_settings

        name = self._name()
        given = {key: self.args[key] for key in ("cdp", "endpoint", "extension") if self.args.get(key)}
        title = self.args["_"][1] if len(self.args["_"]) > 1 else None
        if title is not None:
            given["endpoint"] = title if "endpoint" not in given else given.pop("endpoint")
        if len(given) != 1 or (title is not None and given.get("endpoint") != title):
            raise CliUsageError(
                "attach takes one of [name], --cdp, --endpoint and --extension",
                hint="peaks cli -s=NAME attach --cdp=http://127.0.0.1:9222",
            )
        [(key, value)] = given.items()
        channel = value if key == "extension" and isinstance(value, str) else None
        attach = key if key == "extension" else f"{key}={value}"
        wish = Wish(browser=channel, attach=attach, idle_timeout=self._idle_timeout())
        session = open_session(self.dirs, read_settings(self.dirs.root), name, wish)
        return self._first(session, ["snapshot"], None)

    def _idle_timeout(self) -> str | None:
        given = self._text("idle-timeout")
        if given is not None and not given.isdecimal():
            raise CliUsageError(f"--idle-timeout={given} is no number of milliseconds", hint="0 is for never")
        return given

    def _login(self, auth: str | None) -> Path | None:
        """The file of a saved login, checked before anything is started."""
        if auth is None:
            return None
        from pytest_peaks.auth import state

        state.read_state(self.dirs, auth)
        return state.state_path(self.dirs, auth)

    def _first(self, session: Named, first: list[str], login: Path | None) -> int:
        """Log in, and run the first command of a new session. What goes wrong there ends it."""
        try:
            if login is not None:
                self._load(session, login)
            args: Args = {"_": first}
            if first == ["snapshot"]:
                args["filename"] = "<auto>"
            answer = self._ask(session, args)
        except BaseException:
            sessions.close(session)
            raise
        text = answer.text
        pid = session.record.owner.pid
        if self._as_json:
            endpoint = {"endpoint": session.facts.attached} if session.facts.attached else {}
            _print_json({"session": session.name, "pid": pid, **endpoint, "result": _decoded(text)})
        elif self.args.get("raw"):
            _print(text)
        else:
            head = f"### Browser `{session.name}` opened with pid {pid}."
            if session.facts.attached:
                head = (
                    f"### Session `{session.name}` created, attached to `{session.facts.attached}`.\n"
                    f"Run commands with: peaks cli -s={session.name} <command>\n"
                )
            _print(f"{head}\n{text}")
        return 1 if answer.is_error else 0

    def _list(self) -> int:
        everywhere = self.args.get("all") is True
        found = sessions.look_everywhere(self.dirs) if everywhere else sessions.look(self.dirs)
        blocks = []
        for session in found:
            facts = session.facts
            lines = [f"- {session.name}:", f"  - status: {session.state}"]
            if facts.attached:
                lines.append(f"  - browser-type: {session.record.browser} (attached)")
            else:
                lines.append(f"  - browser-type: {session.record.browser}")
                lines.append(f"  - user-data-dir: {session.record.user_data_dir or '<in-memory>'}")
                lines.append(f"  - headed: {str(facts.headed).lower()}")
            lines.append(f"  - pid: {session.record.owner.pid}")
            if everywhere:
                lines.append(f"  - project: {session.dirs.root}")
            blocks.append("\n".join(lines))
        text = "\n".join(["### Browsers", *blocks] if blocks else ["  (no browsers)"])
        self._say(text, browsers=[_row(session) for session in found])
        return 0

    def _close(self) -> int:
        name = self._name()
        session = sessions.find(self.dirs, name)
        state = session.state if session is not None else ""
        was_open = session is not None and sessions.close(session)
        if was_open:
            text = f"Browser '{name}' closed\n"
        elif state == "dead":
            text = f"Browser '{name}' is not open: its daemon was gone; what it left is cleared away."
        else:
            text = f"Browser '{name}' is not open." if state != "starting" else f"Browser '{name}' closed\n"
        self._say(text, session=name, status="closed" if was_open or state == "starting" else "not-open")
        return 0

    def _detach(self) -> int:
        name = self._name()
        session = sessions.find(self.dirs, name)
        if session is not None and not session.facts.attached and session.state == "open":
            raise CliUsageError(
                f"session '{name}' was not attached", hint=f"`peaks cli -s={name} close` stops it"
            )
        was_open = session is not None and sessions.close(session)
        text = f"Browser '{name}' detached\n" if was_open else f"Browser '{name}' is not attached."
        self._say(text, session=name, status="detached" if was_open else "not-attached")
        return 0

    def _close_all(self) -> int:
        closed, failed = [], []
        for session in sessions.look(self.dirs):
            if session.state == "elsewhere":
                continue
            try:
                if sessions.close(session):
                    closed.append(session.name)
            except PeaksError as error:
                failed.append(error.message)
        if failed:
            raise ReapIncompleteError("; ".join(failed), hint="peaks cli kill-all")
        text = "\n".join(f"Browser '{name}' closed" for name in closed)
        self._say(text or "No browsers open.", closed=closed)
        return 0

    def _kill_all(self) -> int:
        """End by force every named session of this project, by record and identity; nobody else's."""
        pids, failed = [], []
        for session in sessions.look(self.dirs):
            if session.state == "elsewhere":
                continue
            try:
                if session.record.owner.is_alive():
                    pids.append(session.record.owner.pid)
                sessions.end(session)
            except PeaksError as error:
                failed.append(error.message)
        if failed:
            raise ReapIncompleteError("; ".join(failed), hint="`peaks reap` tries it again")
        lines = [f"Killed daemon process {pid}" for pid in pids]
        lines.append(
            f"Killed {len(pids)} daemon process{'' if len(pids) == 1 else 'es'}."
            if pids
            else "No daemon processes found."
        )
        self._say("\n".join(lines), killed=len(pids), pids=pids)
        return 0

    def _delete_data(self) -> int:
        name = self._name()
        deleted = sessions.delete_data(self.dirs, name)
        text = (
            f"Deleted user data for browser '{name}'."
            if deleted
            else f"No user data found for browser '{name}'."
        )
        self._say(text, session=name, deleted=deleted)
        return 0

    def _state_save(self) -> int:
        """Save through our own store: mode 0600, whole or not at all, never through a link."""
        import datetime

        from pytest_peaks.auth import state

        session = self._session()
        words = self.args["_"]
        if len(words) > 1:
            path = state.place(self.dirs, words[1])
        else:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")
            path = session.artifacts / f"storage-state-{now[:-3]}Z.json"
        part = Path(session.record.temp_dir) / f"state-{os.getpid()}.json"
        try:
            answer = cli_client.ask(
                session.socket, {"_": ["state-save", str(part)]}, cwd=session.record.temp_dir
            )
            if answer.is_error:
                raise cli_client.failure(answer, "state-save")
            state.write_state_file(path, state.read_state_file(part))
        finally:
            part.unlink(missing_ok=True)
        link = f"- [Storage state]({path})"
        text = link if self.args.get("raw") else f"### Result\n{link}"
        self._say(text, result=link, file=str(path))
        return 0

    def _state_load(self) -> int:
        from pytest_peaks.auth import state

        session = self._session()
        words = self.args["_"]
        if len(words) < 2:
            raise CliUsageError(
                "state-load needs a name or a file", hint="peaks cli -s=NAME state-load admin"
            )
        self._load(session, state.place(self.dirs, words[1]))
        self._say("", session=session.name, loaded=True)
        return 0

    def _load(self, session: Named, path: Path) -> None:
        from pytest_peaks.auth import state

        with state.handed_over(path, Path(session.record.temp_dir)) as part:
            args: Args = {"_": ["state-load", str(part)]}
            answer = cli_client.ask(session.socket, args, cwd=session.record.temp_dir)
            if answer.is_error:
                raise state.refused(path, cli_client.failure(answer, "state-load"))

    def _original(self, arguments: Sequence[str]) -> int:
        """Run the wheel's own playwright-cli for what is about no session."""
        from pytest_peaks.doors.bundled import driver_command

        own = tuple(f"--{key}" for key in OWN_FLAGS)
        words = [word for word in arguments if not word.startswith(own)]
        return subprocess.run([*driver_command(), "cli", *words], check=False).returncode


def _config(given: str | None) -> Path | None:
    """The configuration file of playwright-cli that counts, as for itself: the one that is named, or the folder's."""
    if given is not None:
        path = Path.cwd() / Path(given).expanduser()
        if not path.is_file():
            raise InvalidOptionError(
                f"--config={given} is no file", hint="name a configuration of playwright-cli"
            )
        return path
    usual = Path.cwd() / ".playwright" / "cli.config.json"
    return usual if usual.is_file() else None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _row(session: Named) -> dict[str, Any]:
    """One session with playwright-cli's own keys, and ours."""
    record, facts = session.record, session.facts
    return {
        "name": session.name,
        "workspace": str(session.dirs.root),
        "status": session.state,
        "browserType": record.browser,
        "userDataDir": record.user_data_dir or None,
        "headed": facts.headed,
        "persistent": facts.persistent,
        "attached": bool(facts.attached),
        "compatible": True,
        "version": facts.version,
        "pid": record.owner.pid,
        "browserPid": record.pid,
        "startedAt": record.started_at,
        "artifacts": str(session.artifacts),
    }
