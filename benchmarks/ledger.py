"""How long an update of the ledger takes: `python benchmarks/ledger.py [rounds]`.

Eight processes of sixty updates each: heartbeats of one lease through `LedgerFile.changing()`, on a ledger of
three desks and twenty sessions, and beside it a bare loop on the same content: flock, read, change, write, fsync,
replace, fsync of the folder. Both in turn, in every round; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

from pytest_peaks.desks.clock import Moment
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.desks.ledger import Session
from pytest_peaks.desks.ledger_file import LedgerFile
from pytest_peaks.session.identity import ProcessIdentity

WRITERS = 8
UPDATES = 60
DESKS = 3
SESSIONS = 20
PROMISED = 1.5
Update = Callable[[Path, Claim], object]


def prepare(path: Path) -> Claim:
    """A ledger with a seat at each desk; gives the first one's lease."""
    me = ProcessIdentity.of_self()
    with LedgerFile(path).changing() as ledger:
        rules = Rules(ledger)
        desks = [f"playwright-desk-{number}" for number in range(1, DESKS + 1)]
        rules.configure((desk, "hosted", "") for desk in desks)
        for number in range(SESSIONS):
            name = f"customer-{number}"
            if number < DESKS:
                claim = rules.seat(name, desks[number], me, "process", browser=True)
                rules.hand_over(claim, me, "process", me)
            else:
                ledger.sessions[name] = Session(None, int(time.time()), Moment.now())
        return rules.claim("customer-0")


def ours(path: Path, claim: Claim) -> None:
    with LedgerFile(path).changing() as ledger:
        Rules(ledger).heartbeat(claim)


def bare(path: Path, claim: Claim) -> None:
    lock = os.open(f"{path}.bare", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = json.loads(path.read_text())
        data["sessions"][claim.session]["lease"]["heartbeat"] = Moment.now().to_json()
        part = path.with_name(".part")
        with part.open("w") as file:
            file.write(json.dumps(data))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        os.close(lock)


def write(update: Update, path: Path, claim: Claim, start: Barrier, target: Path) -> None:
    update(path, claim)  # imports, and whatever else is done once
    start.wait()
    took = []
    for _ in range(UPDATES):
        began = time.perf_counter()
        update(path, claim)
        took.append(time.perf_counter() - began)
    target.write_text(json.dumps(took))


def measure(update: Update) -> list[float]:
    """Seconds of every update of a round, sorted."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="peaks-bench-") as name:
        path = Path(name) / "ledger.json"
        claim = prepare(path)
        start = fork.Barrier(WRITERS)
        targets = [Path(name) / f"took-{number}" for number in range(WRITERS)]
        writers = [
            fork.Process(target=write, args=(update, path, claim, start, target)) for target in targets
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        if any(writer.exitcode for writer in writers):
            sys.exit("a writer failed")
        return sorted(seconds for target in targets for seconds in json.loads(target.read_text()))


def percentile(took: list[float], share: float) -> float:
    return took[min(len(took) - 1, int(len(took) * share))]


def main(rounds: int | None = None) -> None:
    rounds = rounds or (int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    ways: dict[str, Update] = {"LedgerFile.changing": ours, "flock, replace, fsync": bare}
    found: dict[str, list[list[float]]] = {title: [] for title in ways}
    for number in range(rounds):
        for title in list(ways) if number % 2 else reversed(list(ways)):
            found[title].append(measure(ways[title]))
    print(f"{WRITERS} writers of {UPDATES} updates, {DESKS} desks, {SESSIONS} sessions, {rounds} rounds\n")
    for title, runs in found.items():
        told = (
            f"{name} {statistics.median(percentile(took, share) for took in runs) * 1000:6.2f} ms"
            for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        )
        print(f"{title:24} {'   '.join(told)}   all {statistics.median(map(sum, runs)) / WRITERS:.2f} s")
    ratios = [
        percentile(mine, 0.99) / percentile(other, 0.99) for mine, other in zip(*found.values(), strict=True)
    ]
    print(
        f"\np99 is {statistics.median(ratios):.2f} times the bare loop's "
        f"[{min(ratios):.2f}-{max(ratios):.2f}]; promised are {PROMISED}"
    )


if __name__ == "__main__":
    main()
