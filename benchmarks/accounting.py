"""What a run uses: CPU seconds of every process that it starts, and memory of all of them at once. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
# A browser or a guardian that is told to end is gone in a tenth of a second.
LINGERING = 20.0
LOOKS = 4
BETWEEN_LOOKS = 0.15


@dataclass(frozen=True)
class Usage:
    """What one command took: seconds until it ended, and CPU seconds of it and all that it started."""

    seconds: float
    cpu: float


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Have processes whose parent dies become children of this one, so that their CPU time is counted."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def usage_of(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Usage:
    """Run `command` and collect it and all that it left; ends the benchmark if it fails."""
    with _subreaper(), (folder / "output.txt").open("w+") as output:
        others = descendants()
        before, started = _cpu(), time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
        while process.returncode is None:
            pid, status = os.waitpid(-1, 0)
            if pid == process.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        _collect_all_but(others)
        if process.returncode != 0:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read()}")
        return Usage(seconds, _cpu() - before)


def _collect_all_but(others: set[int]) -> None:
    deadline = time.monotonic() + LINGERING
    while left := descendants() - others:
        if time.monotonic() > deadline:
            sys.exit(f"processes that do not end: {sorted(left)}")
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def descendants() -> set[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def pss(others: set[int]) -> float:
    """Megabytes of all processes below this one but `others`; what several share is counted once."""
    total = 0
    for pid in descendants() - others:
        with contextlib.suppress(OSError):
            match = re.search(
                r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE
            )
            if match:
                total += int(match[1])
    return total / 1024


def peak_while_held(run: Callable[[], object], folder: Path, count: int) -> float:
    """Megabytes at the most while `count` tests of :data:`suites.HELD` in `folder` keep their pages open."""
    marks = [folder / f"open-{number}" for number in range(count)]
    seen = folder / "seen"
    over = threading.Event()
    looks: list[float] = []
    others = descendants()

    def look() -> None:
        while not all(mark.exists() for mark in marks):
            if over.wait(0.02):
                return
        for _ in range(LOOKS):
            looks.append(pss(others))
            time.sleep(BETWEEN_LOOKS)
        seen.touch()

    watching = threading.Thread(target=look)
    watching.start()
    try:
        run()
    finally:
        over.set()
        watching.join()
        for path in (*marks, seen):
            path.unlink(missing_ok=True)
    return max(looks)
