"""A script with its syntax tree, and where in the command its nodes are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_peaks.guard.text import Text, Word, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node


class Source:
    """A script with its syntax tree."""

    def __init__(self, text: Text) -> None:
        from pytest_peaks.guard.grammar import parse

        self.text = text
        data = text.chars.encode(errors="replace")
        self.root = parse(data)
        # Which character each byte belongs to, where that is not the same number.
        self._places: Sequence[int] = range(len(data) + 1)
        if len(data) != len(text.chars):
            sizes = (len(char.encode(errors="replace")) for char in text.chars)
            self._places = [place for place, size in enumerate(sizes) for _ in range(size)]
            self._places.append(len(text.chars))

    def span(self, node: Node) -> tuple[int, int]:
        """The node's characters in the text."""
        return self._places[node.start_byte], self._places[node.end_byte]

    def part(self, node: Node) -> Text:
        return self.text.part(*self.span(node))

    def chars(self, node: Node | None) -> str:
        return "" if node is None else self.part(node).chars

    def word(self, node: Node) -> Word:
        part = self.part(node)
        return Word(unquoted(part), part.origin(0, len(part.chars)))

    def is_broken(self, node: Node) -> bool:
        """Whether a line ends between the node's children, which the grammar overlooks at times."""
        spans = [self.span(child) for child in node.children]
        return any("\n" in self.text.chars[before[1] : after[0]] for before, after in pairwise(spans))

    def assignment(self, node: Node) -> tuple[str, Text]:
        """The variable's name and its value."""
        value = node.child_by_field_name("value")
        text = Text("", [], []) if value is None else unquoted(self.part(value))
        return self.chars(node.child_by_field_name("name")), text

    def continued_lines(self) -> list[tuple[int, int]]:
        """The `\\⏎` that a shell removes: all but those in comments and in what is quoted singly."""
        chars = self.text.chars
        if "\\\n" not in chars:
            return []
        kept = [self.span(node) for node in _literal(self.root)]
        return [
            match.span()
            for match in re.finditer(r"\\(.)", chars, re.DOTALL)
            if match[1] == "\n" and not any(start <= match.start() < end for start, end in kept)
        ]


def parts(node: Node) -> list[Node]:
    """A node's children; of `a && b && …`, which is nested to the left, all of them."""
    found: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if current is node or current.type == "list":
            pending += reversed(current.named_children)
        else:
            found.append(current)
    return found


def _literal(node: Node) -> Iterator[Node]:
    """Nodes in which a backslash at the end of a line is one."""
    pending = [node]
    while pending:
        current = pending.pop()
        if current.type in ("comment", "raw_string"):
            yield current
        elif current.type == "heredoc_redirect":
            start = b"".join(child.text or b"" for child in current.children if child.type == "heredoc_start")
            if re.search(rb"['\"\\]", start):
                yield from (child for child in current.children if child.type == "heredoc_body")
        pending += current.children
