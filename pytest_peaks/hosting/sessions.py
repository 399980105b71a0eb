"""The hosted sessions of a project: which there are, which of them live, and how one is ended."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pytest_peaks.errors import NoSessionError, ReapIncompleteError
from pytest_peaks.hosting import asking, looking
from pytest_peaks.hosting.terminals import Terminal
from pytest_peaks.session import guardian, ports, processes, profiles
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Problem, Registry, write_atomically
from pytest_peaks.session.reservations import Reservations, allocating

# A supervisor that is told to end takes a tenth of a second; a browser on a user's own profile up to three.
STOP_WAIT = 8.0
# What the `launch` of a desk's record begins with.
DESK = "desk:"
# A session that is to be used again is asked twice, for a machine that is out of breath.
RESPONSE_TIMEOUT = 1.5
RESPONSE_TRIES = 2


@dataclass(frozen=True, slots=True)
class Hosted:
    """One hosted session as it is now.

    :ivar state: ``alive``, ``starting``, ``elsewhere`` or ``dead``.
    """

    dirs: ProjectDirs
    record: Record
    state: str

    @property
    def mcp_url(self) -> str | None:
        return self.record.endpoints.get("mcp")

    @property
    def name(self) -> str:
        return self.record.session_id

    @property
    def base(self) -> str:
        """Its name without the port that tells a terminal's further sessions apart."""
        return self.name.partition("@")[0]

    @property
    def is_desk(self) -> bool:
        """Whether it is a desk, at which named identities take turns, and so nobody's to choose or to stop."""
        return self.record.launch.startswith(DESK)

    @property
    def alive(self) -> bool:
        """Its owner lives and its port answers."""
        return self.state == "alive"

    @property
    def starting(self) -> bool:
        """Its owner lives and it is not ready yet."""
        return self.state == "starting"

    @property
    def elsewhere(self) -> bool:
        """Its owner is on another host or in another container, and cannot be seen from here."""
        return self.state == "elsewhere"

    @property
    def age_seconds(self) -> int | None:
        """Whole seconds since its start, never negative; None if its record does not tell."""
        return looking.age_of(self.record.started_at)

    def tab_urls(self) -> list[str] | None:
        """The addresses of the open tabs, the one used last first; None if the browser does not answer."""
        return asking.tab_urls(self.record.endpoints.get("cdp", ""))


def look(dirs: ProjectDirs) -> tuple[list[Hosted], list[Problem]]:
    """The hosted sessions of a project, by port, and files among the records that are none."""
    records, problems = Registry(dirs.records).list()
    found = [probe(dirs, record) for record in records if record.kind == "hosted"]
    return sorted(found, key=lambda hosted: (hosted.record.port, hosted.record.session_id)), problems


def look_everywhere(dirs: ProjectDirs) -> list[Hosted]:
    """The hosted sessions of this project and of every other one of this user that has a live one."""
    found = [hosted for place in everywhere(dirs) for hosted in look(place)[0]]
    return sorted(found, key=lambda hosted: (hosted.record.port, str(hosted.dirs.base)))


def everywhere(dirs: ProjectDirs) -> list[ProjectDirs]:
    """This project, and every other one of this user that has a live session."""
    with allocating() as runtime:
        places = map(Path, Reservations(runtime, "sessions").places())
    return [dirs, *(ProjectDirs(place.parent, place) for place in places if place != dirs.base)]


def probe(dirs: ProjectDirs, record: Record) -> Hosted:
    """A hosted session as it is now."""
    state = looking.state_before_asking(record.owner.state(), record.status)
    return Hosted(dirs, record, state or ("alive" if asking.answers(record.port) else "dead"))


def responds(hosted: Hosted) -> bool:
    """Whether browser and MCP server answer: a stopped process accepts connections and says nothing."""
    if not hosted.alive:
        return False
    urls = [hosted.record.endpoints.get("cdp", ""), hosted.record.endpoints.get("mcp", "")]
    return all(any(_says_something(url) for _ in range(RESPONSE_TRIES)) for url in urls)


def _says_something(url: str) -> bool:
    import http.client

    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=RESPONSE_TIMEOUT)
    try:
        connection.connect()
        asking.leave_no_trace(connection.sock)
        connection.request("GET", "/json/version" if place.scheme == "ws" else place.path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    else:
        return True
    finally:
        connection.close()


def of_terminal(found: Iterable[Hosted], terminal: Terminal) -> list[Hosted]:
    """Those of one terminal: its first session, and those on further ports, by port."""
    return [
        hosted
        for hosted in found
        if hosted.record.terminal == terminal.mark
        or (terminal.typed and terminal.id in (hosted.name, hosted.base))
    ]


def first_name(found: Iterable[Hosted], terminal: Terminal) -> str:
    """What a terminal's first session is called: its id, or one that is told apart from an equal one's."""
    taken = any(hosted.base == terminal.id and hosted.record.terminal != terminal.mark for hosted in found)
    return terminal.distinct_id if taken and not terminal.typed else terminal.id


def choose(found: list[Hosted], terminal: Terminal, port: int | None, *, of_any: bool = False) -> Hosted:
    """The one session that a user means.

    :param of_any: with a port, the session may be another terminal's.
    :raises NoSessionError: there is none, or more than one; lists them.
    """
    candidates = found if of_any and port is not None else of_terminal(found, terminal)
    if port is not None:
        candidates = [hosted for hosted in candidates if hosted.record.port == port]
    elif not candidates and not terminal.certain:
        # Without a terminal every call has another id.
        candidates = [hosted for hosted in found if hosted.alive and not hosted.is_desk]
    if len(candidates) == 1:
        return candidates[0]
    listed = listing(candidates or found)
    if not candidates:
        whose = f"on port {port}" if port is not None else f"of terminal {terminal.id}"
        raise NoSessionError(
            f"no playwright session {whose}" + (f"; there are: {listed}" if listed else ""),
            hint="`peaks playwright start` starts one; --terminal or --port names another"
            if listed
            else "`peaks playwright start` starts one",
        )
    raise NoSessionError(
        f"more than one session: {listed}", hint="name one with --port or --terminal, or --all"
    )


def listing(found: Iterable[Hosted]) -> str:
    return ", ".join(f"{hosted.name} on port {hosted.record.port}" for hosted in found)


def stop(hosted: Hosted, *, keep_profile: bool = False) -> bool:
    """End a hosted session with everything that is its own. True if its port is free afterwards.

    :param keep_profile: the profile that was made for it stays, for the terminal's next session.
    :raises NoSessionError: it is on another host or in another container.
    :raises ReapIncompleteError: a part of it could not be ended or removed.
    """
    dirs, record = hosted.dirs, hosted.record
    if hosted.elsewhere:
        raise NoSessionError(
            f"session {hosted.name} is not of this machine: its owner is on {record.owner.host}, "
            "or in another container",
            hint="stop it there; `peaks reap --foreign` removes its files if it is gone",
        )
    registry = Registry(dirs.records)
    if keep_profile and record.ephemeral and record.user_data_dir:
        # Its owner reads the record once more before it ends.
        write_atomically(Path(record.user_data_dir) / profiles.KEEP, "")
        record = record.with_(ephemeral=False)
        registry.write(record)
    if record.owner.is_alive():
        if hasattr(signal, "SIGCONT"):
            processes.send(record.owner, signal.SIGCONT)  # one that is stopped would not hear the rest
        processes.end_tree(record.owner, grace=STOP_WAIT)
    current = registry.read(record.session_id)
    if current is not None and current.owner == record.owner and not guardian.clear(dirs, current):
        raise ReapIncompleteError(
            f"not all of session {hosted.name} could be ended or removed",
            hint="`peaks reap` tries it again and says what is left",
        )
    guardian.sweep(dirs, run_uid="")
    return processes.wait_until(lambda: not ports.is_busy(record.port), asking.TIMEOUT)


def clear_dead(found: Iterable[Hosted]) -> list[Hosted]:
    """Clear away sessions whose owner is dead, or whose port no longer answers though its owner lives."""
    cleared = []
    for hosted in found:
        if hosted.state == "dead":
            stop(hosted)
            cleared.append(hosted)
    return cleared
