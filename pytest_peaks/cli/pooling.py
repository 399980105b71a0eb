"""What ``peaks session pool`` says, and what the other verbs of ``peaks session`` say of the pool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_peaks.cli.output import Reply
from pytest_peaks.cli.plain import counted
from pytest_peaks.desks.hosted import removed
from pytest_peaks.desks.registered import registered
from pytest_peaks.errors import PeaksError

if TYPE_CHECKING:
    from pytest_peaks.desks.ledger import Ledger
    from pytest_peaks.desks.settings import DeskSettings, PoolSettings
    from pytest_peaks.desks.turns import Turns

REGISTER = (
    "register the desks once, `peaks session pool --config` prints what to add, and start the client anew: "
    "clients read their MCP servers at their start"
)


def pool_shown(turns: Turns) -> Reply:
    """The answer of pool: changes nothing, creates no file."""
    pool, settings = turns.pool, turns.pool.settings
    ledger = pool.look().ledger
    rows = []
    for name, known in ledger.desks.items():
        desk = pool.desk(name, ledger)
        health = desk.health()
        rows.append(
            {
                "desk": name,
                "state": known.state,
                "kind": desk.settings.kind,
                "session": ledger.seated().get(name),
                "up": health.up,
                "mcp_url": url_of(desk.settings) or None,
                "mcp_prefix": desk.settings.mcp_prefix,
                "registered_in": [str(path) for path in registered(settings.dirs.root, name)],
                "uses": known.uses,
                "errors": known.errors,
                "reason": known.reason,
            }
        )
    summary = pool_summary(turns, ledger)
    message = f"{len(summary['free'])}/{len(summary['desks'])} desks free"
    lines = [f"Pool: {message} (idle timeout {settings.idle_timeout:g}s)"]
    for row in rows:
        who = f"  {row['session']}" if row["session"] else ""
        up = "up" if row["up"] else "down"
        why = f"  {row['reason']}" if row["reason"] else ""
        lines.append(f"{row['desk']}  {row['state']}  {row['kind']}  {up}  {row['mcp_url'] or '-'}{who}{why}")
    lines.append(
        f"states in {settings.state_dir}, configured in {settings.config}" + _unless(settings.config_exists)
    )
    unregistered = [str(row["desk"]) for row in rows if not row["registered_in"]]
    warnings = []
    if unregistered:
        warnings.append(f"no client that peaks knows of has registered {', '.join(unregistered)}: {REGISTER}")
    lines += [f"note: {warning}" for warning in warnings]
    fields = {
        **summary,
        "state_dir": str(settings.state_dir),
        "pool_config": str(settings.config),
        "pool_config_exists": settings.config_exists,
        "ledger": str(settings.ledger),
        "desk_details": rows,
        "waiting": [waiter.session for waiter in ledger.queue],
        "warnings": warnings,
    }
    return Reply(message, fields, "\n".join(lines))


def client_entries(turns: Turns) -> Reply:
    """The answer of pool --config."""
    settings = turns.pool.settings
    http = {desk.name: {"type": "http", "url": url_of(desk)} for desk in settings.desks if url_of(desk)}
    stdio = {
        desk.name: {"command": "peaks", "args": _stdio_arguments(settings, desk)}
        for desk in settings.desks
        if desk.kind != "external"
    }
    unknown = [desk.name for desk in settings.desks if desk.kind == "external" and not desk.mcp_url]
    note = f"{', '.join(unknown)}: registered by you under that name" if unknown else ""
    lines = [
        "over HTTP (`peaks session pool --up` first):",
        json.dumps({"mcpServers": http}, indent=2),
        "over stdio (starts the desk when it is needed, and bears its restart):",
        json.dumps({"mcpServers": stdio}, indent=2),
        *([note] if note else []),
        "clients read their MCP servers at their start: start the client anew after a change",
    ]
    fields = {"mcpServers": http, "mcpServersStdio": stdio, "note": note}
    return Reply(f"{counted(len(settings.desks), 'desk')} to register", fields, "\n".join(lines))


def brought_up(turns: Turns) -> Reply:
    """The answer of pool --up."""
    pool = turns.pool
    revived = pool.revive()
    up, failed = [], []
    for settings in pool.settings.desks:
        desk = pool.desk(settings.name)
        try:
            desk.start()
        except PeaksError as error:
            failed.append((settings.name, error))
        else:
            if desk.health().up:
                up.append({"desk": settings.name, "mcp_url": url_of(settings) or None})
    message = f"{counted(len(up), 'desk')} up"
    lines = [message, *(f"{row['desk']}  {row['mcp_url'] or '-'}" for row in up)]
    lines += [f"{name} was put aside, and is tried again" for name in revived]
    fields: dict[str, Any] = {
        "up": up,
        "revived": revived,
        "failed": [{"desk": name, "error": e.code.lower(), "message": e.message} for name, e in failed],
    }
    failure = None
    if failed:
        name, first = failed[0]
        failure = type(first)(f"{name}: {first.message}", hint=first.hint)
    return Reply(message, fields, "\n".join(lines), failure)


def brought_down(turns: Turns) -> Reply:
    """The answer of pool --down."""
    pool = turns.pool
    before = removed(pool.settings)
    turns.sweep()
    after = removed(pool.settings)
    seats = pool.look().ledger.seated()
    down = [desk for desk in before if desk not in after]
    for settings in pool.settings.desks:
        if settings.name not in seats and pool.desk(settings.name).health().up:
            pool.desk(settings.name).drain()
            down.append(settings.name)
    message = f"{counted(len(down), 'desk')} ended"
    kept = [f"{desk} stays: {name} sits there" for desk, name in sorted(seats.items())]
    return Reply(message, {"ended": down, "in_use": dict(sorted(seats.items()))}, "\n".join([message, *kept]))


def pool_summary(turns: Turns, ledger: Ledger) -> dict[str, Any]:
    """The fields that `list` and `pool` have of the pool."""
    settings = turns.pool.settings
    return {
        "desks": [desk.name for desk in settings.desks],
        "free": [desk.name for desk in settings.desks if ledger.desks[desk.name].state == "free"],
        "leased": dict(sorted(ledger.seated().items())),
        "idle_timeout_seconds": number(settings.idle_timeout),
    }


def url_of(desk: DeskSettings) -> str:
    """Where a desk's MCP server is, or will be; empty if that is not known."""
    return desk.mcp_url or (f"http://localhost:{desk.port}/mcp" if desk.kind == "hosted" else "")


def number(seconds: float) -> float | int:
    """Seconds without a needless fraction."""
    return int(seconds) if seconds == int(seconds) else seconds


def _stdio_arguments(settings: PoolSettings, desk: DeskSettings) -> list[str]:
    return ["mcp", "--desk", desk.name, "--project", str(settings.dirs.root)]


def _unless(exists: bool) -> str:
    return "" if exists else " (not there: defaults)"
