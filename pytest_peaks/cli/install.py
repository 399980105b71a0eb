"""``peaks install``: make sure that there is a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pytest_peaks.cli.output import PeaksCommand, Reply
from pytest_peaks.errors import InstallFailedError, PeaksError
from pytest_peaks.session.spec import BrowserName, BrowserSpec

if TYPE_CHECKING:
    from pytest_peaks.cli.ways import Machine, Way
    from pytest_peaks.session.browsers import Found


@click.command(cls=PeaksCommand)
@click.argument("browser", type=click.Choice([str(name) for name in BrowserName]), default="chromium")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing.")
def install(browser: str, *, dry_run: bool) -> Reply:
    """Make sure that BROWSER (default: chromium) is on this machine.

    Changes nothing if it is. Else tries Playwright's download, then the system's packages, and
    never calls sudo.
    """
    from pytest_peaks.cli.ways import Machine

    return ensure(BrowserName(browser), Machine.here(), dry_run=dry_run)


def ensure(browser: BrowserName, machine: Machine, *, dry_run: bool = False) -> Reply:
    """Install `browser` unless it is there; says which it is.

    :raises InstallFailedError: no way worked; names each, with what the user can run.
    """
    from pytest_peaks.cli import ways

    seen = _look(browser)
    if isinstance(seen, Seen):
        return _reply(f"{browser} is there", seen, changed=False)
    plan = ways.ways(browser, machine)
    if dry_run:
        return _dry(browser, [way for way in plan if isinstance(seen, way.mends)], seen)
    tried: list[str] = []
    by_hand: list[str] = []
    for way in plan:
        if not isinstance(seen, way.mends):
            continue
        if way.act is None:
            tried.append(f"{way.name}: {way.reason}")
            by_hand.append(way.command)
            continue
        try:
            way.act()
        except ways.WayFailedError as error:
            tried.append(f"{way.name}: {error}")
            continue
        seen = _look(browser)
        if isinstance(seen, Seen):
            return _reply(f"{browser} was installed by `{way.command}`", seen, changed=True)
        tried.append(f"{way.name}: it ran, and still: {seen.message}")
    commands = by_hand or [way.command for way in plan if isinstance(seen, way.mends)]
    raise InstallFailedError(
        f"{browser} could not be installed: {'; '.join(tried)}",
        hint="run by hand, as root where it needs that: "
        + " or ".join(f"`{command}`" for command in commands),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """A browser that is there and runs.

    :ivar version: empty where it was not asked.
    """

    found: Found
    version: str


def _look(browser: BrowserName) -> Seen | PeaksError:
    """The browser that a test would get, or what is wrong with it."""
    from pytest_peaks.cli.probe import version_of
    from pytest_peaks.session import browsers

    try:
        found = browsers.find(BrowserSpec(browser=browser))
        return Seen(found, version_of(found.executable) if found.executable else "")
    except PeaksError as error:
        return error


def _reply(what: str, seen: Seen, *, changed: bool) -> Reply:
    found = seen.found
    where = str(found.executable or "in Playwright's own folder")
    version = f" ({seen.version})" if seen.version else ""
    return Reply(
        f"{what}: {where}{version}",
        {
            "browser": str(found.browser),
            "executable": found.executable,
            "source": found.source,
            "version": seen.version,
            "changed": changed,
        },
    )


def _dry(browser: BrowserName, plan: list[Way], why: PeaksError) -> Reply:
    """What would be done."""
    lines = [f"{way.command}" + (f"  (by hand: {way.reason})" if way.act is None else "") for way in plan]
    return Reply(
        f"{browser} would be installed; the first way that works ends it",
        {
            "browser": str(browser),
            "changed": False,
            "missing": why.message,
            "ways": [{"command": way.command, "by_hand": way.act is None, "why": way.reason} for way in plan],
        },
        "\n".join([f"{browser} would be installed, by the first of these that works:", *lines]),
    )
