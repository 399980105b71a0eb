"""``peaks doctor``: is this machine fit for it, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, Reply
from pytest_peaks.cli.plain import counted
from pytest_peaks.errors import PeaksError, ProblemsFoundError
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.spec import BrowserName, BrowserSpec

if TYPE_CHECKING:
    from pytest_peaks.cli.checks import Check, Subject

MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


@click.command(cls=PeaksCommand)
@project_option
@click.option(
    "--browser", type=click.Choice([str(name) for name in BrowserName]), help="The browser to look at."
)
@click.option(
    "--executable",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Path of the browser's executable. Default: look for one.",
)
@click.option("--no-start", is_flag=True, help="Do not start a browser.")
@click.option("--fix", is_flag=True, help="Set a damaged ledger of desks aside, and make it anew.")
def doctor(
    project: Path | None, browser: str | None, executable: Path | None, *, no_start: bool, fix: bool
) -> Reply:
    """Check this machine and project, and start one browser for real.

    Exits with 0 if nothing keeps tests from running, else with 1.
    """
    subject = _subject(project, browser, executable)
    mended = _mend(subject) if fix else []
    found = list(_examine(subject, start=not no_start))
    problems = [check for check in found if check.status == "problem"]
    warnings = sum(check.status == "warning" for check in found)
    fields = {
        "project": subject.dirs.root,
        "warnings": warnings,
        "problems": len(problems),
        "checks": [check.to_json() for check in found],
        "fixed": mended,
    }
    text = "\n".join([*(f"fixed: {what}" for what in mended), _as_text(found)])
    if problems:
        failure = ProblemsFoundError(
            f"{counted(len(problems), 'problem')}: " + "; ".join(f"{c.name}: {c.detail}" for c in problems),
            hint="; ".join(dict.fromkeys(check.mend for check in problems if check.mend)),
        )
        return Reply(failure.message, fields, text, failure)
    message = f"no problem found, {counted(warnings, 'warning')}"
    return Reply(message, fields, f"{text}\n{message}")


def _mend(subject: Subject) -> list[str]:
    """What was mended; what could not be is for its check to tell."""
    from pytest_peaks.cli.checks.desks import mend_ledger

    try:
        return mend_ledger(subject.dirs)
    except PeaksError:
        return []


def _subject(project: Path | None, browser: str | None, executable: Path | None) -> Subject:
    """What to examine. The command line wins over the environment; an unusable environment is left to its check."""
    from pytest_peaks.cli.checks import Subject
    from pytest_peaks.cli.checks.project import from_environment

    dirs = dirs_of(project)
    try:
        asked = from_environment(dirs.root)
        name, path, ports = asked.browser, asked.executable, asked.ports
    except PeaksError:
        name, path, ports = BrowserName.CHROMIUM, None, WORKER_PORTS
    if browser is not None:
        name = BrowserName(browser)
    if executable is not None:
        path = Path.cwd() / executable.expanduser()
    return Subject(dirs, BrowserSpec(browser=name, executable=path), ports)


def _examine(subject: Subject, *, start: bool) -> Iterator[Check]:
    from pytest_peaks.cli.checks import desks as pool
    from pytest_peaks.cli.checks import examine, machine
    from pytest_peaks.cli.checks import named as sessions
    from pytest_peaks.cli.checks import project as own
    from pytest_peaks.cli.checks import start as trial

    checks = {
        "versions": machine.versions,
        "settings": own.settings,
        "browser": machine.browser,
        "driver": machine.driver,
        "cli": sessions.cli,
        "sandbox": machine.sandbox,
        "display": machine.display,
        "temp-dir": machine.temp_dir,
        "shared-memory": machine.shared_memory,
        "memory": machine.memory,
        "open-files": machine.open_files,
        "loopback": machine.loopback,
        "runtime-dir": own.runtime_dir,
        "project-dirs": own.project_dirs,
        "ports": own.free_ports,
        "records": own.records,
        "leftovers": own.leftovers,
        "named-sessions": sessions.named,
        "saved-logins": own.saved_logins,
        "desks": pool.desks,
    }
    if start:
        checks["start"] = trial.start
    for name, look in checks.items():
        yield from examine(name, look, subject)


def _as_text(checks: list[Check]) -> str:
    lines = []
    for check in checks:
        detail = check.detail.replace("\n", "\n    ")
        lines.append(f"{MARKS[check.status]} {check.name}: {detail}")
        if check.mend:
            lines.append(f"    → {check.mend}")
    return "\n".join(lines)
