"""``peaks session``: named identities that take turns at a pool of desks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_peaks.cli.output import PeaksCommand, PeaksGroup, Printer, Reply

if TYPE_CHECKING:
    from pytest_peaks.desks.turns import Turns

PLACES = {
    "root": "A folder of the project; default: the working directory.",
    "pool_config": "The pool's configuration; default: <project>/.peaks/pool.json.",
    "ledger": "The ledger of leases; default: <project>/.peaks/playwright-sessions.json.",
    "state_dir": "Where states are saved; default: <project>/.peaks/playwright-state.",
}
_META = "pytest_peaks.session"


def _place_options() -> list[click.Option]:
    """The four places, taken before the verb and after it."""

    def note(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
        if value is not None and parameter.name is not None:
            ctx.find_root().meta.setdefault(_META, {})[parameter.name] = value

    return [
        click.Option(
            [f"--{name.replace('_', '-')}", *(["--project"] if name == "root" else [])],
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=note,
            metavar="PATH",
            help=text,
        )
        for name, text in PLACES.items()
    ]


class SessionCommand(PeaksCommand):
    """A verb of ``peaks session``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _place_options()


class SessionGroup(PeaksGroup):
    """``peaks session``: its codes are ``lower_snake``."""

    command_class = SessionCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _place_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(Printer).lower = True
        return super().parse_args(ctx, args)


@contextlib.contextmanager
def _turns(owner_pid: int | None = None) -> Iterator[Turns]:
    """What the verbs do, on the pool that flags, environment and configuration name."""
    from pytest_peaks.desks import owning
    from pytest_peaks.desks.pool import Pool
    from pytest_peaks.desks.settings import read_settings
    from pytest_peaks.desks.turns import Turns

    places = click.get_current_context().find_root().meta.get(_META, {})
    settings = read_settings(
        root=places.get("root"),
        config=places.get("pool_config"),
        ledger=places.get("ledger"),
        state_dir=places.get("state_dir"),
    )
    with Pool(settings, say=lambda text: click.echo(text, err=True)) as pool:
        yield Turns(pool, lambda: owning.of_caller(owner_pid))


def _wait_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--wait", type=float, callback=_seconds, metavar="SECONDS", help="Wait so long for a free desk."
    )(function)


def _owner_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--owner-pid",
        type=int,
        metavar="PID",
        help="The process for which the desk is held; when it is dead, the desk is free.",
    )(function)


def _seconds(_ctx: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:  # which "nan" is not, either
        raise click.BadParameter(f"{value} is not a number of seconds")
    return value


@click.group(cls=SessionGroup)
def session() -> None:
    """Named identities, more than there are browsers: each with its saved login, taking turns at desks."""


@session.command()
@click.argument("name")
@click.argument("url", required=False)
@click.option("--auth", metavar="NAME", help="Begin with a saved login of `peaks auth`.")
@click.option("--restore", is_flag=True, help="Begin with a saved state of that name that no session has.")
@click.option("--discard", is_flag=True, help="Remove such a state, and begin with nothing.")
@click.option("--no-browser", is_flag=True, help="Only lease the desk.")
@_wait_option
@_owner_option
def create(
    name: str,
    url: str | None,
    auth: str | None,
    restore: bool,
    discard: bool,
    no_browser: bool,
    wait: float | None,
    owner_pid: int | None,
) -> Reply:
    """Begin a session at a blank desk."""
    from pytest_peaks.auth.store import Store
    from pytest_peaks.cli.seating import seated
    from pytest_peaks.errors import InvalidOptionError

    if restore and discard:
        raise click.UsageError("--restore and --discard contradict each other")
    if auth is not None and (restore or no_browser):
        raise InvalidOptionError(
            f"--auth and {'--restore' if restore else '--no-browser'} contradict each other",
            hint="leave one out",
        )
    with _turns(owner_pid) as turns:
        login = Store(turns.pool.settings.dirs).load(auth) if auth is not None else None
        orphan = "restore" if restore else "discard" if discard else None
        turn = turns.create(name, url=url, orphan=orphan, login=login, browser=not no_browser, wait=wait)
        return seated(turns, name, turn, url, may_restore=restore, auth=auth)


@session.command()
@click.argument("name")
@click.argument("url", required=False)
@click.option("--no-browser", is_flag=True, help="Only lease the desk.")
@_wait_option
@_owner_option
def resume(name: str, url: str | None, no_browser: bool, wait: float | None, owner_pid: int | None) -> Reply:
    """Go on with a session: where it sits, or at a free desk with its saved state restored."""
    from pytest_peaks.cli.seating import seated

    with _turns(owner_pid) as turns:
        turn = turns.resume(name, url=url, browser=not no_browser, wait=wait)
        return seated(turns, name, turn, url, may_restore=True)


@session.command()
@click.argument("name")
@click.option("--lease", metavar="ID", help="Only under this lease, as `create` and `resume` gave it.")
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A storage state that a tool wrote; it is removed.",
)
def save(name: str, lease: str | None, given: Path | None) -> Reply:
    """Save what the session's browser holds: cookies, storage, what a login is made of."""
    from pytest_peaks.cli.seating import saved, state_from

    with _turns() as turns:
        state = state_from(given) if given is not None else None
        done = turns.save(name, lease=lease, given=state)
        if given is not None:
            with contextlib.suppress(OSError):
                given.unlink()
        return saved(turns, name, done)


@session.command()
@click.argument("name")
@click.option("--discard", is_flag=True, help="Forget the session, and remove its saved state.")
@click.option("--no-save", is_flag=True, help="Free the desk without saving what is unsaved.")
@click.option("--lease", metavar="ID", help="Only under this lease, as `create` and `resume` gave it.")
def close(name: str, discard: bool, no_save: bool, lease: str | None) -> Reply:
    """End the session's turn: save it, blank the desk, free it."""
    from pytest_peaks.cli.seating import closed

    with _turns() as turns:
        return closed(turns, name, turns.close(name, discard=discard, save=not no_save, lease=lease))


@session.command("list")
def list_() -> Reply:
    """Show sessions and who sits where."""
    from pytest_peaks.cli.seating import listed

    with _turns() as turns:
        return listed(turns)


@session.command()
@click.option(
    "--idle-seconds",
    type=float,
    callback=_seconds,
    metavar="N",
    help="Free what nobody has used for so long; default: the pool's idle timeout.",
)
@click.option("--no-save", is_flag=True, help="Do not save what is unsaved.")
def cleanup(idle_seconds: float | None, no_save: bool) -> Reply:
    """Free the desks that nobody uses, saving what is unsaved."""
    from pytest_peaks.cli.seating import cleaned

    with _turns() as turns:
        return cleaned(turns, turns.cleanup(idle_seconds, save=not no_save), idle_seconds)


@session.command()
@click.option("--config", "show_config", is_flag=True, help="Print what an MCP client is configured with.")
@click.option("--up", is_flag=True, help="Start the desks, and try those again that were put aside.")
@click.option("--down", is_flag=True, help="End the desks at which nobody sits.")
def pool(show_config: bool, up: bool, down: bool) -> Reply:
    """Show the desks; start them; print a client's configuration."""
    from pytest_peaks.cli import pooling

    if show_config + up + down > 1:
        raise click.UsageError("--config, --up and --down contradict each other")
    with _turns() as turns:
        if show_config:
            return pooling.client_entries(turns)
        if up:
            return pooling.brought_up(turns)
        if down:
            return pooling.brought_down(turns)
        return pooling.pool_shown(turns)


@session.command()
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, metavar="SECONDS", help="From look to look."
)
@click.option("--looks", type=click.IntRange(1), metavar="N", help="End after so many looks.")
@click.pass_obj
def watch(printer: Printer, interval: float, looks: int | None) -> Reply | None:
    """Show who sits where, idle for how long, with how much memory, on which page; Ctrl-C ends it."""
    from pytest_peaks.cli.watch import lines
    from pytest_peaks.cli.watch import watch as show
    from pytest_peaks.desks.overview import rows

    with _turns() as turns:
        if printer.as_json:  # one object: one look
            found = rows(turns)
            return Reply(
                f"{len(found)} desks", {"desks": [row.to_json() for row in found]}, "\n".join(lines(found))
            )
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            show(turns, interval, looks)
        return None
