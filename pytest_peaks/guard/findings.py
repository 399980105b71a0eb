"""What a command does with the CLI, as far as reading it tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_peaks.guard.outcome import Outcome
from pytest_peaks.guard.text import HOLE, Text, Word, mentions


@dataclass(slots=True)
class Findings:
    """What was found in a command.

    :ivar calls: the calls of the CLI.
    :ivar only_calls: the line runs nothing but plain calls of the CLI and harmless commands.
    :ivar called: which characters of the command belong to calls.
    :ivar inert: which ones nothing runs.
    :ivar dynamic: something is run that only the shell will know.
    :ivar suspicious: what of it looks as if it could be the CLI.
    :ivar written: names of files that are written.
    :ivar executed: names of files and programs that are run.
    :ivar read: how many characters were read, of scripts within scripts each time.
    """

    command: Text
    calls: list[Outcome] = field(default_factory=list)
    only_calls: bool = True
    called: bytearray = field(default_factory=bytearray)
    inert: bytearray = field(default_factory=bytearray)
    dynamic: bool = False
    suspicious: bool = False
    written: set[str] = field(default_factory=set)
    executed: set[str] = field(default_factory=set)
    read: int = 0

    @classmethod
    def of(cls, command: str) -> Findings:
        """Nothing, so far."""
        size = len(command)
        return cls(Text.command(command), called=bytearray(size), inert=bytearray(size))

    def mark_called(self, words: Iterable[Word]) -> None:
        for word in words:
            _mark(self.called, word.text, 1)

    def mark_inert(self, text: Text) -> None:
        _mark(self.inert, text, 1)

    def mark_inert_words(self, words: Iterable[Word]) -> None:
        for word in words:
            _mark(self.inert, word.text, 1)

    def mark_run(self, text: Text) -> None:
        """What stands in something inert, and is run nevertheless."""
        _mark(self.inert, text, 0)

    def doubt(self) -> str | None:
        """Why it can't be told what the command does with the CLI; None if it can.

        Each mention of the CLI has to be a part of a call, or inert. An inert one is no matter as long
        as nothing is run that it could become a part of.
        """
        if self.suspicious:
            return "a program is only named when the command runs"
        harmless_mention = False
        for places in mentions(self.command):
            if all(self.called[at] for at in places):
                continue
            if not all(self.called[at] or self.inert[at] for at in places):
                return "the CLI is mentioned where it might be run"
            harmless_mention = True
        if harmless_mention and self.dynamic:
            return "the CLI is mentioned, and what is run is only known when the command runs"
        if harmless_mention and self.written & self.executed:
            return "the CLI is mentioned, and a file is written and run"
        return None


def _mark(marks: bytearray, text: Text, value: int) -> None:
    for char, start, end in zip(text.chars, text.starts, text.ends, strict=True):
        if char != HOLE:
            for at in range(start, end):
                marks[at] = value
