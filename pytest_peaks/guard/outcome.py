"""What a command turns out to be, and the command while that is found out."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_peaks.guard.text import HOLE, Text, Word

Environment = Mapping[str, Text]

_ENDINGS = (".cmd", ".exe", ".ps1", ".cjs", ".mjs", ".js")


class Kind(enum.Enum):
    """What a command turns out to be."""

    CALL = "a call of the CLI"
    SCRIPT = "a script in one of its words"
    STDIN = "a shell that reads its script from stdin"
    DYNAMIC = "only known when it runs"
    INERT = "runs none of its words"
    OTHER = "a program that may run its words"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that a command runs.

    :ivar words: the words it is made of; of a call those of the program, of a script those that are inert.
    :ivar arguments: of a call, what the CLI gets.
    :ivar script: what a shell will read.
    :ivar environment: variables that are set for it, as far as the command says.
    :ivar guarded: a call through ``peaks cli``, which looks at names itself.
    :ivar plain: nothing but this is run, under a name that PATH resolves.
    """

    kind: Kind
    words: Sequence[Word]
    arguments: Sequence[Word] = ()
    script: Text | None = None
    environment: Environment = field(default_factory=dict)
    guarded: bool = False
    plain: bool = False


Resolver = Callable[[Sequence[Word], Environment, bool], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Here:
    """The command at hand.

    :ivar name: its program.
    :ivar plain: nothing was found so far that would not be plain.
    :ivar resolver: finds out about the rest of the words.
    """

    name: str
    words: Sequence[Word]
    environment: Environment
    plain: bool
    resolver: Resolver

    def value(self, at: int) -> str:
        """A word's value; empty behind the last."""
        return self.words[at].value if at < len(self.words) else ""

    def known(self, at: int) -> bool:
        return at >= len(self.words) or self.words[at].known

    def operand(self, at: int, takes: Collection[str] = ()) -> int:
        """Where the first operand from `at` on is; `takes` are the options that have a value."""
        while at < len(self.words):
            value = self.words[at].value
            if value == "--":
                return at + 1
            if not value.startswith("-") or value == "-":
                return at
            at += 2 if value in takes else 1
        return at

    # Results

    def call(self, at: int, *, guarded: bool = False) -> list[Outcome]:
        """The CLI; its arguments begin at `at`."""
        return [
            Outcome(
                Kind.CALL,
                self.words[:at],
                self.words[at:],
                environment=self.environment,
                guarded=guarded,
                plain=self.plain,
            )
        ]

    def rest(self, at: int, environment: Environment | None = None, *, plain: bool = False) -> list[Outcome]:
        """Whatever the words from `at` on run; `plain` if this one changes nothing about that."""
        given = self.environment if environment is None else environment
        return self.resolver(self.words[at:], given, plain and self.plain) or self.inert()

    def script(self, script: Text, inert: Sequence[Word] = ()) -> list[Outcome]:
        return [Outcome(Kind.SCRIPT, inert, script=script, environment=self.environment)]

    def stdin(self) -> list[Outcome]:
        return [Outcome(Kind.STDIN, self.words, environment=self.environment)]

    def inert(self) -> list[Outcome]:
        return [Outcome(Kind.INERT, self.words)]

    def other(self, operand: int | None = None) -> list[Outcome]:
        """A program that may run its words, or runs the file that is its operand."""
        known = operand is None or self.known(operand)
        return [Outcome(Kind.OTHER if known else Kind.DYNAMIC, self.words)]


def program(value: str) -> str:
    """The name of a program without its folder and its ending, in lower case."""
    name = re.split(r"[/\\]", value)[-1].lower()
    for ending in _ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def with_holes(word: Word, placeholder: str) -> Word:
    """The word with a ``HOLE`` wherever the placeholder stands."""
    text = word.text
    if not placeholder or placeholder not in text.chars:
        return word
    chars, starts, ends = [], [], []
    at = 0
    while at < len(text.chars):
        hit = text.chars.startswith(placeholder, at)
        length = len(placeholder) if hit else 1
        start, end = text.origin(at, at + length)
        chars.append(HOLE if hit else text.chars[at])
        starts.append(start)
        ends.append(end)
        at += length
    return replace(word, text=Text("".join(chars), starts, ends))


def unknown_word(after: Word) -> Word:
    """A word that is not in the command, and comes behind one that is."""
    at = after.span[1]
    return Word(Text.made(HOLE, (at, at)), (at, at))
