"""``peaks auth``: saved logins by hand. No verb ever prints a value of one."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, PeaksGroup, Reply
from pytest_peaks.cli.plain import counted

if TYPE_CHECKING:
    from pytest_peaks.auth.model import State
    from pytest_peaks.auth.store import Entry

STDIN = "-"


@click.group(cls=PeaksGroup)
def auth() -> None:
    """Saved logins: save, look at, check and move them."""


@auth.command(cls=PeaksCommand)
@click.argument("name")
@click.option("--url", metavar="URL", help="Open a browser window here, and save when you have logged in.")
@click.option("--from", "terminal", metavar="TERMINAL", help="Take the login of a hosted session.")
@click.option("--until", metavar="GLOB", help="With --url: save as soon as the page's URL is like this.")
@click.option(
    "--headless", is_flag=True, help="With --until: without a window, for pages that log in by themselves."
)
@project_option
def save(
    name: str, url: str | None, terminal: str | None, until: str | None, headless: bool, project: Path | None
) -> Reply:
    """Save the login NAME, from a window in which you log in, or from a hosted session."""
    from pytest_peaks.auth import by_hand
    from pytest_peaks.auth.store import Store

    if (url is None) == (terminal is None):
        raise click.UsageError("give either --url or --from")
    if headless and not until:
        raise click.UsageError("--headless needs --until: nobody could say when the login is done")
    dirs = dirs_of(project)
    store = Store(dirs)
    path = store.path(name)
    if terminal is not None:
        captured = by_hand.from_hosted(dirs, name, terminal)
    else:
        assert url is not None, "one of the two is given"
        captured = by_hand.in_a_window(dirs, name, url, until=until, headless=headless, wait=_wait_for_enter)
    store.save(name, captured.state)
    message = f"saved {name}: {_contents(captured.state)}"
    lines = [message, *(f"not saved, since no state can carry it: {lost}" for lost in captured.lost)]
    return Reply(message, {"name": name, "file": path, "lost": list(captured.lost)}, "\n".join(lines))


def _wait_for_enter() -> bool:
    """Wait for the user; False if nobody can press a key."""
    click.echo("Log in in the browser's window, then press Enter here.", err=True)
    return sys.stdin.readline() != ""


@auth.command(cls=PeaksCommand)
@project_option
def ls(project: Path | None) -> Reply:
    """List saved logins: their age, origins and end. Never a value."""
    from pytest_peaks.auth.store import Store

    entries = Store(dirs_of(project)).entries()
    rows = [_row(entry) for entry in entries]
    message = counted(len(rows), "saved login")
    return Reply(message, {"logins": rows}, "\n".join(map(_line, rows)) or message)


@auth.command(cls=PeaksCommand)
@click.argument("name")
@click.option("--account", default="", metavar="KEY", help="Of one account or slot, as `ls` calls it.")
@project_option
def show(name: str, account: str, project: Path | None) -> Reply:
    """Show what is in the login NAME, with every value redacted."""
    from pytest_peaks.auth.describe import described
    from pytest_peaks.auth.store import Store

    state = Store(dirs_of(project)).load(name, account)
    shown = described(state)
    lines = [f"{name}: {_contents(state)}"]
    for cookie in shown["cookies"]:
        lines.append(
            f"  cookie {cookie['name']} of {cookie['domain']}{cookie['path']}, ends {cookie['ends']}"
        )
    for origin in shown["origins"]:
        kept = ", ".join(
            f"{what}: {', '.join(keys)}" for what, keys in origin.items() if what != "origin" and keys
        )
        lines.append(f"  {origin['origin']}  {kept}")
    lines += [f"  not carried: {lost}" for lost in shown["lost"]]
    return Reply(f"login {name}", {"name": name, **shown}, "\n".join(lines))


@auth.command(cls=PeaksCommand)
@click.argument("name")
@click.option(
    "--url", metavar="URL", help="Open this, logged in, and see that nothing sends the browser away."
)
@click.option("--account", default="", metavar="KEY", help="Of one account or slot, as `ls` calls it.")
@project_option
def check(name: str, url: str | None, account: str, project: Path | None) -> Reply:
    """Say whether the login NAME is still good: by its own dates, and with a URL by trying."""
    from pytest_peaks.auth import by_hand
    from pytest_peaks.auth.freshness import stale_reason
    from pytest_peaks.auth.settings import read_auth_settings
    from pytest_peaks.auth.store import Store
    from pytest_peaks.errors import AuthExpiredError

    dirs = dirs_of(project)
    settings = read_auth_settings(dirs.root, name)
    state = Store(dirs).load(name, account)
    reason = stale_reason(state, name, max_age=settings.max_age, now=time.time())
    url = url or settings.url or None
    if reason is None and url:
        reason = by_hand.refusal(dirs, name, state, url)
    if reason is not None:
        raise AuthExpiredError(reason, hint=f"`peaks auth save {name}` renews it")
    tried = f", and {url} takes it" if url else "; --url tries it"
    return Reply(f"auth {name!r} is good by its dates{tried}", {"name": name, "url": url, "good": True})


@auth.command(cls=PeaksCommand)
@click.argument("name")
@click.option("--account", default="", metavar="KEY", help="Of one account or slot, as `ls` calls it.")
@project_option
def rm(name: str, account: str, project: Path | None) -> Reply:
    """Remove the login NAME."""
    from pytest_peaks.auth.store import Store

    path = Store(dirs_of(project)).remove(name, account)
    return Reply(f"removed {path}", {"name": name, "file": path})


@auth.command("import", cls=PeaksCommand)
@click.argument("file", required=False, default="")
@click.option("--name", metavar="NAME", help="Default: the file's name without its ending.")
@click.option("--fd", type=int, metavar="N", help="Read from this open file descriptor instead of a file.")
@project_option
def import_(file: str, name: str | None, fd: int | None, project: Path | None) -> Reply:
    """Keep the storage state in FILE (- for standard input) as a saved login."""
    from pytest_peaks.auth.model import parse_state
    from pytest_peaks.auth.store import Store, read_file

    if bool(file) == (fd is not None):
        raise click.UsageError("give either FILE or --fd")
    if not name and (fd is not None or file == STDIN):
        raise click.UsageError("--name is needed where there is no file's name to take")
    store = Store(dirs_of(project))
    if fd is not None or file == STDIN:
        state = parse_state(_read_descriptor(0 if fd is None else fd), f"descriptor {fd or 0}")
        kept_as = str(name)
    else:
        path = Path.cwd() / Path(file).expanduser()
        kept_as = name or path.stem.lower()
        store.path(kept_as)  # a wrong name is said first
        try:
            state = read_file(path, bound=path.stem)
        except FileNotFoundError:
            raise click.BadParameter(f"{path} does not exist", param_hint="FILE") from None
    target = store.save(kept_as, state)
    return Reply(f"imported {kept_as}: {_contents(state)}", {"name": kept_as, "file": target})


def _read_descriptor(number: int) -> bytes:
    from pytest_peaks.auth.store import LARGEST_STATE, check_size
    from pytest_peaks.errors import InvalidOptionError

    try:
        with os.fdopen(os.dup(number), "rb") as stream:
            content = stream.read(LARGEST_STATE + 1)
    except OSError as error:
        raise InvalidOptionError(
            f"file descriptor {number} cannot be read: {error.strerror or error}",
            hint="peaks auth import --fd 3 --name admin 3<state.json",
        ) from None
    check_size(len(content), f"descriptor {number}")
    return content


@auth.command(cls=PeaksCommand)
@click.argument("name")
@click.argument("file")
@click.option("--account", default="", metavar="KEY", help="Of one account or slot, as `ls` calls it.")
@project_option
def export(name: str, file: str, account: str, project: Path | None) -> Reply:
    """Write the login NAME to FILE as a plain storage state (mode 0600), for another tool."""
    from pytest_peaks.auth.store import Store, write_file

    state = Store(dirs_of(project)).load(name, account)
    path = Path.cwd() / Path(file).expanduser()
    write_file(path, state, bound="")
    return Reply(f"exported {name} to {path}; it holds secrets in plain text", {"name": name, "file": path})


def _contents(state: State) -> str:
    from pytest_peaks.auth.describe import contents

    return contents(state)


def _row(entry: Entry) -> dict[str, Any]:
    from pytest_peaks.auth.describe import row

    return row(entry, time.time())


def _line(row: dict[str, Any]) -> str:
    name = row["name"] + (f"  account={row['account']}" if row["account"] else "")
    if row["problem"]:
        return f"{name}  {row['problem']}"
    age = row["age"] or "?"
    return (
        f"{name}  age={age}  cookies={row['cookies']}  origins={','.join(row['origins']) or '-'}  "
        f"ends={row['ends']}  {'encrypted' if row['encrypted'] else 'plain'}"
    )
