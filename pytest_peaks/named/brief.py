"""The brief that whoever gives out work hands to a worker who is to drive a browser.

Every command line in it is read and checked as `peaks cli` itself does, so that it names no command and
no option that the installed playwright-cli does not have.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_peaks.doors import cli_line
from pytest_peaks.named.names import check_session_name
from pytest_peaks.named.settings import NameRules

# What a worker needs most, as words after the session's name, and what each is for.
_USES = (
    (("snapshot",), "the page as a tree of roles and names, with a ref for each element"),
    (("click", "e5"), "click an element by its ref; a CSS selector or a locator will do as well"),
    (("fill", "e4", "user@example.com"), "fill a field"),
    (("--raw", "eval", "location.href"), "the bare value, for another program"),
    (("--json", "snapshot"), "the same as JSON"),
    (("screenshot",), "a picture, in the session's own folder; the answer names the file"),
)
# What a worker leaves to whoever gave out the work.
_NOT = ("close-all", "kill-all", "attach", "delete-data")


@dataclass(frozen=True, slots=True)
class Brief:
    """A brief and the two command lines that matter most in it."""

    text: str
    open_line: str
    close_line: str


def write_brief(name: str, url: str, rules: NameRules, auth: str | None = None) -> Brief:
    """The brief for a worker with session `name` that begins at `url`.

    :param auth: the saved login that the session is to be opened with.
    :raises InvalidNameError: the project does not allow that name.
    :raises CliUsageError: the installed playwright-cli lacks a command that the brief names.
    """
    check_session_name(name, rules)
    login = [f"--auth={auth}"] if auth else []
    opening, closing = _line(name, ["open", *login, url]), _line(name, ["close"])
    uses = [(_line(name, words), what) for words, what in _USES]
    width = max(len(line) for line, _ in uses)
    commands = cli_line.surface().commands
    kept_off = ", ".join(f"`{command}`" for command in _NOT if command in commands)
    text = "\n".join(
        [
            "## Browser",
            "",
            f"You have a browser of your own. Its session is called **{name}**. Open it first, and close it when",
            "you are done, also when the work failed:",
            "",
            f"    {opening}",
            f"    {closing}",
            "",
            "In between:",
            "",
            *(f"    {line:<{width}}  # {what}" for line, what in uses),
            "",
            "- Refs (`e5`) are of the last snapshot. Take a new one after each navigation and each change.",
            f"- `peaks cli --help` lists all {len(commands)} commands, `peaks cli --help click` explains one.",
            "- A command that fails exits with a status other than 0 and says what to do.",
            "",
            "Do not:",
            "",
            "- use another session's name, or give yours away: what is in a session is for one worker;",
            f"- run {kept_off}: they reach beyond your session, and are for whoever gave you this work;",
            "- add `--persistent` or `--profile`, unless this brief says so: in-memory profiles can't collide;",
            "- call `playwright-cli` itself or a browser tool of another kind: they don't know of your session.",
            "",
            "If `open` says SESSION_EXISTS or TOO_MANY_SESSIONS, stop and report what it says.",
        ]
    )
    return Brief(text, opening, closing)


def _line(name: str, words: Sequence[str]) -> str:
    """A command line for session `name`, checked."""
    from pytest_peaks.named.front import OWN_FLAGS

    cli_line.check(cli_line.parse(words, cli_line.surface().booleans), OWN_FLAGS)
    return shlex.join(["peaks", "cli", f"-s={name}", *words])
