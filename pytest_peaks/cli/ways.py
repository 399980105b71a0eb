"""How a browser can be installed on which machine, and the running of what installs it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_peaks.errors import (
    BrowserNotFoundError,
    MissingLibrariesError,
    PeaksError,
    StartFailedError,
)
from pytest_peaks.session.spec import BrowserName

# A download over a slow line is silent for minutes (Playwright prints every tenth of it, apt every
# package). A connection that is dead they notice themselves; this is for a program that hangs.
STALL = 600.0
# How long Playwright waits for a byte before it tries again, and it tries five times.
# Its own default is 30 s, which makes two and a half minutes at a firewall that drops packets.
DOWNLOAD_TIMEOUT_MS = "10000"
END_GRACE = 2.0

APT_PACKAGES = ("chromium", "chromium-headless-shell")
# Another installation may hold dpkg's lock for a moment.
_APT = ("apt-get", "-y", "-o", "DPkg::Lock::Timeout=60")
APT_UPDATE = (*_APT, "update")
APT_INSTALL = (*_APT, "install", "--no-install-recommends")

# Commands of systems whose package manager peaks leaves to the user, by the tool's name.
_BY_HAND = {
    "apt-get": f"apt-get update && apt-get install -y --no-install-recommends {' '.join(APT_PACKAGES)}",
    "dnf": "dnf install -y chromium-headless",
    "pacman": "pacman -S --noconfirm chromium",
    "apk": "apk add chromium",
    "zypper": "zypper install -y chromium",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which ways there are.

    :ivar system: as ``sys.platform``.
    :ivar root: whether packages can be installed.
    :ivar distribution: ``ID`` and ``ID_LIKE`` of os-release.
    """

    system: str
    root: bool
    distribution: frozenset[str]

    @classmethod
    def here(cls) -> Machine:
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        return cls(sys.platform, root, frozenset(_distribution(Path("/etc/os-release"))))

    @property
    def has_apt(self) -> bool:
        """Whether it is Debian or one of its kind; others carry an ``apt-get`` that is something else."""
        return "debian" in self.distribution and shutil.which("apt-get") is not None


def _distribution(os_release: Path) -> Iterator[str]:
    try:
        text = os_release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for match in re.finditer(r"^(?:ID|ID_LIKE)=(.*)$", text, re.MULTILINE):
        yield from match[1].strip().strip("\"'").split()


class WayFailedError(Exception):
    """A way did not work; says why in a few words."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to install a browser.

    :ivar name: what it is called when it is told what was tried.
    :ivar command: what is run, or what the user has to run, as one would type it.
    :ivar act: runs it; raises :class:`WayFailedError`. None for one that is the user's to run.
    :ivar reason: why it is the user's.
    :ivar mends: the failures that it is good for.
    """

    name: str
    command: str
    act: Callable[[], None] | None
    reason: str = ""
    mends: tuple[type[PeaksError], ...] = (PeaksError,)


def ways(browser: BrowserName, machine: Machine) -> list[Way]:
    """The ways to install `browser` on `machine`, in the order in which they are tried."""
    can_install = machine.root and machine.has_apt
    if browser is BrowserName.CHROMIUM:
        plan = [
            _playwright("install", "chromium-headless-shell", mends=(BrowserNotFoundError, StartFailedError))
        ]
        if machine.system.startswith("linux"):
            reason = "" if can_install else "it needs root, on Debian or Ubuntu"
            plan.append(
                _playwright("install-deps", "chromium", reason=reason, mends=(MissingLibrariesError,))
            )
        return [*plan, *_system_package(machine)]
    if browser in (BrowserName.CHROME, BrowserName.MSEDGE):
        # Playwright would call sudo, which asks for a password where nobody may be listening.
        reason = "" if machine.root or machine.system == "win32" else "it needs root"
        return [_playwright("install", str(browser), reason=reason)]
    return [_playwright("install", *(("--with-deps",) if can_install else ()), str(browser))]


def _playwright(
    verb: str, *arguments: str, reason: str = "", mends: tuple[type[PeaksError], ...] = (PeaksError,)
) -> Way:
    def act() -> None:
        environment = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": DOWNLOAD_TIMEOUT_MS, **os.environ}
        execute((sys.executable, "-m", "playwright", verb, *arguments), environment)

    command = f"playwright {verb} {' '.join(arguments)}"
    return Way(f"Playwright's {verb}", command, None if reason else act, reason, mends)


def _system_package(machine: Machine) -> list[Way]:
    name = "the system's package"
    if machine.system == "darwin":
        return [Way(name, "brew install --cask chromium", None, "Homebrew is the user's")]
    if machine.system == "win32":
        return []
    if machine.has_apt:
        act = _apt if machine.root else None
        return [Way(name, _BY_HAND["apt-get"], act, "" if act else "it needs root")]
    for tool, command in _BY_HAND.items():
        if tool != "apt-get" and shutil.which(tool):
            return [Way(name, command, None, "peaks only runs apt-get")]
    return []


def _apt() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    execute(APT_UPDATE, environment)
    known = {package: _apt_candidate(package) for package in APT_PACKAGES}
    usable = [package for package, version in known.items() if version and "snap" not in version]
    if not usable:
        raise WayFailedError("apt has no Chromium but a snap, which cannot use a session's profile")
    execute((*APT_INSTALL, *usable), environment)


def _apt_candidate(package: str) -> str:
    """The version that apt would install; empty if it knows none. Ubuntu's stubs have ``snap`` in theirs."""
    try:
        done = subprocess.run(
            ["apt-cache", "policy", package],
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"^\s*Candidate: (\S+)", done.stdout.decode(errors="replace"), re.MULTILINE)
    return match[1] if match and match[1] != "(none)" else ""


def execute(command: Sequence[str], environment: Mapping[str, str], *, stall: float = STALL) -> None:
    """Run `command` with its output on our stderr as it comes.

    :param stall: seconds without output after which it is ended.
    :raises WayFailedError: it can't be run, fails, or stalls; quotes the error that it printed.
    """
    try:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise WayFailedError(f"{command[0]} cannot be run: {error.strerror or error}") from error
    assert child.stdout is not None, "it is a pipe"
    relay = _Relay(child.stdout)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.2)
                break
            if time.monotonic() - relay.last > stall:
                raise WayFailedError(f"{command[0]} said nothing for {stall:.0f} s and was ended")
    finally:
        _end(child)
        relay.finish()
    if child.returncode != 0:
        raise WayFailedError(f"{relay.complaint()} (exit code {child.returncode})")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and what it started, if it still runs: it stalled, or Ctrl-C came."""
    if child.poll() is not None:
        return
    from pytest_peaks.session import processes
    from pytest_peaks.session.identity import ProcessIdentity

    identity = ProcessIdentity.of(child.pid)
    if identity is not None:
        processes.end_tree(identity, grace=END_GRACE)
    child.wait()


class _Relay:
    """Copies a child's output to stderr from a thread, and remembers what matters of it."""

    def __init__(self, source: IO[bytes]) -> None:
        self.last = time.monotonic()
        self._source = source
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._copy, name="peaks-relay", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._source:
            for raw in iter(self._source.readline, b""):
                self.last = time.monotonic()
                line = raw.decode(errors="replace")
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line)
                    sys.stderr.flush()
                # Without colours, and a few hundred lines are more than any error has.
                self._lines = [*self._lines[-300:], re.sub(r"\x1b\[[0-9;]*m", "", line).strip()]

    def finish(self) -> None:
        """Wait for the rest; a grandchild may hold the pipe, which is not waited for."""
        self._thread.join(timeout=END_GRACE)

    def complaint(self) -> str:
        """The first line that calls itself an error, else the last one; empty output has none."""
        said = [line for line in self._lines if line]
        errors = [line for line in said if re.match(r"(E:|[Ee]rror\b|ERROR\b|[A-Za-z]*Error:)", line)]
        complaint = (errors or said[-1:] or ["it said nothing"])[0].rstrip(".")
        return re.sub(r"//[^/@\s]+@", "//…@", complaint)  # the password of a mirror or proxy
