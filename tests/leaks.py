"""What a test's run may not leave: processes, listening ports, temp files, records, profiles, reservations."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import psutil

TAG = "PEAKS_TEST_TAG"
PORTS_PER_WORKER = 100
FIRST_PORT = 21000

# How long after the end of a run its leftovers may take to go: what the project promises.
PROMISED = 5.0


@functools.cache
def _first_port(pid: int) -> int:
    """The first of a hundred ports that no other run of the suite on this machine has, for this process's life.

    Claimed by the UDP port of that number, which is given back whatever ends the process.
    """
    for attempt in range(100):
        first = FIRST_PORT + (pid + attempt) % 100 * PORTS_PER_WORKER
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            continue
        _CLAIMS.append(claim)
        return first
    raise AssertionError("a hundred runs of the suite at once")


_CLAIMS: list[socket.socket] = []


@dataclass
class Surroundings:
    """The environment that one test runs in, and what was started in it."""

    temp: Path
    runtime: Path
    ports: range
    env: dict[str, str]
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def prepare(cls, temp: Path, runtime: Path) -> Surroundings:
        first = _first_port(os.getpid())
        ports = range(first, first + PORTS_PER_WORKER)
        made = cls(temp, runtime, ports, {})
        made.env = {
            TAG: made.tag,
            "TMPDIR": str(temp),
            "PEAKS_RUNTIME_DIR": str(runtime),
            "PEAKS_PORTS": f"{ports.start}-{ports.stop - 1}",
        }
        return made

    def processes(self) -> list[psutil.Process]:
        """Live processes that inherited the test's tag, or work in its temp dir, but for the caller."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid == psutil.Process().pid or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(TAG) == self.tag or any(
                    str(self.temp) in part for part in process.cmdline()
                ):
                    found.append(process)
        return found

    def listening(self) -> list[int]:
        """Ports of the test's range that somebody listens on."""
        busy = []
        for port in self.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                    probe.listen(1)
                except OSError:
                    busy.append(port)
        return busy

    def leftovers(self, project: Path) -> list[str]:
        """Everything that should not be there, in words."""
        left = [f"process {p.pid}: {' '.join(command_of(p))[:160]}" for p in self.processes()]
        left += [f"port {port}" for port in self.listening()]
        left += [f"temp {path}" for path in self.temp.iterdir()]
        runtime = project / ".peaks" / "_runtime"
        for folder in ("playwright-sessions", "playwright-userdata", "logs"):
            if (runtime / folder).exists():
                left += [f"{folder}/{path.name}" for path in (runtime / folder).iterdir()]
        # What was being written, whole or not at all.
        left += [
            f"part {folder}/{name}"
            for folder, _, names in os.walk(project / ".peaks")  # which bears that a profile is being removed
            for name in names
            if name.startswith(".tmp-")
        ]
        for kind in ("ports", "profiles", "guardians", "sessions", "uses", "starts"):
            if (self.runtime / kind).exists():
                left += [f"reservation {kind}/{path.name}" for path in (self.runtime / kind).iterdir()]
        for kind in ("logins", "accounts"):  # locks stay
            left += [f"note {kind}/{path.name}" for path in (self.runtime / kind).glob("*.json")]
        return left

    def assert_clean(self, project: Path, within: float = PROMISED) -> None:
        """Wait until nothing is left; fail with what still is after `within` seconds."""
        deadline = time.monotonic() + within
        while left := self.leftovers(project):
            assert time.monotonic() < deadline, f"left after {within} s:\n  " + "\n  ".join(left)
            time.sleep(0.05)

    def clear(self) -> None:
        """After the test: end what a failed one started, by its tag, and remove the temp dir."""
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=PROMISED)
        for _ in range(50):  # whatever is dying may still write
            shutil.rmtree(self.temp, ignore_errors=True)
            if not self.temp.exists():
                return
            time.sleep(0.05)


def command_of(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline() or [process.name()]
    return ["?"]
