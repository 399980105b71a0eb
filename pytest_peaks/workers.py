"""pytest-xdist: slots, the run's identity in each worker, and what a dead worker left."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import state
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs, project_root
from pytest_peaks.session.spec import Run

if TYPE_CHECKING:
    import signal

    from xdist.workermanage import WorkerController

    from pytest_peaks.session.record import Record

KEY = "peaks"
# A crashed worker is dead when xdist says so; one that is stopped is not, and is ended after this.
DEATH_WAIT = 2.0


def run_of(config: pytest.Config) -> Run:
    """The run that this process belongs to, from ``workerinput`` in a worker, else a new one.

    The environment is no guide: ``PYTEST_XDIST_WORKER`` is inherited by a pytest that a test starts.
    """
    given: Mapping[str, Any] | None = getattr(config, "workerinput", {}).get(KEY)
    if given is None:
        return Run(uuid.uuid4().hex[:12], 0, "main", ProcessIdentity.of_self())
    if given.get("state_key"):
        from pytest_peaks.auth import crypto

        crypto.receive(given["state_key"])
    worker = str(config.workerinput["workerid"])  # type: ignore[attr-defined]
    count = int(config.workerinput["workercount"])  # type: ignore[attr-defined]
    return Run(given["uid"], given["slot"], worker, ProcessIdentity.from_json(given["controller"]), count)


class Slots:
    """Numbers 0 to n-1 for the workers that are up; a number is free again when its worker is down."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, gateway: str) -> int:
        if gateway not in self._taken:
            taken = set(self._taken.values())
            self._taken[gateway] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        return self._taken[gateway]

    def free(self, gateway: str) -> int | None:
        return self._taken.pop(gateway, None)


class WorkerHooks:
    """xdist's hooks in the controller. They never raise: that would end the whole run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._slots = Slots()
        self._up: dict[str, WorkerController] = {}
        self._begun = False

    def pytest_runtest_logstart(self) -> None:
        self._begun = True

    def pytest_configure_node(self, node: WorkerController) -> None:
        self._up[node.gateway.id] = node
        # What a signal's handler needs is loaded before it can come.
        from pytest_peaks.auth import crypto
        from pytest_peaks.session import guardian, processes  # noqa: F401

        run_state = state.of(self._config)
        run_state.termination.install()
        node.workerinput[KEY] = {
            "uid": run_state.run.uid,
            "slot": self._slots.take(node.gateway.id),
            "controller": run_state.run.controller.to_json(),
            "state_key": crypto.hand_over(),
            "replaces": self._begun,
            "each": self._config.getoption("dist", "no") == "each",
        }

    def pytest_testnodedown(self, node: WorkerController, error: object | None) -> None:
        # May come twice for one node: an interrupted worker is reported as finished and as interrupted.
        slot = self._slots.free(node.gateway.id)
        if slot is None:
            return
        self._up.pop(node.gateway.id, None)
        run_state = state.of(self._config)
        report = getattr(node, "workeroutput", {}).get(KEY)
        if report is not None:
            run_state.reports.append(report)
        with contextlib.suppress(Exception):
            self._clear(node.gateway.id, crashed=report is None and error != "keyboard-interrupt")

    def take_leave(self) -> None:
        """When all workers are down: hear those whose end xdist no longer reports, since the run was interrupted."""
        for node in list(self._up.values()):
            self.pytest_testnodedown(node, None)

    def _clear(self, worker: str, *, crashed: bool) -> None:
        from pytest_peaks.session import guardian, processes

        run_state = state.of(self._config)
        records = [record for record in _records_of_run(self._config) if record.worker == worker]
        if not records:
            return
        if crashed:
            for owner in {record.owner for record in records}:
                if not processes.wait_until(functools.partial(_is_dead, owner), DEATH_WAIT):
                    processes.end_tree(owner, grace=0.0)
            run_state.reports.append(
                {
                    "slot": records[0].slot,
                    "worker": worker,
                    "crashed": True,
                    "browsers": [
                        {
                            "id": record.session_id,
                            "browser": record.browser,
                            "version": "",
                            "port": record.port,
                            "pid": record.pid,
                            "sessions": None,
                        }
                        for record in records
                    ],
                }
            )
        swept = guardian.sweep(dirs_of(self._config), run_uid=run_state.run.uid)
        run_state.swept += [record.session_id for record in swept.ended]


def _is_dead(process: ProcessIdentity) -> bool:
    return not process.is_alive()


def dirs_of(config: pytest.Config) -> ProjectDirs:
    return ProjectDirs.locate(project_root(config.rootpath))


def pass_on(config: pytest.Config, number: signal.Signals) -> None:
    """In the controller: send a signal that it got to the workers that own a browser."""
    if hasattr(config, "workerinput"):
        return
    from pytest_peaks.session import processes

    me = ProcessIdentity.of_self()
    for owner in {record.owner for record in _records_of_run(config)}:
        if owner != me:
            processes.send(owner, number)


def in_use(config: pytest.Config) -> bool:
    """Whether this run has a session now."""
    return state.of(config).owner is not None or bool(_records_of_run(config))


def _records_of_run(config: pytest.Config) -> list[Record]:
    from pytest_peaks.session.registry import Registry

    uid = state.of(config).run.uid
    return [record for record in Registry(dirs_of(config).records).list()[0] if record.run_uid == uid]
