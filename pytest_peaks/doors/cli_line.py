"""How playwright-cli reads a command line, and which commands it has.

The commands come from the wheel's own description (``help.json``); the reading follows its client.
`tests/test_cli_contract.py` holds both against the original.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_peaks.errors import CliUsageError

Args = dict[str, Any]

# Flags that the client takes before it looks for the command.
GLOBAL_OPTIONS = ("json", "raw", "session")
_BOOLEANS = ("all", "g", "help", "json", "raw", "version")
# How a command names an element of a snapshot; the second is Playwright's own spelling of the first.
REF = re.compile(r"(?:aria-ref=)?((?:f[0-9]+)?e[0-9]+)")
# What the original takes for the end of an option's name, or finds in every object of JavaScript.
_LINE_END = re.compile("[\n\r\u2028\u2029]")
_NO_OPTIONS = frozenset(
    {
        "_",
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
    }
    | {"valueOf", "__proto__"}
    | {f"__{verb}{what}__" for verb in ("define", "lookup") for what in ("Getter", "Setter")}
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of playwright-cli.

    :ivar args: names of its positional arguments, in order.
    :ivar flags: its options, ``boolean`` or ``string``.
    :ivar always_raw: it answers with the bare value in any case.
    """

    name: str
    help: str
    args: tuple[str, ...]
    flags: Mapping[str, str]
    variadic: bool
    always_raw: bool

    @property
    def targets(self) -> tuple[int, ...]:
        """Places of the positional arguments that name an element."""
        return tuple(place for place, name in enumerate(self.args) if name.lower().endswith("target"))


@dataclass(frozen=True, slots=True)
class Surface:
    """What the installed playwright-cli offers."""

    help: str
    commands: Mapping[str, Command]
    booleans: frozenset[str]


@functools.cache
def surface() -> Surface:
    """The commands of the installed playwright-cli.

    :raises DriverFailedError: the installed Playwright has no CLI.
    """
    from pytest_peaks.doors.bundled import cli_surface_file

    data = json.loads(cli_surface_file().read_text(encoding="utf-8"))
    commands = {
        name: Command(
            name,
            entry["help"],
            tuple(entry.get("args", ())),
            entry.get("flags", {}),
            bool(entry.get("variadicArg")),
            bool(entry.get("raw")),
        )
        for name, entry in data["commands"].items()
    }
    return Surface(data["global"], commands, frozenset([*data["booleanOptions"], *_BOOLEANS]))


def parse(argv: Sequence[str], booleans: Iterable[str] = ()) -> Args:
    """Read a command line as playwright-cli does: options by name, and what is none of them under ``_``.

    Of short options there are ``-s``, ``-g``, ``-h`` and ``-v``; the original's bundles of letters are
    refused, since no command takes any.

    :raises CliUsageError: it can't be read.
    """
    words = list(argv)
    rest: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, rest = words[:cut], words[cut + 1 :]
    args = _Words(words, frozenset(booleans)).read()
    args["_"] += rest
    if args.get("s"):
        args["session"] = args.pop("s")
    return args


class _Words:
    """The words of a command line while they are read."""

    def __init__(self, words: list[str], booleans: frozenset[str]) -> None:
        self._words = words
        self._booleans = booleans
        self._args: Args = {"_": []}

    def read(self) -> Args:
        place = 0
        while place < len(self._words):
            word = self._words[place]
            if word.startswith("--") and len(word) > 2:
                place += self._long(word, place)
            elif re.match(r"-[A-Za-z]", word):
                place += self._short(word, place)
            else:
                self._args["_"].append(word)
                place += 1
        return self._args

    def _long(self, word: str, place: int) -> int:
        """Read an option; how many words it took."""
        name, equals, value = word[2:].partition("=")
        if not name or _LINE_END.search(name):
            raise CliUsageError(f"{word.splitlines()[0]!r} is no option")
        if equals:
            if name in self._booleans:
                raise CliUsageError(f"--{name} takes no value: --{name} or --no-{name}")
            self._put(name, value)
        elif name.startswith("no-") and len(name) > 3:
            self._put(name[3:], False)
        else:
            return self._with_next(name, place)
        return 1

    def _short(self, word: str, place: int) -> int:
        if len(word) == 2:
            if self._words[place + 1 : place + 2] == [""]:  # no value of a short option
                self._put(word[1], True)
                return 1
            return self._with_next(word[1], place)
        if not word.startswith("-s=") or word == "-s=":
            raise CliUsageError(f"unknown option: {word}")
        self._put("s", word[3:])
        return 1

    def _with_next(self, key: str, place: int) -> int:
        following = self._words[place + 1] if place + 1 < len(self._words) else None
        if following is not None and key not in self._booleans and not re.match(r"--?[^-]", following):
            self._put(key, following)
            return 2
        if following in ("true", "false"):
            self._put(key, following == "true")
            return 2
        self._put(key, True)
        return 1

    def _put(self, key: str, value: Any) -> None:
        if key in _NO_OPTIONS:
            raise CliUsageError(f"unknown option: --{key}")
        known = self._args.get(key)
        if known is None or key in self._booleans or isinstance(known, bool):
            self._args[key] = value
        elif isinstance(known, list):
            known.append(value)
        else:
            self._args[key] = [known, value]


def check(args: Args, own_flags: Iterable[str] = ()) -> Command:
    """The command that a parsed command line names, if its options and arguments are such as it takes.

    :param own_flags: options that are taken besides.
    :raises CliUsageError: they are not; with the CLI's own words, and the command's help as the hint.
    """
    known = surface()
    name = args["_"][0] if args["_"] else ""
    command = known.commands.get(name)
    if command is None:
        import difflib

        close = difflib.get_close_matches(name, known.commands, n=1)
        hint = f"did you mean {close[0]}?" if close else "`peaks cli --help` lists the commands"
        raise CliUsageError(f"Unknown command: {name}", hint=hint)
    unknown = [
        key
        for key, value in args.items()
        if key != "_"
        and key not in (*GLOBAL_OPTIONS, *own_flags)
        and key not in command.flags
        and not (value is False and f"no-{key}" in command.flags)
    ]
    hint = f"`peaks cli --help {command.name}` says what it takes"
    if unknown:
        options = ", ".join(f"--{key}" for key in unknown)
        raise CliUsageError(f"Unknown option{'s' if len(unknown) > 1 else ''}: {options}", hint=hint)
    given = len(args["_"]) - 1
    if given > len(command.args) and not command.variadic:
        raise CliUsageError(f"too many arguments: expected {len(command.args)}, received {given}", hint=hint)
    return command
