"""What the verbs of ``peaks session`` say: the fields of the first design's answers, and lines for a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_peaks.cli.output import Reply
from pytest_peaks.cli.plain import counted
from pytest_peaks.cli.pooling import REGISTER, number, pool_summary, url_of
from pytest_peaks.desks import steps
from pytest_peaks.desks.registered import registered
from pytest_peaks.doors.bundled import client_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_peaks.auth.model import State
    from pytest_peaks.desks.ending import Closed, Saved
    from pytest_peaks.desks.holding import Freed
    from pytest_peaks.desks.settings import DeskSettings, PoolSettings
    from pytest_peaks.desks.turns import Turn, Turns


def seated(
    turns: Turns, name: str, turn: Turn, url: str | None, *, may_restore: bool, auth: str | None = None
) -> Reply:
    """The answer of create and resume."""
    pool = turns.pool
    desk = pool.desk(turn.claim.desk)
    state = pool.states.path(name)
    exists = pool.states.exists(name)
    restore = turn.restored or (may_restore and exists and not turn.works and not turn.already)
    steps_left: list[dict[str, Any]] = []
    locked = restore and not turn.works and pool.states.is_encrypted(name)
    if not turn.works and not turn.already:
        prefix = desk.settings.mcp_prefix
        steps_left = (
            steps.after_resume(prefix, None if locked else state, url)
            if restore
            else steps.after_create(prefix, url)
        )
    mcp_url = turn.place.mcp_url or desk.settings.mcp_url or url_of(desk.settings)
    warnings = [*turn.notes, *_unreachable(pool.settings, desk.settings, mcp_url, works=turn.works)]
    if locked:
        warnings.append(
            f"the saved state is encrypted, which the tools of {turn.claim.desk} cannot read: it is not restored"
        )
    if turn.visit is not None and turn.visit.problem:
        warnings.append(f"the page did not open: {turn.visit.problem}")
    free, total = _free(turns), len(pool.settings.desks)
    how = "sits" if turn.already else "is seated"
    message = f"session {name!r} {how} at {turn.claim.desk}; {free}/{total} desks free"
    about = (
        "restored"
        if turn.restored
        else f"begins with the login {auth!r}"
        if auth
        else _about(exists, restore)
    )
    lines = [
        f"Seated at: {turn.claim.desk}  ({desk.settings.mcp_prefix}browser_*)",
        *([f"MCP URL:   {mcp_url}"] if mcp_url else []),
        f"State:     {state} ({about})",
        *([f"Page:      {turn.visit.url}"] if turn.visit and not turn.visit.problem else []),
        f"Lease:     {turn.claim.id} (epoch {turn.claim.epoch})",
        f"Pool:      {free}/{total} desks free",
        *(f"note: {warning}" for warning in warnings),
        *(["Left for you to do:", *steps.as_text(steps_left)] if steps_left else []),
        f"Next: `peaks session save {name}` to keep the login, `peaks session close {name}` when done.",
    ]
    fields = {
        **_desk_fields(turns, name, turn.claim.desk),
        "mcp_url": mcp_url or None,
        "mcpServers": client_config(mcp_url, turn.claim.desk)["mcpServers"] if mcp_url else {},
        "state_exists": exists,
        "status": "active",
        "restore": restore,
        "restored": turn.restored,
        "already_seated": turn.already,
        "url": turn.visit.url if turn.visit else None,
        "lease_id": turn.claim.id,
        "epoch": turn.claim.epoch,
        "free_desks_remaining": free,
        "warnings": warnings,
        "next": steps_left,
    }
    return Reply(message, fields, "\n".join(lines))


def saved(turns: Turns, name: str, done: Saved) -> Reply:
    """The answer of save."""
    pool = turns.pool
    desk = pool.desk(done.claim.desk)
    state = pool.states.path(name)
    left: list[dict[str, Any]] = []
    if done.written:
        message = f"session {name!r} is saved in {state}"
    else:
        # Under a name that no session can have.
        target = state.with_name(f".{name}.incoming.json")
        left = steps.to_save(desk.settings.mcp_prefix, name, target, _places(pool.settings))
        message = f"peaks can't reach into {done.claim.desk}: its own tools save session {name!r}"
    lost = [f"a state cannot carry {what}" for what in done.lost]
    lines = [message, *(f"note: {text}" for text in lost), *steps.as_text(left)]
    fields = {
        **_desk_fields(turns, name, done.claim.desk),
        "state_exists": pool.states.exists(name),
        "status": "active",
        "saved": done.written,
        "lost": list(done.lost),
        "lease_id": done.claim.id,
        "epoch": done.claim.epoch,
        "free_desks_remaining": _free(turns),
        "next": left,
    }
    return Reply(message, fields, "\n".join(lines))


def closed(turns: Turns, name: str, done: Closed) -> Reply:
    """The answer of close."""
    pool = turns.pool
    state = pool.states.path(name)
    free, total = _free(turns), len(pool.settings.desks)
    parts = [f"{done.freed} is free" if done.freed else f"session {name!r} had no desk"]
    if done.discarded:
        parts.append("the session is forgotten")
        parts.append("its saved state is removed" if done.state_removed else "it had no saved state")
    elif done.saved:
        parts.append(f"its state is saved in {state}")
    elif pool.states.exists(name):
        parts.append(f"its state stays in {state}")
    else:
        parts.append("it has no saved state")
    if done.note:
        parts.append(done.note)
    message = f"closed {name!r}: {', '.join(parts)}; {free}/{total} desks free"
    desk = pool.desk(done.freed) if done.freed else None
    left = steps.after_close(desk.settings.mcp_prefix) if desk is not None and not desk.works else []
    fields = {
        "session": name,
        "freed_desk": done.freed,
        "discarded": done.discarded,
        "saved": done.saved,
        "state_retained": not done.discarded and pool.states.exists(name),
        "state_removed": done.state_removed,
        "state_file": str(state),
        "note": done.note,
        "free_desks_remaining": free,
        "next": left,
    }
    return Reply(message, fields, "\n".join([message, *steps.as_text(left)]))


def listed(turns: Turns) -> Reply:
    """The answer of list."""
    pool = turns.pool
    rules = pool.look()
    rows = []
    for name, session in sorted(rules.ledger.sessions.items()):
        rows.append(
            {
                "session": name,
                "desk": session.desk,
                "status": session.status,
                "state_exists": pool.states.exists(name),
                "state_file": str(pool.states.path(name)),
                "idle_seconds": int(turns.idle_of(session)),
                "held_by": _holder(session.lease) if session.lease else None,
                "owner_alive": not rules.is_vacated(session) if session.lease else None,
                "lease_id": session.lease.id if session.lease else None,
                "epoch": session.lease.epoch if session.lease else None,
            }
        )
    summary = pool_summary(turns, rules.ledger)
    head = (
        f"Pool: {len(summary['free'])}/{len(summary['desks'])} desks free "
        f"(idle timeout {pool.settings.idle_timeout:g}s)"
    )
    lines = [head]
    for row in rows:
        where = row["desk"] or "no desk"
        lines.append(
            f"{row['session']}  {row['status']}  {where}  idle {row['idle_seconds']}s  "
            f"{'state saved' if row['state_exists'] else 'no state'}"
        )
    message = counted(len(rows), "session") if rows else "no sessions"
    return Reply(
        message, {"pool": summary, "sessions": rows}, "\n".join(lines if rows else [head, "no sessions"])
    )


def cleaned(turns: Turns, freed: Sequence[Freed], threshold: float | None) -> Reply:
    """The answer of cleanup."""
    seconds = turns.pool.settings.idle_timeout if threshold is None else threshold
    rows = [
        {
            "session": one.session,
            "desk": one.desk,
            "idle_seconds": int(one.idle),
            "saved": one.saved,
            "note": one.note,
        }
        for one in freed
    ]
    released = [row for row, one in zip(rows, freed, strict=True) if not one.kept]
    kept = [row for row, one in zip(rows, freed, strict=True) if one.kept]
    free, total = _free(turns), len(turns.pool.settings.desks)
    message = f"released {counted(len(released), 'desk')}; {free}/{total} desks free"
    lines = [message]
    for row in released:
        saved = "saved" if row["saved"] else "nothing was unsaved"
        lines.append(
            f"{row['session']} left {row['desk']} (idle {row['idle_seconds']}s): {row['note'] or saved}"
        )
    lines += [f"{row['session']} keeps {row['desk']}: {row['note']}" for row in kept]
    fields = {
        "idle_timeout_seconds": number(seconds),
        "released": released,
        "kept": kept,
        "free_desks_remaining": free,
    }
    return Reply(message, fields, "\n".join(lines))


def state_from(path: Path) -> State:
    """A storage state that a tool wrote.

    :raises StateNotFoundError: there is none.
    :raises InvalidStateError: it is no storageState.
    """
    from pytest_peaks.auth.store import read_file
    from pytest_peaks.errors import StateNotFoundError

    try:
        return read_file(path, bound="")
    except FileNotFoundError:
        raise StateNotFoundError(
            f"there is no {path}", hint="the tool browser_storage_state writes it; see `next` of save"
        ) from None


def _desk_fields(turns: Turns, name: str, desk: str) -> dict[str, Any]:
    return {
        "session": name,
        "desk": desk,
        "mcp_prefix": turns.pool.desk(desk).settings.mcp_prefix,
        "state_file": str(turns.pool.states.path(name)),
    }


def _free(turns: Turns) -> int:
    return len(turns.pool.free(turns.pool.look()))


def _holder(lease: Any) -> dict[str, Any]:
    owner = lease.owner or lease.seat
    return {"kind": lease.kind, "pid": owner.pid if owner else None, "host": owner.host if owner else None}


def _unreachable(settings: PoolSettings, desk: DeskSettings, mcp_url: str, *, works: bool) -> list[str]:
    """What to say where no client can have the desk's tools."""
    from pytest_peaks.desks.registered import listens

    known = registered(settings.dirs.root, desk.name)
    if works or known:
        return []
    if not mcp_url or not listens(mcp_url):
        why = f"nothing listens at {mcp_url}" if mcp_url else "peaks knows no address of it"
        return [
            f"no client can have the tools of {desk.name}: {why}, and no client that peaks knows of has registered "
            f"it; {REGISTER}"
        ]
    return []


def _places(settings: PoolSettings) -> list[str]:
    """The options that name this pool from anywhere."""
    base = settings.dirs.base
    return [
        *("--root", str(settings.dirs.root)),
        *(["--pool-config", str(settings.config)] if settings.config != base / "pool.json" else []),
        *([] if settings.own_ledger else ["--ledger", str(settings.ledger)]),
        *("--state-dir", str(settings.state_dir)),
    ]


def _about(exists: bool, restore: bool) -> str:
    if restore:
        return "to be restored"
    return "saved before" if exists else "nothing saved yet"
