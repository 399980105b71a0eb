"""The accessibility tree that ``playwright-cli snapshot`` gives, as objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_peaks.errors import CliFailedError, NodeNotFoundError

# How many nodes an error names.
LISTED = 12


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a snapshot.

    :ivar role: its ARIA role; ``text`` for a piece of text of its own.
    :ivar name: its accessible name; empty if it has none. Of a text node the text.
    :ivar ref: what commands take for a target (``e5``, in a frame ``f1e2``); empty where there is none.
    :ivar text: the text directly in it; empty if there is none or it has children.
    :ivar attributes: what else the CLI says of it, such as ``level``, ``checked``, ``url``.
    """

    role: str
    name: str = ""
    ref: str = ""
    text: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[Node, ...] = field(default=(), repr=False)

    def __iter__(self) -> Iterator[Node]:
        """This node and all below it, in the order of the page."""
        yield self
        for child in self.children:
            yield from child

    def find_all(
        self, role: str | None = None, name: str | re.Pattern[str] | None = None, *, exact: bool = False
    ) -> list[Node]:
        """The nodes of a role and a name, this one included, in the order of the page.

        Names are compared as ``get_by_role`` does: a part of the name will do, whatever its case.

        :param exact: the whole name, case and all.
        """
        return [node for node in self if node._is(role, name, exact=exact)]

    def find(
        self, role: str | None = None, name: str | re.Pattern[str] | None = None, *, exact: bool = False
    ) -> Node:
        """The first of :meth:`find_all`, one with exactly that name before others.

        :raises NodeNotFoundError: there is none; lists what there is of that role.
        """
        found = self.find_all(role, name, exact=exact)
        if not found:
            wanted = " ".join(filter(None, [role or "node", f"named {name!r}" if name is not None else ""]))
            near = [node for node in self if role in (None, node.role) and (node.name or node.text)]
            listed = ", ".join(f"{node.role} {node.name or node.text!r}" for node in near[:LISTED])
            raise NodeNotFoundError(
                f"the snapshot has no {wanted}; it has {listed or 'nothing like it'}",
                hint="take another snapshot once the page is ready",
            )
        return next((node for node in found if node.name == name), found[0])

    def _is(self, role: str | None, name: str | re.Pattern[str] | None, *, exact: bool) -> bool:
        if role is not None and role != self.role:
            return False
        if name is None:
            return True
        if isinstance(name, re.Pattern):
            return name.search(self.name) is not None
        return name == self.name if exact else name.casefold() in self.name.casefold()


def read_snapshot(answer: str) -> Node:
    """The tree in what ``--json snapshot`` printed, under one node of role ``document``.

    Newer CLIs give the tree itself, older ones (before 1.65) its text.

    :raises CliFailedError: it is neither.
    """
    try:
        content = json.loads(answer)["snapshot"]
    except (ValueError, KeyError, TypeError):
        raise CliFailedError("the CLI answered with no snapshot") from None
    children = _from_text(content) if isinstance(content, str) else _from_tree(content)
    return Node("document", children=tuple(children))


_KNOWN = ("role", "name", "ref", "text", "children")


def _from_tree(nodes: object) -> Iterator[Node]:
    for node in nodes if isinstance(nodes, list) else [nodes]:
        if isinstance(node, str):
            yield Node("text", node, text=node)
        elif isinstance(node, dict):
            children: Any = node.get("children") or []
            text = str(node.get("text") or "")
            if isinstance(children, str):
                children, text = [], text or children
            role = str(node.get("role") or "text")
            yield Node(
                role,
                str(node.get("name") or (text if role == "text" else "")),
                str(node.get("ref") or ""),
                text,
                {key: value for key, value in node.items() if key not in _KNOWN},
                tuple(_from_tree(children)),
            )


_LINE = re.compile(r"(?P<indent> *)- (?P<rest>.*)")
_HEAD = re.compile(
    r"""(?P<role>[a-zA-Z]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?P<attributes>(?: \[[^\]]*\])*)"""
)


def _from_text(text: str) -> Sequence[Node]:
    """Read Playwright's YAML of an aria snapshot: a node a line, children indented below it."""
    entries = [
        (len(match["indent"]), match["rest"]) for match in map(_LINE.fullmatch, text.splitlines()) if match
    ]

    def read(place: int, indent: int) -> tuple[list[Node], dict[str, str], int]:
        nodes: list[Node] = []
        properties: dict[str, str] = {}
        while place < len(entries) and entries[place][0] >= indent:
            line = entries[place][1]
            line = _unquoted(line) if line.startswith(("'", '"')) else line
            below, facts, following = read(place + 1, entries[place][0] + 1)
            if line.startswith("/"):
                key, _, value = line[1:].partition(": ")
                properties[key] = _unquoted(value)
            else:
                nodes.append(_node(line, below, facts))
            place = following
        return nodes, properties, place

    return read(0, 0)[0]


def _node(line: str, children: list[Node], properties: Mapping[str, str]) -> Node:
    head = _HEAD.match(line)
    if line.startswith("text:") or head is None:
        text = _unquoted(line.removeprefix("text:").strip())
        return Node("text", text, text=text)
    attributes: dict[str, Any] = dict(properties)
    for given in re.findall(r"\[([^\]]*)\]", head["attributes"]):
        key, equals, value = given.partition("=")
        attributes[key] = (int(value) if value.isdigit() else value) if equals else True
    ref = str(attributes.pop("ref", ""))
    rest = line[head.end() :].removeprefix(":").strip()
    name = re.sub(r"\\(.)", r"\1", head["name"] or "")
    return Node(head["role"], name, ref, _unquoted(rest), attributes, tuple(children))


def _unquoted(text: str) -> str:
    """A YAML scalar without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    # A quoted key with a value: 'button "a: b"': rest
    match = re.fullmatch(r"'((?:[^']|'')*)'(:.*)?", text)
    return match[1].replace("''", "'") + (match[2] or "") if match else text
