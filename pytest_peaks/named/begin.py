"""``peaks cli``: the commands that begin a session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pytest_peaks.auth.model import State
from pytest_peaks.auth.state import Place
from pytest_peaks.auth.store import Store
from pytest_peaks.doors.cli_line import Args
from pytest_peaks.errors import CliUsageError, InvalidOptionError
from pytest_peaks.named import logins, sessions
from pytest_peaks.named.call import Call, print_json, print_text
from pytest_peaks.named.opening import open_session
from pytest_peaks.named.sessions import Named
from pytest_peaks.named.settings import read_settings
from pytest_peaks.named.wish import Wish


def open_(call: Call) -> int:
    """``open [url]``: a browser of its own, blank, or logged in before its first navigation."""
    name = call.name()
    auth, executable, profile = call.text("auth"), call.text("executable"), call.text("profile")
    login = _login(call, auth)
    device = call.text("device")
    executable = executable or os.environ.get("PLAYWRIGHT_MCP_EXECUTABLE_PATH")
    wish = Wish(
        browser=call.text("browser") or os.environ.get("PLAYWRIGHT_MCP_BROWSER") or None,
        executable=Path.cwd() / Path(executable).expanduser() if executable else None,
        headed=call.args.get("headed") is True,
        persistent=call.args.get("persistent") is True,
        profile=Path.cwd() / Path(profile).expanduser() if profile else None,
        config=_config(call.text("config")),
        flags=(
            *([f"--device={device}"] if device else []),
            *(["--mobile"] if call.args.get("mobile") else []),
        ),
        idle_timeout=_idle_timeout(call),
    )
    session = open_session(call.dirs, read_settings(call.dirs.root), name, wish)
    return _first(call, session, {"_": ["goto", call.word(1) or "about:blank"]}, login)


def attach(call: Call) -> int:
    """``attach``: a session that is a guest in a browser that is there already, and shares all that is in it."""
    name = call.name()
    given = {key: call.args[key] for key in ("cdp", "endpoint", "extension") if call.args.get(key)}
    title = call.word(1)
    if len(given) + (title is not None) != 1:
        raise CliUsageError(
            "attach takes one of [name], --cdp, --endpoint and --extension",
            hint="peaks cli -s=NAME attach --cdp=http://127.0.0.1:9222",
        )
    key, value = ("endpoint", title) if title is not None else next(iter(given.items()))
    if key == "extension":
        wish = Wish(browser=value if isinstance(value, str) else None, attach=key)
    else:
        wish = Wish(attach=f"{key}={value}", idle_timeout=_idle_timeout(call))
    session = open_session(call.dirs, read_settings(call.dirs.root), name, wish)
    return _first(call, session, {"_": ["snapshot"], "filename": "<auto>"}, None)


def _login(call: Call, auth: str | None) -> tuple[Place, State] | None:
    """A saved login, read before anything is started."""
    if auth is None:
        return None
    place = Place(Store(call.dirs).path(auth), auth)
    return place, place.read(call.dirs)


def _first(call: Call, session: Named, first: Args, login: tuple[Place, State] | None) -> int:
    """Log in, and run the first command of a new session. If that can't be done at all, the session ends."""
    try:
        if login is not None:
            logins.load(session, *login, blank=True)
        call.args.pop("raw", None)  # of a new session playwright-cli always says that it is there
        answer = call.ask(session, first)
    except BaseException:
        sessions.close(session)
        raise
    pid, attached = session.record.owner.pid, session.facts.attached
    if call.as_json:
        endpoint = {"endpoint": attached} if attached else {}
        print_json({"session": session.name, "pid": pid, **endpoint, "result": _decoded(answer.text)})
    elif attached:
        print_text(
            f"### Session `{session.name}` created, attached to `{attached}`.\n"
            f"Run commands with: peaks cli -s={session.name} <command>\n\n{answer.text}"
        )
    else:
        print_text(f"### Browser `{session.name}` opened with pid {pid}.\n{answer.text}")
    return 1 if answer.is_error else 0


def _idle_timeout(call: Call) -> str | None:
    given = call.text("idle-timeout")
    if given is not None and not given.isdecimal():
        raise CliUsageError(f"--idle-timeout={given} is no number of milliseconds", hint="0 is for never")
    return given


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
