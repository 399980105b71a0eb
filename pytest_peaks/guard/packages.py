"""Programs that find the CLI in a package: npx and its kind, Python, Node."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_peaks.guard.outcome import Here, Outcome, program
from pytest_peaks.guard.tables import INERT_MODULES, NODE_OPTIONS, PACKAGE_OPTIONS, PACKAGE_VERBS

CLI = "playwright-cli"
_PACKAGE = "@playwright/cli"
# What is the CLI if its first argument is `cli`.
_PLAYWRIGHT = ("playwright", "playwright-core", "@playwright/test")
_VERSION = re.compile(r"(?<=.)@[^/]*$")
_CLI_SCRIPT = re.compile(r"(?:\S*[/\\])?(?:@playwright[/\\]cli[/\\][\w./\\-]+|cli-client[/\\]cli\.js)")


def playwright(here: Here) -> list[Outcome]:
    return here.call(2) if here.value(1) == "cli" else here.other()


def peaks(here: Here, at: int = 1) -> list[Outcome]:
    at = here.operand(at)
    if here.value(at) == "cli":
        return here.call(at + 1, guarded=True)
    return here.inert() if here.known(at) and here.value(at) != "mcp" else here.other()


def npx(here: Here, at: int = 1) -> list[Outcome]:
    """`npx`, `bunx`, `npm exec`, `pnpm dlx`: the first operand is a package or a program of one."""
    operand = here.operand(at, PACKAGE_OPTIONS | {"-p", "--package", "-c", "--call", "--shell-mode"})
    for index in range(at, min(operand, len(here.words))):
        value = here.value(index)
        if value in ("-c", "--call") and index + 1 < len(here.words):
            return here.script(here.words[index + 1].text, [*here.words[:index], *here.words[index + 2 :]])
        if value.startswith("--call="):
            script = here.words[index].text.part(len("--call="), len(value))
            return here.script(script, [*here.words[:index], *here.words[index + 1 :]])
    if operand >= len(here.words):
        return here.other()
    package = _VERSION.sub("", here.value(operand))
    # With another package or version it is not certain to be the CLI that is run.
    options = {here.value(index) for index in range(at, operand)}
    here = replace(
        here, plain=here.plain and here.value(operand) == CLI and options <= {"--no-install", "--"}
    )
    if program(package) == CLI or package == _PACKAGE:
        return here.call(operand + 1)
    if package in _PLAYWRIGHT:
        return here.call(operand + 2) if here.value(operand + 1) == "cli" else here.other()
    return here.rest(operand)


def package_manager(here: Here) -> list[Outcome]:
    """`npm`, `pnpm`, `yarn`, `bun`."""
    at = here.operand(1, PACKAGE_OPTIONS)
    if here.name == "yarn" and here.value(at) == "workspace":
        at += 2
    verb = here.value(at)
    if verb in ("exec", "x", "dlx"):
        return npx(here, at + 1)
    if at >= len(here.words) or verb in PACKAGE_VERBS:
        return here.inert()
    if here.name == "npm":
        return here.other()
    return npx(here, at + 1 if verb == "run" else at)


def python(here: Here) -> list[Outcome]:
    here = replace(here, plain=False)
    at = here.operand(1, {"-W", "-X"})
    for index in range(1, min(at, len(here.words))):
        if here.value(index) == "-c":
            return here.other()
        if here.value(index) == "-m":
            module = here.value(index + 1)
            if module == "playwright":
                return here.call(index + 3) if here.value(index + 2) == "cli" else here.other()
            if module in ("pytest_peaks", "pytest_peaks.cli"):
                return peaks(here, index + 2)
            return here.inert() if module in INERT_MODULES else here.other()
    return _script_file(here, at)


def node(here: Here) -> list[Outcome]:
    return _script_file(replace(here, plain=False), here.operand(1, NODE_OPTIONS))


def _script_file(here: Here, at: int) -> list[Outcome]:
    script = here.value(at)
    if program(script) == CLI or _CLI_SCRIPT.fullmatch(script):
        return here.call(at + 1)
    if "playwright" in script and here.value(at + 1) == "cli":
        return here.call(at + 2)
    return here.other(at)
