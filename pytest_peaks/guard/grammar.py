"""The one place that knows tree-sitter. It is imported for commands with a mention of the CLI only."""

from __future__ import annotations

import functools

import tree_sitter_bash
from tree_sitter import Language, Node, Parser


@functools.cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(script: bytes) -> Node:
    """The syntax tree of a script for bash; never raises, what is wrong becomes error nodes."""
    return _parser().parse(script).root_node
