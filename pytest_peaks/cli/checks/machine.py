"""Checks of the machine: versions, the browser, and what a browser needs of the system."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.cli.checks import Check, Subject
from pytest_peaks.cli.probe import is_headless_shell, version_of
from pytest_peaks.session import browsers, paths
from pytest_peaks.session import machine as allowed

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

MB = 1024 * 1024
# What a headless Chromium with a page or two takes, by the memory that it shares with nobody.
MEMORY_PER_BROWSER = 200 * MB
# Docker gives a container this much unless told otherwise.
SMALL_SHARED_MEMORY = 64 * MB
# A Chromium opens about a hundred files and each worker a few dozen.
ENOUGH_FILES = 1024
# Profiles of one run take a few MB each; below this Chromium begins to fail in odd ways.
ENOUGH_DISK = 200 * MB


def versions(_: Subject) -> Iterator[Check]:
    """Python and the packages that matter, held against what pytest-peaks asks for."""
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    wanted = _requirements()
    for name in ("pytest-peaks", "pytest", "pytest-xdist", "playwright"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name == "pytest-xdist":
                yield Check(
                    name, "warning", "not installed: tests run one after the other", f"pip install {name}"
                )
            else:
                yield Check(name, "problem", "not installed", f"pip install {name}")
            continue
        needed = wanted.get(name)
        if needed is not None and not needed.contains(version, prereleases=True):
            yield Check(
                name, "problem", f"{version}, but {needed} is needed", f"pip install '{name}{needed}'"
            )
        else:
            yield Check(name, "ok", version)


def _requirements() -> dict[str, SpecifierSet]:
    """The versions that pytest-peaks asks for, by package, those of its xdist extra included."""
    from packaging.requirements import Requirement

    wanted: dict[str, SpecifierSet] = {}
    with contextlib.suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("pytest-peaks") or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": "xdist"}):
                wanted[requirement.name] = requirement.specifier
    return wanted


def browser(subject: Subject) -> Iterator[Check]:
    """The browser that tests would get, and whether its executable runs."""
    found = browsers.find(subject.spec)
    if found.executable is None:
        yield Check("browser", "ok", f"{found}, which Playwright launches by itself")
        return
    kind = "headless shell" if is_headless_shell(found.executable) else "full browser"
    version = version_of(found.executable) or "version unknown"
    yield Check("browser", "ok", f"{version}: {found.executable} ({kind}, from {found.source})")


def driver(_: Subject) -> Iterator[Check]:
    """Playwright's node and its script, looked up as Playwright does; neither is started."""
    spec = find_spec("playwright")
    places = spec.submodule_search_locations if spec else None
    if not places:
        yield Check("driver", "problem", "Playwright is not installed", "pip install playwright")
        return
    folder = Path(places[0]) / "driver"
    chosen = os.environ.get("PLAYWRIGHT_NODEJS_PATH")
    node = Path(chosen) if chosen else folder / ("node.exe" if os.name == "nt" else "node")
    missing = [str(file) for file in (node, folder / "package" / "cli.js") if not file.is_file()]
    if missing:
        mend = "correct PLAYWRIGHT_NODEJS_PATH" if chosen else "pip install --force-reinstall playwright"
        yield Check("driver", "problem", f"{' and '.join(missing)} not there", mend)
    else:
        yield Check("driver", "ok", str(node))


def sandbox(subject: Subject) -> Iterator[Check]:
    """Whether Chromium's sandbox is used."""
    if not subject.spec.browser.is_chromium:
        return
    seen = allowed.sandbox()
    if seen.usable:
        yield Check("sandbox", "ok", f"on: {seen.reason}")
    else:
        yield Check(
            "sandbox",
            "warning",
            f"off: {seen.reason}",
            "fine for pages that you trust; an ordinary user outside of a container has it",
        )


def temp_dir(_: Subject) -> Iterator[Check]:
    """The folder for short temp dirs, and the room on its disk."""
    base = paths.temp_base()
    asked = Path(tempfile.gettempdir())
    free = shutil.disk_usage(base).free
    detail = f"{base} ({len(str(base))} characters, {free // MB} MB free)"
    if base != asked:
        detail += f", since {asked} is too long for Chromium's socket"
    if free < ENOUGH_DISK:
        yield Check("temp-dir", "warning", detail, "make room, or set TMPDIR to a disk that has some")
    else:
        yield Check("temp-dir", "ok", detail)


def shared_memory(_: Subject) -> Iterator[Check]:
    """/dev/shm, which Chromium would use."""
    if not sys.platform.startswith("linux"):
        return
    try:
        size = shutil.disk_usage("/dev/shm").total
    except OSError:
        yield Check("shared-memory", "ok", "no /dev/shm; handled: Chromium is told not to use it")
        return
    detail = f"/dev/shm has {size // MB} MB"
    if size <= SMALL_SHARED_MEMORY:
        detail += ", which is small; handled: Chromium is told not to use it"
    yield Check("shared-memory", "ok", detail)


def display(_: Subject) -> Iterator[Check]:
    """Whether a window could be shown."""
    if allowed.has_display():
        yield Check("display", "ok", "there is one")
    else:
        yield Check("display", "ok", "none: only --peaks-headed needs one (xvfb-run -a pytest …)")


def loopback(_: Subject) -> Iterator[Check]:
    """Whether 127.0.0.1 and ::1 can be listened on and reached."""
    failures = {
        host: _loopback_failure(family, host)
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
    }
    if failures["127.0.0.1"]:
        yield Check(
            "loopback",
            "problem",
            f"127.0.0.1 cannot be used: {failures['127.0.0.1']}",
            "bring the loopback interface up; a sandbox or firewall may forbid it",
        )
    else:
        six = f"no ::1 ({failures['::1']}), which is not needed" if failures["::1"] else "::1"
        yield Check("loopback", "ok", f"127.0.0.1 and {six}")


def _loopback_failure(family: socket.AddressFamily, host: str) -> str:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
            listener.listen(1)
            with socket.create_connection(listener.getsockname()[:2], timeout=5):
                return ""
    except OSError as error:
        return error.strerror or str(error)


def memory(_: Subject) -> Iterator[Check]:
    """How many browsers the free memory would hold."""
    import psutil

    available = psutil.virtual_memory().available
    limit = _container_limit()
    if limit is not None:
        available = min(available, limit)
    room = available // MEMORY_PER_BROWSER
    detail = f"{available // MB} MB available, enough for about {room} browsers"
    if room < 1:
        yield Check("memory", "warning", detail, "end something else, or run fewer workers")
    else:
        yield Check("memory", "ok", detail)


def _container_limit() -> int | None:
    """Bytes that this process's container may take at most; None where there is no limit (cgroup v2, then v1)."""
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int((Path("/sys/fs/cgroup") / file).read_text())
    return None


def open_files(_: Subject) -> Iterator[Check]:
    """The limit of open files."""
    if sys.platform == "win32":
        return
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < ENOUGH_FILES:
        yield Check("open-files", "warning", f"at most {soft}", f"ulimit -n {4 * ENOUGH_FILES}")
    else:
        yield Check("open-files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")
