"""Whether a command may run: each call of the CLI in it, held against the project's rules."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_peaks.errors import (
    CannotTellError,
    CliUsageError,
    GuardNotInstalledError,
    InvalidNameError,
    KillAllError,
    NameMissingError,
    PeaksError,
    SharedBrowserError,
)
from pytest_peaks.guard.arguments import Call, read_call
from pytest_peaks.guard.findings import Findings
from pytest_peaks.guard.outcome import Outcome
from pytest_peaks.guard.shell import SESSION_VARIABLE, Opaque, examine
from pytest_peaks.guard.tables import CLI_ASK_FIRST, CLI_ASK_FIRST_OPTIONS
from pytest_peaks.guard.text import HOLE, Word
from pytest_peaks.named.names import build_name, check_session_name, suggest_name, usual_prefix
from pytest_peaks.named.settings import NameRules, read_settings

FRONT = "peaks cli"
# Sessions of one debugging task, which may look at a browser that is open already.
_DEBUGGING = "fd-"
# Variables that make `open` attach to a browser instead of starting one.
_ATTACHING = ("PLAYWRIGHT_MCP_CDP_ENDPOINT", "PLAYWRIGHT_MCP_ENDPOINT", "PLAYWRIGHT_MCP_EXTENSION")


@dataclass(slots=True)
class Edit:
    """A change to the command: what stands from `start` to `end` becomes `text`."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Verdict:
    """What the guard says.

    :ivar error: why the command is refused; None if it is not.
    :ivar corrected: the command as it would be allowed; None if there is no such.
    :ivar sessions: the sessions that are worked in, as far as they are known.
    :ivar invocations: one object a call, for `--explain`.
    :ivar vouched: the command is nothing but calls that are right, so that an explicit "allow" says
        yes to nothing else.
    """

    error: PeaksError | None = None
    corrected: str | None = None
    sessions: list[str] = field(default_factory=list)
    invocations: list[dict[str, object]] = field(default_factory=list)
    vouched: bool = False


def judge(command: str, root: Path) -> Verdict:
    """Judge a command that is to run in the project `root`; never raises a :class:`PeaksError`."""
    verdict, edits = _judge(command, root)
    if verdict.error is not None and edits:
        corrected = _edited(command, edits)
        again, _ = _judge(corrected, root)
        if again.error is None:
            verdict.corrected = corrected
    return verdict


def open_sessions(root: Path) -> list[str]:
    """Names of the CLI sessions that the project has records of."""
    from pytest_peaks.session.paths import ProjectDirs

    return sorted(
        file.stem.removeprefix("cli-") for file in ProjectDirs.locate(root).records.glob("cli-*.json")
    )


def _judge(command: str, root: Path) -> tuple[Verdict, list[Edit]]:
    verdict = Verdict()
    try:
        findings = examine(command)
    except Opaque as reason:
        verdict.error = _cannot_tell(str(reason))
        return verdict, []
    except ImportError:
        verdict.error = GuardNotInstalledError(
            "the guard's parser is not installed, so commands that mention the CLI can't be read",
            hint="pip install 'pytest-peaks[guard]'",
        )
        return verdict, []
    edits: list[Edit] = []
    try:
        calls = [(outcome, read_call(outcome.arguments)) for outcome in findings.calls]
    except CliUsageError as wrong:
        verdict.error = CliUsageError(
            wrong.message, hint=wrong.hint or f"`{FRONT} --help` says what it takes"
        )
        return verdict, []
    names = [_session(outcome, call) for outcome, call in calls]
    verdict.sessions = sorted({name for name in names if name and HOLE not in name})
    check = _Check(root, names)
    for (outcome, call), name in zip(calls, names, strict=True):
        error = check.fault(outcome, call, name)
        verdict.invocations.append(_described(outcome, call, name, error))
        if error is not None:
            verdict.error = verdict.error or error
            edits += check.edits(outcome, call, name, error)
    doubt = findings.doubt()
    if doubt is not None and verdict.error is None:
        verdict.error = _cannot_tell(doubt)
        edits = []
    verdict.vouched = verdict.error is None and _vouched(findings, [call for _, call in calls])
    return verdict, edits


def _cannot_tell(reason: str) -> CannotTellError:
    return CannotTellError(
        f"it can't be told whether this command uses the Playwright CLI as it should: {reason}",
        hint=f"write each call out, on its own: `{FRONT} -s=NAME COMMAND`",
    )


def _vouched(findings: Findings, calls: Sequence[Call]) -> bool:
    return (
        bool(calls)
        and findings.only_calls
        and not findings.dynamic
        and not any(
            call.command in CLI_ASK_FIRST or CLI_ASK_FIRST_OPTIONS & set(call.options) for call in calls
        )
    )


def _session(outcome: Outcome, call: Call) -> str | None:
    """The session's name, with HOLEs for what is not known; empty if there is none, None if none is needed."""
    if not call.needs_session:
        return None
    if call.name is not None:
        return call.name
    variable = outcome.environment.get(SESSION_VARIABLE)
    return variable.chars if variable is not None else ""


def _described(outcome: Outcome, call: Call, name: str | None, error: PeaksError | None) -> dict[str, object]:
    known = HOLE not in call.command
    return {
        "program": " ".join(word.value for word in outcome.words).replace(HOLE, "…"),
        "command": call.command if known else None,
        "session": name if name is None or HOLE not in name else None,
        "guarded": outcome.guarded,
        "error": error.code if error else None,
    }


class _Check:
    """The rules, for the calls of one command."""

    def __init__(self, root: Path, names: Sequence[str | None]) -> None:
        self.root = root
        self.names = names
        self.made: str | None = None
        self._rules: NameRules | None = None

    @property
    def rules(self) -> NameRules:
        if self._rules is None:
            self._rules = read_settings(self.root).names
        return self._rules

    def fault(self, outcome: Outcome, call: Call, name: str | None) -> PeaksError | None:
        """What is wrong with a call; None if nothing is."""
        try:
            self._check(outcome, call, name)
        except PeaksError as error:
            return error
        return None

    def _check(self, outcome: Outcome, call: Call, name: str | None) -> None:
        front = f"`{FRONT}` looks at it when it runs"
        if HOLE in call.command:
            if outcome.guarded:
                return
            raise CannotTellError("the CLI's command is only known when it runs", hint=front)
        if call.command == "kill-all" and not outcome.guarded:
            raise KillAllError(
                "kill-all ends the sessions of every project on this machine",
                hint=f"`{FRONT} kill-all` ends those of this project, `close` and `close-all` do it gently",
            )
        if name is None or (outcome.guarded and "project" in call.options):
            return
        if len(call.session) > 1:
            raise InvalidNameError("the session is named twice", hint="name it once: `-s=NAME`")
        if HOLE in name:
            if not outcome.guarded:
                raise CannotTellError("the session's name is only known when the command runs", hint=front)
            return
        self._attaching(outcome, call, name)
        if not name:
            raise NameMissingError(
                f"{_shown(call.command)} works in a session, and none is named",
                hint="each worker has a session of its own: `-s=NAME`; `peaks name PREFIX SLUG` makes names",
            )
        check_session_name(name, self.rules)

    def _attaching(self, outcome: Outcome, call: Call, name: str) -> None:
        attaches = call.command == "attach"
        if call.command == "open":
            attaches = any(variable in outcome.environment for variable in _ATTACHING)
        if not attaches:
            return
        alone = {used for used in self.names if used} == {name}
        if name.startswith(_DEBUGGING) and alone and not set(open_sessions(self.root)) - {name}:
            return
        raise SharedBrowserError(
            "sessions that are attached to one browser share its context, tab and storage",
            hint=f"open a browser of your own; only a session {_DEBUGGING}… may attach, while no other is open",
        )

    # Mending

    def edits(self, outcome: Outcome, call: Call, name: str | None, error: PeaksError) -> list[Edit]:
        """What would make the call right; nothing if that is not known."""
        program = _span(outcome.words)
        if isinstance(error, (CannotTellError, KillAllError)):
            return [Edit(*program, FRONT)]
        if isinstance(error, SharedBrowserError):
            if call.command != "attach":
                return []
            end = _span([*outcome.words, *outcome.arguments])[1]
            return [Edit(program[0], end, f"{FRONT} {self._option(name)} open URL")]
        if not isinstance(error, InvalidNameError):
            return []
        option = self._option(name)
        if not call.session:
            return [Edit(program[1], program[1], f" {option}")]
        first, *others = call.session
        return [Edit(*_span(first), option), *(Edit(*_span(words), "") for words in others)]

    def _option(self, name: str | None) -> str:
        """The option for a legal name that is as near to `name` as can be."""
        if not name or HOLE in name:
            return f"-s={self._fresh()}"
        legal = name if self._is_legal(name) else suggest_name(name, self.rules)
        return f"-s={legal or self._fresh()}"

    def _is_legal(self, name: str) -> bool:
        try:
            return bool(check_session_name(name, self.rules))
        except InvalidNameError:
            return False

    def _fresh(self) -> str:
        """The one session of this command, else a name that nobody has: a correction is often taken as it is."""
        if self.made is None:
            legal = {name for name in self.names if name and HOLE not in name and self._is_legal(name)}
            if len(legal) == 1:
                return legal.pop()
            self.made = build_name(self.rules, usual_prefix(self.rules), f"s{os.urandom(3).hex()}")
        return self.made


def _span(words: Sequence[Word]) -> tuple[int, int]:
    return words[0].span[0], words[-1].span[1]


def _shown(command: str) -> str:
    return repr(command) if re.fullmatch(r"[a-z-]{1,30}", command) else "this"


def _edited(command: str, edits: Sequence[Edit]) -> str:
    """The command with the edits in it; of two that overlap, the one that begins first."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start >= at and not (parts and edit.start == edit.end == at):
            parts += [command[at : edit.start], edit.text]
            at = edit.end
    return "".join([*parts, command[at:]])
