"""One call of ``peaks cli``: what was asked for, and how it answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pytest_peaks.doors import cli_client
from pytest_peaks.doors.cli_client import Answer
from pytest_peaks.doors.cli_line import Args, Command
from pytest_peaks.errors import (
    CliNotOpenError,
    CliUsageError,
    InvalidNameError,
    InvalidOptionError,
    NameMissingError,
)
from pytest_peaks.named import sessions
from pytest_peaks.named.sessions import Named
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs, project_root


def print_json(content: object) -> None:
    print_text(json.dumps(content, indent=2, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print what may have bytes that the terminal's encoding lacks."""
    sys.stdout.buffer.write((text + "\n").encode("utf-8", errors="surrogateescape"))
    sys.stdout.flush()


class Call:
    """One call of ``peaks cli``.

    :ivar args: the command line as playwright-cli reads it, without what is ours.
    :ivar command: the command that it names.
    :ivar as_json: whether ``--json`` was given.
    """

    def __init__(self, args: Args, command: Command) -> None:
        self.args = args
        self.command = command
        self.as_json = bool(args.get("json"))
        self.dirs = self._project()

    def _project(self) -> ProjectDirs:
        given = self.text("project")
        if given is None:
            return ProjectDirs.locate(project_root(Path.cwd()))
        if not Path(given).is_dir():
            raise InvalidOptionError(f"--project={given} is no folder", hint="name a folder of the project")
        return ProjectDirs.locate(project_root(Path(given)))

    def text(self, key: str) -> str | None:
        """Take an option that has a value out of `args`; None if it is not there."""
        value = self.args.pop(key, None)
        if value is None or value is False:
            return None
        if not isinstance(value, str):
            raise CliUsageError(f"--{key} needs one value", hint=f"--{key}=…")
        return value

    def word(self, place: int) -> str | None:
        """The positional argument at `place`, from 1; None if there is none."""
        words = self.args["_"]
        return words[place] if place < len(words) else None

    def name(self) -> str:
        """The name of the session that is meant; that of a new one is not checked here.

        :raises NameMissingError: none is given.
        :raises InvalidNameError: no session can have it.
        """
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

    def session(self) -> Named:
        """The open session that is meant.

        :raises CliNotOpenError: there is none of that name.
        """
        name = self.name()
        session = sessions.find(self.dirs, name)
        if session is not None and session.state == "open":
            return session
        state = f" ({session.state})" if session is not None else ""
        raise CliNotOpenError(
            f"The browser '{name}' is not open{state}, please run open first",
            hint=f"peaks cli -s={name} open [url]",
        )

    def ask(self, session: Named, args: Args) -> Answer:
        """Have the session's daemon run a command."""
        return cli_client.ask(
            session.socket,
            args,
            cwd=os.getcwd(),  # noqa: PTH109 - text is what goes over the wire
            raw=bool(self.args.get("raw")) or self.command.always_raw,
            as_json=self.as_json,
        )

    def say(self, text: str, **fields: Any) -> None:
        """Print `text`, or `fields` as one JSON object."""
        if self.as_json:
            print_json(fields)
        elif text:
            print_text(text)
