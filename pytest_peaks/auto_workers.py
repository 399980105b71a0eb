"""How many workers ``pytest -n auto`` starts: xdist's number, or fewer where browsers would not fit.

xdist counts the machine's cores. It does not see that a container may use two of them, and a worker that
needs no memory to speak of needs some hundred megabytes once it has a browser.

Whoever says a number wins: ``-n 4``, ``PYTEST_XDIST_AUTO_NUM_WORKERS``, and any other implementation of the
hook, in a ``conftest.py`` or a plugin. The number is only ever lowered, and only for suites that use peaks.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks import config as settings
from pytest_peaks.errors import PeaksError

if TYPE_CHECKING:
    import pytest

    from pytest_peaks.config import PeaksConfig

GB = 1024**3
# A worker with its driver and its browser, measured with `python benchmarks/growth.py`: 200 to 320 MB with a
# small page. The rest is for the pages of real sites. A full browser needs twice what a headless shell does.
WITH_A_SHELL = int(0.4 * GB)
WITH_A_BROWSER = int(0.7 * GB)

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
# What cgroup v1 says where there is no limit is a little below 2**63, depending on the size of a page.
_NO_LIMIT = 2**60
# In the file of a test that uses this plugin: a fixture's name, or the marker's.
_OURS = re.compile(rb"\bpeaks_[a-z]")
_NOT_TESTS = {"node_modules", "site-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Room:
    """What this process and its children may use.

    :ivar cpus: how many CPUs at once; a cgroup's quota may be a fraction.
    :ivar memory: bytes that are free.
    """

    cpus: float = math.inf
    memory: float = math.inf

    def within(self, other: Room) -> Room:
        return Room(min(self.cpus, other.cpus), min(self.memory, other.memory))


@dataclass(frozen=True, slots=True)
class Fit:
    """How many workers fit, and why not as many as were asked for; no reason if they all do."""

    number: int
    reason: str = ""


def fit(asked: int, room: Room, per_worker: int) -> Fit:
    """The number of workers, at least one and at most `asked`, for which CPUs and memory suffice.

    :param per_worker: bytes of memory that a worker takes with its browser.
    """
    by_cpus = math.inf if math.isinf(room.cpus) else math.floor(room.cpus)
    by_memory = math.inf if math.isinf(room.memory) else room.memory // per_worker
    number = int(max(1, min(asked, by_cpus, by_memory)))
    if number >= asked:
        return Fit(asked)
    if by_cpus <= by_memory:
        return Fit(
            number, f"{room.cpus:g} CPUs may be used here" if room.cpus != 1 else "one CPU may be used"
        )
    return Fit(
        number,
        f"{room.memory / GB:.1f} GB of memory are free, and a worker with its browser takes "
        f"{per_worker / GB:.1f} GB",
    )


def number_of_workers(config: pytest.Config) -> int | None:
    """The number for ``-n auto`` and ``-n logical``; None leaves it to the other implementations of the hook."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or _somebody_else_decides(config):
        return None
    from xdist.plugin import pytest_xdist_auto_num_workers as number_of_xdist

    try:
        read = settings.read(config)
        if not read.auto_workers or read.attach:  # the browsers are not here
            return None
        needed = memory_of_a_worker(read)
    except PeaksError:
        return None  # pytest_configure says what is wrong
    asked: int = number_of_xdist(config)
    found = fit(asked, room(), needed)
    if not found.reason or not (read.bridge or uses_peaks(config)):
        return None
    told = f"-n {config.option.numprocesses}: {_plural(found.number)}, not {asked}"
    config.pluginmanager.register(
        _Header(f"peaks: {told}: {found.reason} (peaks_auto_workers)"), "peaks-auto-workers"
    )
    return found.number


class _Header:
    """Says the number and the reason at the top of the run."""

    def __init__(self, line: str) -> None:
        self._line = line

    def pytest_report_header(self) -> str:
        return self._line


def _plural(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"


def _somebody_else_decides(config: pytest.Config) -> bool:
    implementations = config.hook.pytest_xdist_auto_num_workers.get_hookimpls()
    known = ("xdist.plugin", "pytest_peaks.plugin")
    return any(found.function.__module__ not in known for found in implementations)


def memory_of_a_worker(read: PeaksConfig) -> int:
    """Bytes that a worker takes with the browser of a run.

    :raises PeaksError: there is no such browser.
    """
    from pytest_peaks.session import browsers

    executable = browsers.find(read.browser_spec).executable
    shell = executable is not None and "headless" in executable.name
    return WITH_A_SHELL if shell and not read.headed else WITH_A_BROWSER


def uses_peaks(config: pytest.Config) -> bool:
    """Whether a file of the suite names a fixture or the marker of this plugin.

    The controller does not collect, so the files are searched for the name. A suite that takes them from a
    plugin of its own is not found, and gets xdist's number.
    """
    return any(_names_ours(path) for path in _files_of(config))


def _names_ours(path: Path) -> bool:
    try:
        return _OURS.search(path.read_bytes()) is not None
    except OSError:
        return False


def _files_of(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0])
        folder = path if path.is_dir() else path.parent
        for parent in (folder, *folder.parents):
            yield parent / "conftest.py"
            if parent == config.rootpath:
                break
        if not path.is_dir():
            yield path
            continue
        for place, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if name not in _NOT_TESTS and _is_open(place, name))
            yield from (Path(place, name) for name in sorted(files) if name.endswith(".py"))


def _is_open(place: str, name: str) -> bool:
    """Whether a folder may hold tests: neither hidden nor a virtual environment."""
    return not name.startswith(".") and not Path(place, name, "pyvenv.cfg").exists()


def room() -> Room:
    """What this process may use of the machine: affinity, free memory, and the limits of its cgroups."""
    import psutil

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    here = Room(float(cpus or 1), float(psutil.virtual_memory().available))
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return here
    return here.within(room_of_cgroups(lines, _CGROUPS))


def room_of_cgroups(lines: list[str], root: Path) -> Room:
    """What the cgroups of a process leave to it, of version 2 and of version 1.

    :param lines: of ``/proc/self/cgroup``.
    :param root: where cgroups are mounted.
    """
    found = Room()
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            for folder in _levels(root, path):
                found = found.within(_version_2(folder))
        for name in {"cpu", "memory"} & set(controllers.split(",")):
            for folder in (*_levels(root / controllers, path), *_levels(root / name, path)):
                found = found.within(_version_1(folder))
    return found


def _levels(mount: Path, path: str) -> Iterator[Path]:
    """A cgroup and those around it. In a container the path may start outside of what is mounted."""
    inner = Path(path.lstrip("/"))
    if ".." in inner.parts:
        inner = Path()
    yield from (mount / level for level in (inner, *inner.parents))


def _version_2(folder: Path) -> Room:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    limits = [
        number for name in ("memory.max", "memory.high") if (number := _number(folder / name)) is not None
    ]
    used = _number(folder / "memory.current")
    return Room(_quota(quota, period), _free(min(limits, default=None), used, folder, "inactive_file"))


def _version_1(folder: Path) -> Room:
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
    return Room(_quota(quota, period), _free(limit, used, folder, "total_inactive_file"))


def _quota(quota: str, period: str) -> float:
    if quota.isdigit() and period.isdigit() and int(quota) and int(period):
        return int(quota) / int(period)
    return math.inf  # "max", -1, or no such file


def _free(limit: int | None, used: int | None, folder: Path, cache: str) -> float:
    if limit is None or limit >= _NO_LIMIT:
        return math.inf
    # Cached files count as used, and go when memory is asked for.
    match = re.search(rf"^{cache} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return float(max(0, limit - (used or 0) + (int(match[1]) if match else 0)))


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
