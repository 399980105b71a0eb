"""What one call of the Playwright CLI asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_peaks.doors.cli_line import parse
from pytest_peaks.guard.tables import CLI_AGNOSTIC, CLI_FLAGS
from pytest_peaks.guard.text import Word

# The CLI does not know these; who wrote them forgot the name.
_NO_NAME = ("-s=", "--session=")
# Options that make the CLI answer and do nothing else.
_ANSWERS = ("help", "h", "version", "v")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the CLI.

    :ivar command: its command; empty if it has none or only answers, with a ``HOLE`` in it if only the
        shell will know.
    :ivar options: what was given, by name.
    :ivar session: the words that name the session, grouped by option.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict)
    session: Sequence[Sequence[Word]] = ()

    @property
    def name(self) -> str | None:
        """The session that the arguments name; empty for an option without a value, None for no option."""
        if not self.session:
            return None
        value = self.options.get("session")
        return value if isinstance(value, str) else ""

    @property
    def needs_session(self) -> bool:
        return bool(self.command) and self.command not in CLI_AGNOSTIC


def read_call(words: Sequence[Word]) -> Call:
    """Read the arguments as the CLI itself reads them.

    :raises CliUsageError: it would not take them.
    """
    values = [word.value for word in words if word.value not in _NO_NAME]
    options = parse(values, CLI_FLAGS)
    positional = options.pop("_")
    answers = any(options.get(name) for name in _ANSWERS)
    return Call("" if answers or not positional else positional[0], options, _session(words))


def _session(words: Sequence[Word]) -> list[Sequence[Word]]:
    found: list[Sequence[Word]] = []
    for at, word in enumerate(words):
        if word.value == "--":
            break
        if word.value.startswith(("-s=", "--session=")):
            found.append(words[at : at + 1])
        elif word.value in ("-s", "--session"):
            following = words[at + 1 : at + 2]
            takes = bool(following) and not re.match(r"--?[^-]", following[0].value)
            found.append(words[at : at + 1 + takes])
    return found
