"""Checks of named sessions: the wheel's playwright-cli, the project's rules for names, what is open."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from pytest_peaks.cli.checks import Check, Subject
from pytest_peaks.cli.plain import counted

# Node needs a quarter of a second for it.
VERSION_TIMEOUT = 60.0


def cli(_: Subject) -> Iterator[Check]:
    """Whether the wheel's own playwright-cli runs, and has what `peaks cli` builds on."""
    from pytest_peaks.doors import bundled, cli_line

    commands = len(cli_line.surface().commands)
    daemon = bundled.cli_daemon_script()
    done = subprocess.run(
        [*bundled.driver_command(), "cli", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=VERSION_TIMEOUT,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        yield Check(
            "cli",
            "problem",
            f"playwright-cli --version exits with {done.returncode}: {' '.join(said)}",
            "pip install --force-reinstall playwright",
        )
        return
    version = done.stdout.strip().removeprefix("Version ")
    yield Check("cli", "ok", f"playwright-cli {version}, {commands} commands, run by {daemon.name}")


def named(subject: Subject) -> Iterator[Check]:
    """What ``[tool.peaks]`` says about named sessions, and how many are open."""
    from pytest_peaks.named import sessions
    from pytest_peaks.named.settings import read_settings

    settings = read_settings(subject.dirs.root)
    found = sessions.look(subject.dirs)
    dead = [session.name for session in found if session.state == "dead"]
    detail = f"{counted(len(found) - len(dead), 'session')} of at most {settings.max_sessions} open"
    if dead:
        mend = "`peaks reap` clears them away, and so does the next `peaks cli open`"
        yield Check("named-sessions", "warning", f"{detail}; dead: {', '.join(dead)}", mend)
    else:
        yield Check("named-sessions", "ok", detail)
