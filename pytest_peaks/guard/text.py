"""Text of which every character knows where it stands in the command, and what a shell makes of a word.

A word of a command may be a script of its own (``bash -c '…'``), and that script's words again.
Whatever is found in there has to be mended in the command that was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Stands for what is only known when the command runs: an expansion, a pattern. A character of the
# private use area, which the grammar takes for a letter; one that was given is not known either.
HOLE = "\ue000"

# What the program is called where it stands: not as a folder (`.playwright-cli/`), not as a part of
# another name or of a document's.
_MENTION = re.compile(
    r"(?<!\.)playwright-cli(?!/|[\w-]|\.(?!(?:cmd|exe|ps1|js|cjs|mjs)\b)\w)"
    r"|@playwright/cli(?![\w.-])"
    r"|playwright(?:@[\w.^~-]+)?(?:[ \t]+-\S+)*[ \t]+cli(?![\w.-])"
    r"|playwright\S*\.js[ \t]+cli(?![\w.-])",
    re.IGNORECASE,
)
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ANSI_C = re.compile(
    r"""\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))""", re.DOTALL
)
_ANSI_C_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_CLOSING = {"(": ")", "{": "}"}


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text and its origin.

    :ivar chars: the characters.
    :ivar starts: for each, where in the command what it was made of begins.
    :ivar ends: for each, where that ends.
    """

    chars: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def command(cls, chars: str) -> Text:
        """The command itself."""
        return cls(chars, range(len(chars)), range(1, len(chars) + 1))

    @classmethod
    def made(cls, chars: str, origin: tuple[int, int]) -> Text:
        """`chars`, which stand for what is at `origin`."""
        return cls(chars, [origin[0]] * len(chars), [origin[1]] * len(chars))

    def part(self, start: int, end: int) -> Text:
        return Text(self.chars[start:end], self.starts[start:end], self.ends[start:end])

    def without(self, gone: Iterable[tuple[int, int]]) -> Text:
        """Without these ranges, which are in order."""
        parts, at = [], 0
        for start, end in gone:
            parts.append(self.part(at, start))
            at = end
        return joined([*parts, self.part(at, len(self.chars))])

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where in the command the characters from `start` to `end` are."""
        if start >= end:
            at = self.starts[start] if start < len(self.starts) else self.ends[-1] if self.ends else 0
            return at, at
        return self.starts[start], self.ends[end - 1]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command.

    :ivar text: its value, as the program will get it.
    :ivar span: where in the command it stands, quotes included.
    """

    text: Text
    span: tuple[int, int]

    @property
    def value(self) -> str:
        return self.text.chars

    @property
    def known(self) -> bool:
        return HOLE not in self.text.chars


def joined(parts: Iterable[Text]) -> Text:
    parts = list(parts)
    return Text(
        "".join(part.chars for part in parts),
        [at for part in parts for at in part.starts],
        [at for part in parts for at in part.ends],
    )


def script_of(words: Sequence[Word]) -> Text:
    """The words with spaces between them, as `eval` runs them."""
    parts: list[Text] = []
    for word in words:
        if parts:
            parts.append(Text.made(" ", (word.span[0], word.span[0])))
        parts.append(word.text)
    return joined(parts)


def mentions(text: Text) -> list[list[int]]:
    """Where the CLI is mentioned, quotes and backslashes aside: of each mention its characters' places."""
    chars = text.chars
    kept = [
        index
        for index, character in enumerate(chars)
        if character not in "'\"\\" and not (character == "\n" and index and chars[index - 1] == "\\")
    ]
    plain = "".join(chars[index] for index in kept)
    return [
        [text.starts[kept[at]] for at in range(*match.span()) if not plain[at].isspace()]
        for match in _MENTION.finditer(plain)
    ]


def unquoted(text: Text) -> Text:
    """What a shell makes of a word: quotes removed, and a :data:`HOLE` for what only the shell knows."""
    return _Unquoting(text).run()


def expanded(text: Text) -> Text:
    """What a shell makes of a heredoc whose end is not quoted: quotes stay, expansions become HOLEs."""
    return _Unquoting(text, heredoc=True).run()


class _Unquoting:
    """One pass over one word, or one heredoc."""

    def __init__(self, text: Text, *, heredoc: bool = False) -> None:
        self.heredoc = heredoc
        self.text = text
        self.chars = text.chars
        self.at = 0
        self.out: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []

    def run(self) -> Text:
        quoted = self.heredoc
        while self.at < len(self.chars):
            char = self.chars[self.at]
            if char == "\\":
                self._backslash(quoted=quoted)
            elif char == '"' and not self.heredoc:
                quoted = not quoted
                self.at += 1
            elif char == "`":
                self._hole(self._closing_backtick())
            elif char == "$":
                self._dollar(quoted=quoted)
            elif quoted:
                self._emit(char, 1)
            else:
                self._plain(char)
        return Text("".join(self.out), self.starts, self.ends)

    def _emit(self, char: str, length: int) -> None:
        start, end = self.text.origin(self.at, self.at + length)
        self.out.append(char)
        self.starts.append(start)
        self.ends.append(end)
        self.at += length

    def _hole(self, end: int) -> None:
        self._emit(HOLE, max(1, min(end, len(self.chars)) - self.at))

    def _backslash(self, *, quoted: bool) -> None:
        following = self.chars[self.at + 1 : self.at + 2]
        if following == "\n":
            self.at += 2
        elif following and (not quoted or following in '$`"\\'):
            self._emit(following, 2)
        else:
            self._emit("\\", 1)

    def _dollar(self, *, quoted: bool) -> None:
        following = self.chars[self.at + 1 : self.at + 2]
        if following == "'" and not quoted:
            self._ansi_c()
        elif following == '"' and not quoted:
            self.at += 1
        elif following in _CLOSING:
            self._hole(closing(self.chars, self.at + 1))
        elif match := _NAME.match(self.chars, self.at + 1):
            self._hole(match.end())
        elif following and following in "@*#?$!-0123456789":
            self._hole(self.at + 2)
        else:
            self._emit("$", 1)

    def _plain(self, char: str) -> None:
        if char == "'":
            end = self.chars.find("'", self.at + 1)
            end = len(self.chars) if end < 0 else end
            self.at += 1
            while self.at < end:
                self._emit(self.chars[self.at], 1)
            self.at += 1
        elif char in "<>" and self.chars[self.at + 1 : self.at + 2] == "(":
            self._hole(closing(self.chars, self.at + 1))
        elif char == "{" and (match := _BRACES.match(self.chars, self.at)):
            self._hole(match.end())
        elif char in "*?" or (char == "[" and "]" in self.chars[self.at :]):
            self._hole(self.at + 1)
        else:
            self._emit(char, 1)

    def _ansi_c(self) -> None:
        self.at += 2
        while self.at < len(self.chars) and self.chars[self.at] != "'":
            match = _ANSI_C.match(self.chars, self.at)
            if match is None:
                self._emit(self.chars[self.at], 1)
                continue
            number = match[1] or match[2] or match[3]
            if number or match[4]:
                code = int(number, 16) if number else int(match[4], 8)
                char = chr(code) if code < 0x110000 else HOLE
            elif match[5]:
                char = chr(ord(match[5]) & 0x1F)
            else:
                char = _ANSI_C_LETTERS.get(match[6], match[6])
            self._emit(char, match.end() - match.start())
        self.at += 1

    def _closing_backtick(self) -> int:
        at = self.at + 1
        while at < len(self.chars) and self.chars[at] != "`":
            at += 2 if self.chars[at] == "\\" else 1
        return at + 1


def closing(chars: str, at: int) -> int:
    """Just behind the bracket that closes the one at `at`; the end if there is none."""
    stack = [_CLOSING[chars[at]]]
    at += 1
    while at < len(chars) and stack:
        char = chars[at]
        if char == "\\":
            at += 1
        elif stack[-1] == "'":
            if char == "'":
                stack.pop()
        elif char == stack[-1]:
            stack.pop()
        elif char in "\"'`" and not (char == "'" and stack[-1] == '"'):
            stack.append(char)
        elif char in _CLOSING and (stack[-1] != '"' or chars[at - 1] == "$"):
            stack.append(_CLOSING[char])
        at += 1
    return at
