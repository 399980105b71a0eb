"""Many real processes at one ledger, of which some are killed: no desk has two holders, and no lease is lost.

Two detectors that know nothing of each other: a marker for each desk that only one can make, and a log for each
desk of who came and went.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.settings import read_settings
from pytest_peaks.desks.turns import Turns
from pytest_peaks.session.identity import ProcessIdentity

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kill -9")

DESKS = 3
# For all of it, on a machine that is out of breath.
LIMIT = 600.0
WORKER = '''
import contextlib, os, random, sys, time
from pathlib import Path
from pytest_peaks.desks.errors import LeaseLostError, NotSeatedError, UnknownSessionError
from pytest_peaks.desks.holding import Owner
from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.settings import read_settings
from pytest_peaks.desks.turns import Turns
from pytest_peaks.session.identity import ProcessIdentity

root, name, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
marks = root / "marks"
pool = Pool(read_settings(root=root, environ={}))
turns = Turns(pool)
me = f"{pool.me.pid} {pool.me.started}"

def log(file, text):
    """One line, whole, at the end."""
    descriptor = os.open(marks / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\\n".encode())
    os.close(descriptor)

def occupy(marker):
    """Make the marker with its content at once; what a killed holder left is taken away."""
    own = marks / f"own-{pool.me.pid}-{pool.me.started}"
    own.write_text(me)
    while True:
        try:
            os.link(own, marker)
            return
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                pid, started = map(int, marker.read_text().split())
                there = ProcessIdentity.of(pid)
                if there is not None and there.started == started:
                    log("overlaps", f"{me} found {pid} {started} at {marker.name}")
                    return
                marker.unlink()

turns.sweep()
for number in range(wanted):
    claim = pool.take(
        name, wait=300.0, browser=False, check=lambda _: None,
        owner=Owner("process", pool.me), sweep=turns.sweep,
    )
    marker = marks / f"occupied-{claim.desk}"
    log(f"log-{claim.desk}", f"enter {me} {claim.epoch} {time.monotonic()}")
    occupy(marker)
    time.sleep(random.random() * 0.002)
    try:
        assert pool.look().claim(name) == claim
        if number % 5 == 0:
            with pool.changing() as rules:
                rules.heartbeat(claim)
    except (AssertionError, LeaseLostError, NotSeatedError, UnknownSessionError) as error:
        log("lost", f"{me} {claim} {error!r}")
    marker.unlink()
    log(f"log-{claim.desk}", f"leave {me} {claim.epoch} {time.monotonic()}")
    pool.left(claim)
'''


@dataclass
class Entry:
    what: str
    holder: tuple[int, int]
    epoch: int
    moment: float

    @classmethod
    def read(cls, line: str) -> Entry:
        what, pid, started, epoch, moment = line.split()
        return cls(what, (int(pid), int(started)), int(epoch), float(moment))


class Crowd:
    """Processes that want leases, and a killer."""

    def __init__(self, root: Path, size: int, wanted: int, kills: int) -> None:
        self.root, self.wanted = root, wanted
        self.marks = root / "marks"
        self.marks.mkdir()
        self.kills = kills
        self.killed: dict[tuple[int, int], float] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.size = size
        self.random = random.Random(7)

    def start(self, name: str, wanted: int) -> None:
        self.running[name] = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.root), name, str(wanted)]
        )

    def run(self) -> None:
        for number in range(self.size):
            self.start(f"s{number}", self.wanted)
        deadline = time.monotonic() + LIMIT
        try:
            while self.running:
                assert time.monotonic() < deadline, f"{list(self.running)} don't come to an end"
                time.sleep(self.random.random() * 0.1)
                for name, process in list(self.running.items()):
                    if process.poll() is not None:
                        assert process.returncode == 0, f"{name} failed"
                        del self.running[name]
                if self.running and len(self.killed) < self.kills and self.total() > 10:
                    self.kill(self.random.choice(sorted(self.running)))
        finally:
            for process in self.running.values():
                process.kill()
                process.wait()

    def kill(self, name: str) -> None:
        """Kill a process, mostly while it holds a desk, and start another in its place."""
        process = self.running[name]
        identity = ProcessIdentity.of(process.pid)
        if identity is None:
            return
        if self.random.random() < 0.8:
            for _ in range(400):
                if any(self.holds(path, process.pid) for path in self.marks.glob("occupied-*")):
                    break
                time.sleep(0.001)
        moment = time.monotonic()
        process.kill()
        process.wait()
        if process.returncode == -signal.SIGKILL:
            self.killed[process.pid, identity.started] = moment
            done = sum(
                e.what == "leave" and e.holder[0] == process.pid for log in self.logs().values() for e in log
            )
            self.start(name, max(1, self.wanted - done))

    @staticmethod
    def holds(marker: Path, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return marker.read_text().split()[:1] == [str(pid)]
        return False

    def logs(self) -> dict[str, list[Entry]]:
        return {
            path.name: [Entry.read(line) for line in path.read_text().splitlines()]
            for path in self.marks.glob("log-*")
        }

    def total(self) -> int:
        return sum(path.read_bytes().count(b"leave") for path in self.marks.glob("log-*"))

    def overlaps(self) -> list[str]:
        """What the logs tell of two at one desk, and of epochs that do not rise."""
        found = []
        for desk, log in self.logs().items():
            inside: Entry | None = None
            last = 0
            for entry in log:
                if entry.what == "leave":
                    if inside is None or entry.holder != inside.holder:
                        found.append(f"{desk}: {entry} leaves, inside is {inside}")
                    inside = None
                    continue
                if (
                    inside is not None
                    and not self.killed.get(inside.holder, entry.moment + 1) <= entry.moment
                ):
                    found.append(f"{desk}: {entry} enters, inside is {inside}")
                if entry.epoch <= last:
                    found.append(f"{desk}: {entry} after epoch {last}")
                inside, last = entry, entry.epoch
        return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "a project"
    (root / ".git").mkdir(parents=True)
    (root / ".peaks").mkdir()
    desks = [{"name": f"desk-{number}", "external": True} for number in range(DESKS)]
    (root / ".peaks" / "pool.json").write_text(json.dumps({"version": 1, "desks": desks}))
    return root


@pytest.mark.parametrize(
    ("size", "wanted", "kills"),
    [(6, 40, 8), pytest.param(8, 500, 60, marks=pytest.mark.slow)],
)
def test_no_desk_has_two_holders_and_no_lease_is_lost_while_holders_are_killed(
    project: Path, size: int, wanted: int, kills: int
) -> None:
    crowd = Crowd(project, size, wanted, kills)
    crowd.run()
    assert crowd.overlaps() == []
    for name in ("overlaps", "lost"):
        path = crowd.marks / name
        assert not path.exists(), path.read_text()
    assert crowd.total() >= size * wanted - len(crowd.killed)
    assert len(crowd.killed) >= kills // 2, "so few were killed that nothing is proved"
    with Pool(read_settings(root=project, environ={})) as pool:
        Turns(pool).sweep()
        with pool.changing():
            pass
        ledger = pool.look().ledger
        assert ledger.seated() == {}
        assert ledger.queue == []
        assert {desk.state for desk in ledger.desks.values()} == {"free"}
        logged = {name.removeprefix("log-"): log[-1].epoch for name, log in crowd.logs().items()}
        assert all(ledger.epochs[desk] >= epoch for desk, epoch in logged.items())
    left = [path.name for path in project.rglob(".tmp-*")]
    assert len(left) <= len(crowd.killed), f"more parts than kills: {left}"
    assert not [name for name in left if "playwright-sessions" in name], "the ledger's own part is taken away"


CREATE = "from pytest_peaks.cli import main; import sys; print('ready', flush=True); sys.stdin.read(); main()"


def test_of_32_who_create_at_once_as_many_sit_as_there_are_desks(project: Path) -> None:
    words = ["session", "create", "--no-browser", "--json"]
    names = [f"s{number}" for number in range(32)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, *words, name],
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    answers = {}
    for name, process in zip(names, started, strict=True):
        out, said = process.communicate(timeout=LIMIT)
        assert "Traceback" not in said, said
        answers[name] = (process.returncode, json.loads(out))
    seated = [name for name, (code, _) in answers.items() if code == 0]
    assert len(seated) == DESKS
    ledger = json.loads((project / ".peaks" / "playwright-sessions.json").read_text())
    sits = {session["desk"]: name for name, session in ledger["sessions"].items()}
    assert sorted(sits.values()) == sorted(seated)
    assert len(sits) == DESKS
    refused = {name: answer for name, answer in answers.items() if name not in seated}
    for code, answer in refused.values():
        assert code == 3
        assert answer["error"] == "no_free_desk"
        assert all(f"{desk} -> {name}" in answer["message"] for desk, name in sits.items())
