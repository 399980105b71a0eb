"""``peaks cli``: the commands about sessions. They know those of this project and reach nobody else's."""

from __future__ import annotations

from typing import Any

from pytest_peaks.errors import CliUsageError, PeaksError, ReapIncompleteError
from pytest_peaks.named import sessions
from pytest_peaks.named.call import Call
from pytest_peaks.named.sessions import Named


def list_(call: Call) -> int:
    everywhere = call.args.get("all") is True
    found = sessions.look_everywhere(call.dirs) if everywhere else sessions.look(call.dirs)
    blocks = []
    for session in found:
        facts = session.facts
        lines = [f"- {session.name}:", f"  - status: {session.state}"]
        if facts.attached:
            lines.append(f"  - browser-type: {session.record.browser} (attached)")
        else:
            lines.append(f"  - browser-type: {session.record.browser}")
            lines.append(f"  - user-data-dir: {session.record.user_data_dir or '<in-memory>'}")
            lines.append(f"  - headed: {str(facts.headed).lower()}")
        lines.append(f"  - pid: {session.record.owner.pid}")
        if everywhere:
            lines.append(f"  - project: {session.dirs.root}")
        blocks.append("\n".join(lines))
    text = "\n".join(["### Browsers", *blocks] if blocks else ["  (no browsers)"])
    call.say(text, browsers=[_row(session) for session in found])
    return 0


def close(call: Call) -> int:
    name = call.name()
    session = sessions.find(call.dirs, name)
    state = session.state if session is not None else ""
    was_open = session is not None and sessions.close(session)
    if was_open:
        text = f"Browser '{name}' closed\n"
    elif state == "dead":
        text = f"Browser '{name}' is not open: its daemon was gone; what it left is cleared away."
    else:
        text = f"Browser '{name}' is not open." if state != "starting" else f"Browser '{name}' closed\n"
    call.say(text, session=name, status="closed" if was_open or state == "starting" else "not-open")
    return 0


def detach(call: Call) -> int:
    name = call.name()
    session = sessions.find(call.dirs, name)
    if session is not None and not session.facts.attached and session.state == "open":
        raise CliUsageError(
            f"session '{name}' was not attached", hint=f"`peaks cli -s={name} close` stops it"
        )
    was_open = session is not None and sessions.close(session)
    text = f"Browser '{name}' detached\n" if was_open else f"Browser '{name}' is not attached."
    call.say(text, session=name, status="detached" if was_open else "not-attached")
    return 0


def close_all(call: Call) -> int:
    closed, failed = [], []
    for session in sessions.look(call.dirs):
        if session.state == "elsewhere":
            continue
        try:
            if sessions.close(session):
                closed.append(session.name)
        except PeaksError as error:
            failed.append(error.message)
    if failed:
        raise ReapIncompleteError("; ".join(failed), hint="peaks cli kill-all")
    text = "\n".join(f"Browser '{name}' closed" for name in closed)
    call.say(text or "No browsers open.", closed=closed)
    return 0


def kill_all(call: Call) -> int:
    """End by force every named session of this project, by record and identity; nobody else's."""
    pids, failed = [], []
    for session in sessions.look(call.dirs):
        if session.state == "elsewhere":
            continue
        try:
            daemon = session.record.processes.get("cli")
            if daemon is not None and daemon.is_alive():
                pids.append(daemon.pid)
            sessions.end(session)
        except PeaksError as error:
            failed.append(error.message)
    if failed:
        raise ReapIncompleteError("; ".join(failed), hint="`peaks reap` tries it again")
    lines = [f"Killed daemon process {pid}" for pid in pids]
    lines.append(
        f"Killed {len(pids)} daemon process{'' if len(pids) == 1 else 'es'}."
        if pids
        else "No daemon processes found."
    )
    call.say("\n".join(lines), killed=len(pids), pids=pids)
    return 0


def delete_data(call: Call) -> int:
    name = call.name()
    deleted = sessions.delete_data(call.dirs, name)
    text = (
        f"Deleted user data for browser '{name}'." if deleted else f"No user data found for browser '{name}'."
    )
    call.say(text, session=name, deleted=deleted)
    return 0


def _row(session: Named) -> dict[str, Any]:
    """One session with playwright-cli's own keys, and ours."""
    record, facts = session.record, session.facts
    return {
        "name": session.name,
        "workspace": str(session.dirs.root),
        "status": session.state,
        "browserType": record.browser,
        "userDataDir": record.user_data_dir or None,
        "headed": facts.headed,
        "persistent": facts.persistent,
        "attached": bool(facts.attached),
        "compatible": True,
        "version": facts.version,
        "pid": record.owner.pid,
        "browserPid": record.pid,
        "startedAt": record.started_at,
        "artifacts": str(session.artifacts),
    }
