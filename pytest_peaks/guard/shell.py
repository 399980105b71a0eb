"""A walk over a command as the shell will read it.

Nothing is taken for harmless because it was not understood: what is not accounted for at the end is a
doubt, see :meth:`Findings.doubt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_peaks.guard.findings import Findings
from pytest_peaks.guard.outcome import Kind, Outcome, program
from pytest_peaks.guard.programs import resolve
from pytest_peaks.guard.source import Source, parts
from pytest_peaks.guard.tables import HARMLESS, INTERPRETERS, RESERVED
from pytest_peaks.guard.text import Text, Word, expanded, mentions, script_of, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node

# The parser takes some 4 s for as much absurd text, and time grows with the square; a harness waits 10 s.
LONGEST_COMMAND = 48 * 1024
# Characters of all scripts within scripts: some tenths of a second.
MOST_TO_READ = 4 * LONGEST_COMMAND
SESSION_VARIABLE = "PLAYWRIGHT_CLI_SESSION"

# Deeper than anybody nests; Python's own stack would end not much later.
_DEEPEST = 120
_SUBSTITUTIONS = ("command_substitution", "process_substitution")
_OWN_ENVIRONMENT = (*_SUBSTITUTIONS, "subshell", "function_definition")
# What is left of a program's name, where the rest is expanded, and could be the CLI's.
_SUSPICIOUS = re.compile(r"playwright|-cli\b|\bcli\.js|/cli$", re.IGNORECASE)

# What reads the output of a command: the kinds of all commands that stand behind its pipes.
Readers = frozenset[Kind]
_NOBODY: Readers = frozenset()
_PASSING: Readers = frozenset({Kind.INERT, Kind.CALL})


class Opaque(Exception):  # noqa: N818 - no failure of the program; it ends the walk
    """The command can't be read. The message says why."""


def examine(command: str) -> Findings:
    """Read the command.

    :raises Opaque: it can't be read.
    :raises ImportError: the parser is not installed.
    """
    if len(command.encode(errors="replace")) > LONGEST_COMMAND:
        raise Opaque(f"the command has more than {LONGEST_COMMAND // 1024} kB")
    if "\0" in command:
        raise Opaque("the command has a NUL in it")
    findings = Findings.of(command)
    try:
        _Walk(findings, findings.command, {}, 0).run()
    except RecursionError as error:
        raise Opaque("the command is nested too deeply") from error
    return findings


class _Walk:
    """One walk over one script; a script in a word gets a walk of its own."""

    def __init__(self, findings: Findings, text: Text, exports: Mapping[str, Text], depth: int) -> None:
        self.findings = findings
        self.exports = dict(exports)
        self.depth = depth
        findings.read += len(text.chars)
        if findings.read > MOST_TO_READ:
            raise Opaque("it holds more scripts within scripts than there is time to read")
        self.source = Source(text)
        gone = self.source.continued_lines()
        if gone:  # the grammar does not know them within words
            self.source = Source(text.without(gone))

    def run(self) -> None:
        if self.source.root.has_error:
            self._not_understood()
        self._visit(self.source.root, _NOBODY)

    def _not_understood(self) -> None:
        if mentions(self.source.text):
            raise Opaque("it is not understood as a command for a shell")
        self.findings.dynamic = True

    def _nested(self, text: Text, environment: Mapping[str, Text]) -> None:
        self.findings.only_calls = False
        _Walk(self.findings, text, {**self.exports, **environment}, self.depth + 1).run()

    def _down(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Opaque("the command is nested too deeply")

    def _visit(self, node: Node, readers: Readers, extra: Sequence[Node] = ()) -> None:
        """`extra` are words that the grammar put behind a redirect; they belong to the last command."""
        self._down()
        kind = node.type
        if kind in ("command", "file_redirect") and self.source.is_broken(node):
            self._not_understood()
        if kind == "command":
            self._command(node, readers, extra)
        elif kind == "pipeline":
            self._pipeline(node, readers, extra)
        elif kind == "redirected_statement":
            self._redirected(node, readers, extra)
        elif kind in ("list", "negated_command"):
            found = parts(node)
            for part in found:
                self._visit(part, readers, extra if part is found[-1] else ())
        elif extra:
            raise Opaque("it is not understood as a command for a shell")
        elif kind in _OWN_ENVIRONMENT:
            self._apart(node, readers)
        else:
            self._other(node, readers)
        self.depth -= 1

    def _children(self, node: Node, readers: Readers) -> None:
        for child in node.children:
            if child.child_count or child.type == "comment":
                self._visit(child, readers)

    def _apart(self, node: Node, readers: Readers) -> None:
        """What has an environment of its own."""
        if node.type in _SUBSTITUTIONS:
            self.findings.mark_run(self.source.part(node))
            readers = _NOBODY
        if node.type != "subshell":
            self.findings.only_calls = False
        exports, self.exports = self.exports, dict(self.exports)
        self._children(node, readers)
        self.exports = exports

    def _other(self, node: Node, readers: Readers) -> None:
        kind = node.type
        if kind in ("declaration_command", "unset_command"):
            self._declaration(node)
        elif kind == "variable_assignment":
            self.findings.only_calls = False
            self.findings.mark_inert(unquoted(self.source.part(node)))
        elif kind in ("test_command", "comment"):
            self.findings.mark_inert(self.source.part(node))
        elif kind in ("for_statement", "case_statement", "case_item"):
            for value in node.children_by_field_name("value"):
                self.findings.mark_inert(self.source.part(value))
        elif kind == "file_redirect":
            for target in node.children_by_field_name("destination")[:1]:
                self._redirect(self.source.word(target))
        self._children(node, readers)

    def _declaration(self, node: Node) -> None:
        self.findings.only_calls = False
        words = [self.source.word(child) for child in node.children]
        self.findings.mark_inert_words(words)
        verb = words[0].value
        exported = verb == "export" or any(re.match(r"-\w*x", word.value) for word in words[1:])
        for child in node.children:
            if child.type == "variable_assignment" and exported:
                name, value = self.source.assignment(child)
                self.exports[name] = value
            elif verb == "unset":
                self.exports.pop(self.source.chars(child), None)

    def _redirect(self, target: Word) -> None:
        if target.value != "/dev/null" and not target.value.isdigit():
            self.findings.only_calls = False
            self.findings.written.add(_file(target))
        self.findings.mark_inert(target.text)

    # What is fed to what

    def _pipeline(self, node: Node, readers: Readers, extra: Sequence[Node]) -> None:
        stages = node.named_children
        behind = [readers]
        for stage in reversed(stages[1:]):
            behind.append(behind[-1] | self._kinds(stage))
        exports = self.exports
        for stage in stages:
            self.exports = dict(exports)  # each stage is a process of its own
            self._visit(stage, behind.pop(), extra if stage is stages[-1] else ())
        self.exports = exports

    def _kinds(self, node: Node) -> Readers:
        """What the commands in a node are, those in substitutions aside."""
        if node.type == "command":
            words, environment = self._words(node, ())
            return frozenset(outcome.kind for outcome in resolve(words, environment))
        if node.type in _SUBSTITUTIONS:
            return _NOBODY
        self._down()
        found = _NOBODY.union(*(self._kinds(child) for child in parts(node)))
        self.depth -= 1
        return found

    def _redirected(self, node: Node, readers: Readers, behind: Sequence[Node]) -> None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        extra = list(behind)
        inner = _NOBODY
        for redirect in redirects:
            extra += self._misplaced(redirect)
            if redirect.type == "heredoc_redirect":
                inner |= self._kinds(redirect)
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":
                self._heredoc(
                    redirect, readers | inner | (self._kinds(body) if body is not None else _NOBODY)
                )
        if body is not None:
            self._visit(body, readers | inner, extra)
        for redirect in redirects:
            self._visit(redirect, readers)

    def _misplaced(self, redirect: Node) -> list[Node]:
        """Words of the command that the grammar takes for further targets of a redirect."""
        found = redirect.children_by_field_name("destination")[1:]
        if redirect.type == "heredoc_redirect":
            found = redirect.children_by_field_name("argument")
            for child in redirect.children_by_field_name("redirect"):
                found += child.children_by_field_name("destination")[1:]
        return found

    def _heredoc(self, node: Node, readers: Readers) -> None:
        start = "".join(self.source.chars(child) for child in node.children if child.type == "heredoc_start")
        quoted = any(quote in start for quote in "'\"\\")
        for child in node.children:
            if child.type == "heredoc_body":
                text = self.source.part(child)
                self._feed(text if quoted else expanded(text), readers)

    def _feed(self, text: Text, readers: Readers) -> None:
        """`text` is what the readers get on stdin."""
        if Kind.STDIN in readers:
            self._nested(text, {})
        elif readers <= _PASSING:
            self.findings.mark_inert(text)

    # Commands

    def _words(self, node: Node, extra: Iterable[Node]) -> tuple[list[Word], dict[str, Text]]:
        """A command's words, and what it finds in its environment."""
        nodes: list[Node] = []
        environment = dict(self.exports)
        moved: list[Node] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self.source.assignment(child)
                environment[name] = value
            elif child.type == "file_redirect":
                moved += self._misplaced(child)
            elif not child.type.endswith("_redirect"):
                nodes.append(child)
        return [self.source.word(child) for child in (*nodes, *moved, *extra)], environment

    def _command(self, node: Node, readers: Readers, extra: Sequence[Node]) -> None:
        words, environment = self._words(node, extra)
        outcomes = resolve(words, environment)
        kinds = frozenset(outcome.kind for outcome in outcomes)
        for child in node.children:
            if child.type == "herestring_redirect":
                for value in child.named_children[-1:]:
                    self._feed(self.source.word(value).text, kinds | readers)
            if child.type == "variable_assignment" and self.source.assignment(child)[0] == SESSION_VARIABLE:
                self._children(child, _NOBODY)  # it goes with the call
            elif child.child_count:
                self._visit(child, _NOBODY)
        for outcome in outcomes:
            self._outcome(outcome, readers)

    def _outcome(self, outcome: Outcome, readers: Readers) -> None:
        findings = self.findings
        kind = outcome.kind
        name = program(outcome.words[0].value) if outcome.words else ""
        harmless = kind is Kind.INERT and name in HARMLESS
        findings.only_calls = findings.only_calls and (outcome.plain or harmless)
        if kind is Kind.CALL:
            findings.calls.append(outcome)
            findings.mark_called([*outcome.words, *outcome.arguments])
        elif kind is Kind.SCRIPT and outcome.script is not None:
            findings.mark_inert_words(outcome.words)
            self._nested(outcome.script, outcome.environment)
        elif kind is Kind.DYNAMIC:
            findings.dynamic = True
            value = outcome.words[0].value
            suspicious = not outcome.words[0].known and bool(_SUSPICIOUS.search(value))
            findings.suspicious = findings.suspicious or suspicious
        elif kind is Kind.STDIN:
            findings.dynamic = True
        elif kind is Kind.OTHER:
            if name in RESERVED:
                self._not_understood()
            run = outcome.words if name in INTERPRETERS else outcome.words[:1]
            findings.executed |= {_file(word) for word in run}
        elif readers <= _PASSING:
            findings.mark_inert_words(outcome.words)
            if name == "tee":
                findings.written |= {_file(word) for word in outcome.words[1:]}
        elif name in ("echo", "printf") and Kind.STDIN in readers:
            self._printed(name, outcome.words)

    def _printed(self, name: str, words: Sequence[Word]) -> None:
        """What `echo` and `printf` print is read by a shell."""
        at = 1
        while at < len(words) and re.fullmatch(r"-[neE]+|--", words[at].value):
            at += 1
        printed = words[at:]
        if name == "echo" or (len(printed) == 1 and "%" not in printed[0].value):
            self._nested(script_of(printed), {})


def _file(word: Word) -> str:
    """A file's name without its folder."""
    return word.value.rsplit("/", 1)[-1]
