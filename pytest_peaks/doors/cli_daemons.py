"""The CLI daemons of one owner's sessions: one for each browser, started on first use."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.session import processes
from pytest_peaks.session.live import LiveSession, child_environment

if TYPE_CHECKING:
    from pytest_peaks.doors.cli import CliDaemon, PeaksCli
    from pytest_peaks.session.paths import ProjectDirs


class CliDaemons:
    """Starts daemons, and gives up those that hold something of the last test."""

    def __init__(self, dirs: ProjectDirs) -> None:
        self._dirs = dirs
        self._daemons: dict[str, CliDaemon] = {}
        self._numbers = itertools.count(1)
        self._swept: set[str] = set()

    def door(
        self,
        live: LiveSession,
        *,
        after_call: Callable[[], None],
        meanwhile: Callable[[], None],
        tabs: Callable[[], int],
    ) -> PeaksCli:
        """The CLI of a session, for one test; see `PeaksCli` for the parameters.

        :raises StartFailedError: its daemon did not start.
        """
        from pytest_peaks.doors.cli import PeaksCli

        daemon = self._daemons.get(live.session_id)
        if daemon is not None and not (daemon.is_alive() and daemon.knows_tabs(tabs())):
            self._give_up(live)
            daemon = None
        if daemon is None:
            daemon = self._daemons[live.session_id] = self._start(live)
        scratch = Path(live.record.temp_dir)
        return PeaksCli(
            daemon.socket, self._dirs, scratch, after_call=after_call, meanwhile=meanwhile, tabs=tabs
        )

    def after(self, live: LiveSession, used: PeaksCli) -> None:
        """Note what a test did. A daemon in which something of it may be left is ended."""
        from pytest_peaks.doors.cli import HARMLESS

        if not used.commands <= HARMLESS:
            self._give_up(live)

    def forget(self, live: LiveSession) -> None:
        """End the daemon of a session that ends."""
        self._give_up(live)

    def _give_up(self, live: LiveSession) -> None:
        daemon = self._daemons.pop(live.session_id, None)
        if daemon is not None:
            daemon.spawned.pipe.close()
            processes.end_tree(daemon.spawned.identity, grace=0.0)

    def _start(self, live: LiveSession) -> CliDaemon:
        from pytest_peaks.doors import cli

        assert live.endpoint is not None, "a session with this door has a debugging port"
        temp = Path(live.record.temp_dir)
        if live.session_id not in self._swept:  # a kept browser has those of the last run
            self._swept.add(live.session_id)
            for left in temp.glob("cli[0-9]*"):
                shutil.rmtree(left, ignore_errors=True)
        part = f"cli{next(self._numbers)}"
        daemon = cli.start(live.endpoint, temp / part, child_environment(live.session_id, temp), settle=0)
        live.adopt(part, daemon.spawned)
        return daemon
