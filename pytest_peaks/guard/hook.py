"""The hook itself: an event of a harness on stdin, its answer on stdout, exit code 0.

When it says what:

- A command that calls no CLI, and one that calls it rightly beside other programs: nothing. Silence
  leaves the harness's own permissions in force; an explicit "allow" would skip them, for everything
  else on that line as well.
- A command that is nothing but right calls and a few harmless words (`echo`, `sleep`, `cd`): "allow".
- A call that is wrong, and whatever can't be told: "deny", with the reason, its code and, where there
  is one, the corrected command.

A harness takes a hook that fails for one that has no objection. So this one does not fail: what it
cannot read, or does not expect, is denied where the CLI is mentioned. It guards against mistakes, not
against somebody who hides what he does: that is for the places where sessions are made.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_peaks.errors import CannotTellError, MalformedEventError, PeaksError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_peaks.guard.rules import Verdict

SHELL_TOOLS = ("bash", "shell")
# Far more than any event; what is longer is no event.
LARGEST_EVENT = 64 * 1024 * 1024
USAGE_EXIT = 2

USAGE = """Usage: peaks guard [--explain | --config]

  Read a harness's event from stdin and say whether its command may run.

  --explain  Answer for every command, with all that was found.
  --config   Print the settings that make a harness ask.
"""
CONFIG = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "peaks guard", "timeout": 10}]}
        ]
    }
}


@dataclass(frozen=True, slots=True)
class Event:
    """What the harness asks about.

    :ivar command: the shell command; None if another tool is to be used.
    :ivar cwd: where it will run; empty for the hook's own working directory.
    :ivar name: of the event, which the answer repeats.
    """

    command: str | None
    cwd: str
    name: str


def main(arguments: list[str]) -> int:
    """``peaks guard`` with these arguments; returns the exit code."""
    options = set(arguments)
    if options & {"--help", "-h"}:
        print(USAGE, end="")
        return 0
    if options - {"--explain", "--json", "--config"}:
        print(f"USAGE: peaks guard takes --explain or --config\n\n{USAGE}", end="", file=sys.stderr)
        return USAGE_EXIT
    if "--config" in options:
        print(json.dumps(CONFIG, indent=2))
        return 0
    stream = sys.stdin.buffer if sys.stdin is not None else io.BytesIO()
    answer = respond(stream, explain=bool(options))
    if answer is not None:
        print(json.dumps(answer))
    return 0


def respond(stream: BinaryIO, *, explain: bool = False) -> dict[str, Any] | None:
    """The answer to the event in `stream`; None for silence. Raises nothing."""
    name = "PreToolUse"
    try:
        event = read_event(stream.read(LARGEST_EVENT + 1))
        name = event.name
        verdict = None
        if event.command is not None and concerns_cli(event.command):
            from pytest_peaks.guard.rules import judge

            verdict = judge(event.command, _project(event.cwd))
    except PeaksError as error:
        return _answer(name, "deny", _reason(error, None), explain=explain, code=error.code)
    except Exception as error:  # a hook that fails is taken for one that agrees
        failed = CannotTellError(
            f"the guard failed over this command ({type(error).__name__})",
            hint="this is a mistake in pytest-peaks; write the command in a simpler way",
        )
        return _answer(name, "deny", _reason(failed, None), explain=explain, code=failed.code)
    if verdict is None:
        return _answer(name, "allow", "no call of the Playwright CLI", explain=True) if explain else None
    return _judged(name, verdict, explain=explain)


def read_event(content: bytes) -> Event:
    """Read the harness's event.

    :raises MalformedEventError: it is none, or has no command where there must be one.
    """
    if len(content) > LARGEST_EVENT:
        raise _malformed("is too large")
    try:
        event = json.loads(content)
    except (ValueError, RecursionError):
        raise _malformed("is not JSON") from None
    if not isinstance(event, dict):
        raise _malformed("is not an object")
    tool = event.get("tool_name")
    if not isinstance(tool, str):
        raise _malformed("names no tool")
    name, cwd = event.get("hook_event_name"), event.get("cwd")
    cwd = cwd if isinstance(cwd, str) else ""
    name = name if isinstance(name, str) else "PreToolUse"
    if tool.casefold() not in SHELL_TOOLS:
        return Event(None, cwd, name)
    given = event.get("tool_input")
    command = given.get("command") if isinstance(given, dict) else None
    if not isinstance(command, str):
        raise _malformed("has no tool_input.command that is a text")
    return Event(command, cwd, name)


def concerns_cli(command: str) -> bool:
    """Whether the command has to be read at all; quick, and says yes too often rather than too seldom."""
    plain = command.replace("\\\n", "").translate({ord(char): None for char in "'\"\\"}).casefold()
    return "cli" in plain and ("playwright" in plain or "peaks" in plain)


def _malformed(what: str) -> MalformedEventError:
    return MalformedEventError(
        f"the event {what}, so it can't be told what would run",
        hint="`peaks guard --config` shows how to ask",
    )


def _project(cwd: str) -> Path:
    from pathlib import Path

    from pytest_peaks.session.paths import project_root

    given = Path(cwd)
    return project_root(given if "\0" not in cwd and given.is_absolute() else Path.cwd())


def _judged(name: str, verdict: Verdict, *, explain: bool) -> dict[str, Any] | None:
    details = {"invocations": verdict.invocations} if explain else {}
    if verdict.error is not None:
        answer = _answer(
            name,
            "deny",
            _reason(verdict.error, verdict.corrected),
            explain=explain,
            code=verdict.error.code,
            corrected=verdict.corrected,
        )
        return {**answer, **details}
    if not (verdict.vouched or explain):
        return None
    sessions = ", ".join(verdict.sessions)
    reason = f"session {sessions}" if sessions else "no session is worked in"
    return {**_answer(name, "allow", reason, explain=explain), **details}


def _reason(error: PeaksError, corrected: str | None) -> str:
    return str(error) if corrected is None else f"{error}\ncorrected command: {corrected}"


def _answer(
    name: str,
    decision: str,
    reason: str,
    *,
    explain: bool,
    code: str | None = None,
    corrected: str | None = None,
) -> dict[str, Any]:
    output = {"hookEventName": name, "permissionDecision": decision, "permissionDecisionReason": reason}
    if code is not None:
        output["code"] = code
    if corrected is not None:
        output["correctedCommand"] = corrected
    answer: dict[str, Any] = {"hookSpecificOutput": output}
    if explain:
        answer["invocations"] = []
    return answer
