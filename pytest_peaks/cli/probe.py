"""Ask an executable which browser it is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from pytest_peaks.errors import MissingLibrariesError, StartFailedError

# `--version` takes 0.02 s, and seconds from a cold network disk.
VERSION_TIMEOUT = 20.0

_SHELL_NAMES = ("headless_shell", "headless-shell")


def is_headless_shell(executable: Path) -> bool:
    """Whether it is the small build of Chromium that never shows a window; told by its name."""
    return any(name in executable.name for name in _SHELL_NAMES)


def version_of(executable: Path) -> str:
    """What ``executable --version`` says, such as ``Chromium 156.0.1.2``; empty if it says nothing.

    :raises MissingLibrariesError: the dynamic linker did not find a library; names it.
    :raises StartFailedError: it can't be run, fails, or does not end in time.
    """
    if os.name == "nt":
        return ""  # chrome.exe knows no --version and would open a window
    hint = "name another one with --executable, or run `peaks install`"
    try:
        done = subprocess.run(
            [executable, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=VERSION_TIMEOUT,
        )
    except OSError as error:
        raise StartFailedError(f"{executable} cannot be run: {error.strerror or error}", hint=hint) from error
    except subprocess.TimeoutExpired:
        raise StartFailedError(
            f"{executable} --version did not end within {VERSION_TIMEOUT:.0f} s", hint=hint
        ) from None
    said = done.stdout.decode(errors="replace").strip()
    complaint = done.stderr.decode(errors="replace").strip()
    library = re.search(r"error while loading shared libraries: (\S+?):", complaint)
    if library:
        raise MissingLibrariesError(
            f"{executable} needs the shared library {library[1]}, which is not installed",
            hint="run `playwright install-deps chromium` as root, or install the system's own chromium package",
        )
    if done.returncode != 0:
        last = complaint.splitlines()[-1] if complaint else "it said nothing"
        raise StartFailedError(
            f"{executable} --version failed with status {done.returncode}: {last}", hint=hint
        )
    return said.splitlines()[0].strip() if said else ""
