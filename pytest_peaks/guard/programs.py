"""What a command of the shell runs in the end: the CLI, a script, something inert, or who knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_peaks.guard import packages
from pytest_peaks.guard.outcome import Environment, Here, Kind, Outcome, program, unknown_word, with_holes
from pytest_peaks.guard.tables import (
    INERT,
    PACKAGE_VERBS,
    PARALLEL_OPTIONS,
    PLAIN_WRAPPERS,
    RUNNER_OPTIONS,
    RUNNERS,
    SHELLS,
    SUDO_OPTIONS,
    WRAPPERS,
    XARGS_OPTIONS,
)
from pytest_peaks.guard.text import HOLE, Text, Word, script_of

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?")
_GIT_RUNS = re.compile(r"(?:alias\.|core\.|filter\.|diff\.|.*\.cmd)|--exec|-x|--upload-pack|--receive-pack")
_AWK_RUNS = re.compile(r"system|getline|\|")
_SED_RUNS = re.compile(r"(?:^|[;{}\n]|[\d$/])\s*e(?:\s|$)|[^\w\s][gpiImM\d]*e[gpiImMw\d]*\s*(?:$|[;}\n])")


def resolve(words: Sequence[Word], environment: Environment, plain: bool = True) -> list[Outcome]:  # noqa: FBT001, FBT002
    """What the command of these words runs, in the given additions to the environment."""
    if not words:
        return []
    value = words[0].value
    if HOLE in value:
        # Of `$HOME/bin/playwright-cli` the folder does not matter.
        folder, _, value = value.rpartition("/")
        if not folder or not value or HOLE in value:
            return [Outcome(Kind.DYNAMIC, words)]
        plain = False
    name = program(value)
    here = Here(name, words, environment, plain and name == value, resolve)
    if name == packages.CLI:
        return here.call(1)
    handler = _HANDLERS.get(name)
    if handler is None and _PYTHON.fullmatch(name):
        handler = packages.python
    if handler is not None:
        return handler(here)
    return here.inert() if name in INERT else here.other()


def _wrapper(here: Here) -> list[Outcome]:
    takes, operands = WRAPPERS[here.name]
    return here.rest(here.operand(1, takes) + operands, plain=here.name in PLAIN_WRAPPERS)


def _runner(here: Here) -> list[Outcome]:
    at = here.operand(1, RUNNER_OPTIONS)
    if here.value(at) != RUNNERS[here.name]:
        return here.inert() if here.value(at) in PACKAGE_VERBS else here.other()
    return here.rest(here.operand(at + 1, RUNNER_OPTIONS))


def _env(here: Here) -> list[Outcome]:
    environment = dict(here.environment)
    at = 1
    while at < len(here.words):
        word = here.words[at]
        value = word.value
        if value in ("-i", "-", "--ignore-environment"):
            environment.clear()
        elif value in ("-S", "--split-string"):
            return _split_string(here, script_of(here.words[at + 1 :]))
        elif value.startswith(("-S", "--split-string=")):
            cut = 2 if value.startswith("-S") else len("--split-string=")
            head = replace(word, text=word.text.part(cut, len(value)))
            return _split_string(here, script_of([head, *here.words[at + 1 :]]))
        elif value in ("-u", "--unset", "-C", "--chdir"):
            at += 1
            if value in ("-u", "--unset"):
                environment.pop(here.value(at), None)
        elif match := re.match(r"(\w+)=", value):
            environment[match[1]] = word.text.part(match.end(), len(value))
        elif value == "--":
            pass
        elif not value.startswith("-"):
            break
        at += 1
    if at >= len(here.words) and not all(word.known for word in here.words):
        return here.other(next(index for index, word in enumerate(here.words) if not word.known))
    return here.rest(at, environment)


def _split_string(here: Here, text: Text) -> list[Outcome]:
    """`env -S`, which is no shell: the end of a line is a space to it."""
    return here.other() if "\n" in text.chars else here.script(text)


def _sudo(here: Here) -> list[Outcome]:
    at = here.operand(1, SUDO_OPTIONS)
    environment = {}  # sudo passes on what it is given on its command line
    while match := re.match(r"(\w+)=", here.value(at)):
        environment[match[1]] = here.words[at].text.part(match.end(), len(here.value(at)))
        at += 1
    return here.rest(at, environment)


def _command(here: Here) -> list[Outcome]:
    at = here.operand(1)
    if any(here.value(index) in ("-v", "-V", "-pv", "-pV") for index in range(1, at)):
        return here.inert()
    return here.rest(at)


def _coproc(here: Here) -> list[Outcome]:
    at = 1
    for index in (1, 2):  # `coproc NAME { …`, which the grammar does not know
        if here.value(index) in ("{", "("):
            at = index + 1
    return here.rest(at)


def _xargs(here: Here) -> list[Outcome]:
    at = here.operand(1, XARGS_OPTIONS)
    placeholder = ""
    for index in range(1, at):
        value = here.value(index)
        if value in ("-I", "-J"):
            placeholder = here.value(index + 1)
        elif value.startswith("-I"):
            placeholder = value[2:]
        elif value.startswith(("-i", "--replace")):
            placeholder = value.removeprefix("--replace").removeprefix("-i").removeprefix("=") or "{}"
    words = list(here.words[at:])
    if placeholder:
        words = [with_holes(word, placeholder) for word in words]
    elif words:
        words.append(unknown_word(words[-1]))
    return resolve(words, here.environment, False) or here.inert()


def _parallel(here: Here) -> list[Outcome]:
    at = here.operand(1, PARALLEL_OPTIONS)
    words = [with_holes(word, "{}") for word in here.words[at:]]
    for index, word in enumerate(words):
        if word.value.startswith(":::"):
            words = words[:index]
            break
    if not words:
        return here.other()
    return here.script(script_of([*words, unknown_word(words[-1])]))


def _watch(here: Here) -> list[Outcome]:
    at = here.operand(1, {"-n", "--interval", "-q", "--equexit"})
    return here.script(script_of(here.words[at:]))


def _flock(here: Here) -> list[Outcome]:
    at = here.operand(1, {"-w", "--wait", "--timeout", "-E", "--conflict-exit-code"}) + 1
    if here.value(at) in ("-c", "--command"):
        return here.script(script_of(here.words[at + 1 : at + 2]))
    return here.rest(at)


def _with_script_option(here: Here) -> list[Outcome]:
    """`script -c …`, `su -c …`."""
    for index, word in enumerate(here.words):
        if re.fullmatch(r"-[a-z]*c|--command", word.value) and index + 1 < len(here.words):
            return here.script(here.words[index + 1].text, here.words[:index])
        if word.value.startswith("--command="):
            return here.script(word.text.part(len("--command="), len(word.value)), here.words[:index])
    if here.name == "script":
        return here.rest(here.operand(1, {"-I", "-O", "-B", "-T", "-E", "-o"}) + 1)
    return here.other()


def _shell(here: Here) -> list[Outcome]:
    at = 1
    reads_script = from_stdin = False
    while at < len(here.words):
        value = here.value(at)
        if value == "--":
            at += 1
            break
        if not value.startswith(("-", "+")) or value == "-":
            break
        if not value.startswith("--"):
            reads_script = reads_script or "c" in value
            from_stdin = from_stdin or "s" in value
        at += 2 if re.fullmatch(r"[-+][a-zA-Z]*[oO]|--rcfile|--init-file", value) else 1
    if reads_script and at < len(here.words):
        return here.script(here.words[at].text)
    if from_stdin or at >= len(here.words) or here.value(at) in ("-", "/dev/stdin"):
        return here.stdin()
    return here.other(at)


def _eval(here: Here) -> list[Outcome]:
    return here.script(script_of(here.words[here.operand(1) :]))


def _source(here: Here) -> list[Outcome]:
    if here.value(1) in ("-", "/dev/stdin"):
        return here.stdin()
    return here.other(1)


def _trap(here: Here) -> list[Outcome]:
    at = here.operand(1)
    if at > 1 and here.value(1) in ("-l", "-p"):
        return here.inert()
    return here.script(here.words[at].text) if at + 1 < len(here.words) else here.inert()


def _find(here: Here) -> list[Outcome]:
    found: list[Outcome] = []
    others: list[Word] = []
    at = 0
    while at < len(here.words):
        if here.value(at) in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(here.words) and here.value(end) not in (";", "+"):
                end += 1
            command = [with_holes(word, "{}") for word in here.words[at + 1 : end]]
            found += resolve(command, here.environment, False)
            at = end
        else:
            others.append(here.words[at])
        at += 1
    return [*found, Outcome(Kind.INERT, others)]


def _filter(here: Here) -> list[Outcome]:
    """`sed` and `awk`, whose scripts can run commands."""
    pattern = _SED_RUNS if "sed" in here.name else _AWK_RUNS
    if any(word.value.startswith("-f") or pattern.search(word.value) for word in here.words[1:]):
        return here.other()
    return here.inert()


def _direnv(here: Here) -> list[Outcome]:
    return here.rest(3) if here.value(1) == "exec" else here.other()


def _git(here: Here) -> list[Outcome]:
    values = [word.value for word in here.words[1:]]
    if any(_GIT_RUNS.match(value) for value in values) or {"run", "foreach", "filter-branch"} & set(values):
        return here.other()
    return here.inert()


_HANDLERS: Mapping[str, Callable[[Here], list[Outcome]]] = {
    **dict.fromkeys(WRAPPERS, _wrapper),
    **dict.fromkeys(RUNNERS, _runner),
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(("npx", "bunx", "pnpx"), packages.npx),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), packages.package_manager),
    **dict.fromkeys(("playwright", "playwright-core"), packages.playwright),
    **dict.fromkeys(("node", "nodejs"), packages.node),
    **dict.fromkeys(("sed", "gsed", "awk", "gawk", "mawk"), _filter),
    **dict.fromkeys(("script", "su", "runuser"), _with_script_option),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("env", "cross-env"), _env),
    "command": _command,
    "coproc": _coproc,
    "direnv": _direnv,
    "eval": _eval,
    "find": _find,
    "flock": _flock,
    "git": _git,
    "parallel": _parallel,
    "peaks": packages.peaks,
    "sudo": _sudo,
    "trap": _trap,
    "watch": _watch,
    "xargs": _xargs,
}
