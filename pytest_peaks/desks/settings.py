"""The pool's configuration: ``.peaks/pool.json``, flags and environment variables, read and validated once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_peaks.auth.store import FOLDER as AUTH_FOLDER
from pytest_peaks.desks.errors import BadConfigError
from pytest_peaks.desks.table import Table, load, shown
from pytest_peaks.errors import InvalidNameError, InvalidPortError
from pytest_peaks.session.identity import ProcessIdentity, check_name
from pytest_peaks.session.paths import ProjectDirs, project_root
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.spec import BrowserName, BrowserSpec

FIRST_PORT, LAST_PORT = 8911, 8930
DEFAULT_DESKS = ("playwright-desk-1", "playwright-desk-2", "playwright-desk-3")
DEFAULT_IDLE = 1800.0
# Source of the first: Crawlee's sessions (50 uses, an error budget of 3).
DEFAULT_MAX_USES = 50
DEFAULT_MAX_ERRORS = 3
ENV_ROOT = "PEAKS_PLAYWRIGHT_ROOT"
ENV_CONFIG = "PEAKS_PLAYWRIGHT_POOL_CONFIG"
ENV_LEDGER = "PEAKS_PLAYWRIGHT_LEDGER"
ENV_STATES = "PEAKS_PLAYWRIGHT_STATE_DIR"
ENV_PORTS = "PEAKS_DESK_PORTS"
DESK_KEYS = ("name", "port", "browser", "headed", "executable", "endpoint", "mcp_url", "external")
Kind = Literal["hosted", "endpoint", "external"]


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """One desk as configured.

    :ivar port: where the MCP server of a hosted one listens.
    :ivar endpoint: the CDP URL of a browser that somebody else runs.
    :ivar mcp_url: an MCP server that somebody else runs.
    :ivar external: somebody else's MCP server, known by its name only.
    :ivar bare: it was given as a name and nothing else.
    """

    name: str
    port: int = 0
    browser: BrowserName = BrowserName.CHROMIUM
    headed: bool = False
    executable: Path | None = None
    endpoint: str = ""
    mcp_url: str = ""
    external: bool = False
    bare: bool = False

    @property
    def kind(self) -> Kind:
        if self.endpoint:
            return "endpoint"
        return "external" if self.mcp_url or self.external else "hosted"

    @property
    def place(self) -> str:
        return self.endpoint or self.mcp_url

    @property
    def mcp_prefix(self) -> str:
        """What a client's names of the desk's tools begin with."""
        return f"mcp__{self.name}__"

    @property
    def spec(self) -> BrowserSpec:
        return BrowserSpec(
            browser=self.browser, executable=self.executable, headed=self.headed, persistent=True
        )


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A pool as configured.

    :ivar config: its file, which need not exist.
    :ivar idle_timeout: seconds after which ``cleanup`` frees a desk that nobody uses.
    :ivar max_uses: leases after which a desk's browser is replaced.
    :ivar max_errors: failures in a row after which a desk is given up.
    :ivar own_ledger: the ledger is where it is by default.
    :ivar until: a process with which desks end that are started now, unless somebody else comes to sit there.
    """

    dirs: ProjectDirs
    config: Path
    config_exists: bool
    ledger: Path
    state_dir: Path
    desks: tuple[DeskSettings, ...]
    idle_timeout: float = DEFAULT_IDLE
    max_uses: int = DEFAULT_MAX_USES
    max_errors: int = DEFAULT_MAX_ERRORS
    own_ledger: bool = True
    until: ProcessIdentity | None = None

    def desk(self, name: str) -> DeskSettings | None:
        return next((desk for desk in self.desks if desk.name == name), None)


def read_settings(
    *,
    root: Path | None = None,
    config: Path | None = None,
    ledger: Path | None = None,
    state_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> PoolSettings:
    """The pool that flags, environment and configuration ask for, in this order. Creates nothing.

    Relative `config` and `ledger` start at the working directory, a relative `state_dir` at the project.

    :raises BadJsonError: the configuration is no JSON object.
    :raises SchemaTooNewError: a later pytest-peaks wrote it.
    :raises BadConfigError: a value can't be used; names the file, the key and the reason.
    """
    environ = os.environ if environ is None else environ

    def given(flag: Path | None, variable: str) -> Path | None:
        return flag if flag is not None else Path(environ[variable]) if environ.get(variable) else None

    start = given(root, ENV_ROOT) or Path.cwd()
    if not start.is_dir():
        raise BadConfigError(
            f"the project {start} is no directory", hint=f"correct --root, or the variable {ENV_ROOT}"
        )
    dirs = ProjectDirs.locate(project_root(start))
    chosen, noted = given(config, ENV_CONFIG), given(ledger, ENV_LEDGER)
    path = _absolute(chosen, Path.cwd()) if chosen is not None else dirs.base / "pool.json"
    data = Table(path, *load(path, needed=chosen is not None))
    own = dirs.base / "playwright-sessions.json"
    states = given(state_dir, ENV_STATES)
    if states is not None:
        folder = _absolute(states, dirs.root)
    elif "state_dir" in data.values:
        folder = _path(data, "state_dir", dirs.root)
    else:
        folder = dirs.base / "playwright-state"
    _check_state_dir(folder, dirs, data)
    where = _absolute(noted, Path.cwd()) if noted is not None else own
    return PoolSettings(
        dirs=dirs,
        config=path,
        config_exists=data.exists,
        ledger=where,
        state_dir=folder,
        desks=_desks(data, dirs, _ports(environ)),
        idle_timeout=data.seconds("idle_timeout_seconds", DEFAULT_IDLE),
        max_uses=data.count("max_uses", DEFAULT_MAX_USES),
        max_errors=data.count("max_errors", DEFAULT_MAX_ERRORS),
        own_ledger=where == own,
    )


def _desks(data: Table, dirs: ProjectDirs, ports: PortRange) -> tuple[DeskSettings, ...]:
    listed = data.values.get("desks", list(DEFAULT_DESKS))
    if not isinstance(listed, list) or not listed:
        raise data.wrong("desks", f"is {shown(listed)}, not a list with at least one desk")
    made = [_desk(data, number, value, dirs) for number, value in enumerate(listed)]
    names, taken = set(), {desk.port for desk in made if desk.port}
    for number, desk in enumerate(made):
        if desk.name in names:
            raise data.wrong(
                f"desks[{number}]", f"is a second {desk.name!r}", "give each desk a name of its own"
            )
        names.add(desk.name)
    given = [desk.port for desk in made if desk.port]
    if len(taken) < len(given):
        twice = next(port for port in given if given.count(port) > 1)
        raise data.wrong("desks", f"has the port {twice} twice", "give each desk a port of its own")
    placed = []
    for desk in _numbered(made, taken, ports):
        if desk.kind != "hosted" or desk.port:
            placed.append(desk)
            continue
        port = next((port for port in range(ports.first, ports.last + 1) if port not in taken), None)
        if port is None:
            raise data.wrong(
                "desks",
                f"has more than the ports {ports.first}-{ports.last} are enough for",
                f'give some of them a port: {{"name": …, "port": 9001}}, or set {ENV_PORTS}',
            )
        taken.add(port)
        placed.append(replace(desk, port=port))
    return tuple(placed)


def _numbered(desks: list[DeskSettings], taken: set[int], ports: PortRange) -> list[DeskSettings]:
    """Give desks whose name ends in a number the port of that number, which others' coming and going leaves alone."""
    numbered = []
    for desk in desks:
        number = re.search(r"[0-9]{1,5}\Z", desk.name)
        port = ports.first + int(number[0]) - 1 if number is not None else 0
        if (
            desk.kind == "hosted"
            and not desk.port
            and ports.first <= port <= ports.last
            and port not in taken
        ):
            taken.add(port)
            numbered.append(replace(desk, port=port))
        else:
            numbered.append(desk)
    return numbered


def _desk(data: Table, number: int, value: object, dirs: ProjectDirs) -> DeskSettings:
    where = f"desks[{number}]"
    if isinstance(value, str):
        return DeskSettings(_name(data, where, value), bare=True)
    if not isinstance(value, dict):
        raise data.wrong(where, f"is {shown(value)}, not a name or an object")
    table = Table(data.path, value, exists=True, where=f"{where}.")
    table.check_keys(DESK_KEYS)
    if "name" not in value:
        raise data.wrong(where, "has no name", 'such as {"name": "playwright-desk-1"}')
    desk = DeskSettings(
        name=_name(data, f"{where}.name", table.text("name")),
        port=_port(table),
        browser=_browser(table),
        headed=table.flag("headed"),
        executable=_path(table, "executable", dirs.root) if "executable" in value else None,
        endpoint=_url(table, "endpoint", ("ws", "wss", "http", "https")),
        mcp_url=_url(table, "mcp_url", ("http", "https")),
        external=table.flag("external"),
        bare=set(value) == {"name"},
    )
    if desk.kind != "hosted":
        for key in ("port", "browser", "headed", "executable"):
            if key in value:
                raise table.wrong(
                    key, f"is given for a desk that is not hosted here (it has {_why(desk)})", "leave one out"
                )
    if desk.external and desk.endpoint:
        raise table.wrong("external", "and endpoint contradict each other", "leave one out")
    if desk.mcp_url and not desk.endpoint and value.get("external") is False:
        raise table.wrong("external", "is false and contradicts mcp_url", "leave one out")
    return desk


def _why(desk: DeskSettings) -> str:
    return "an endpoint" if desk.endpoint else "an mcp_url" if desk.mcp_url else "external"


def _name(data: Table, where: str, text: str) -> str:
    try:
        return check_name(text, "desk name")
    except InvalidNameError as error:
        raise data.wrong(where, f"is no usable name: {text[:60]!r}", error.hint) from None


def _port(table: Table) -> int:
    if "port" not in table.values:
        return 0
    value = table.values["port"]
    if type(value) is not int or not 1024 <= value <= 65535:
        raise table.wrong("port", f"is {shown(value)}, not a number within 1024-65535")
    return value


def _browser(table: Table) -> BrowserName:
    text = table.text("browser", BrowserName.CHROMIUM)
    if text not in list(BrowserName) or not BrowserName(text).is_chromium:
        known = ", ".join(name for name in BrowserName if name.is_chromium)
        raise table.wrong(
            "browser",
            f"is {text[:40]!r}, none of {known}",
            "a desk has to be blanked, which takes a Chromium",
        )
    return BrowserName(text)


def _url(table: Table, key: str, schemes: tuple[str, ...]) -> str:
    from urllib.parse import urlsplit

    text = table.text(key)
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise table.wrong(key, f"is no URL with {', '.join(schemes)}")
    return text


def _ports(environ: Mapping[str, str]) -> PortRange:
    text = environ.get(ENV_PORTS, "")
    if not text:
        return PortRange(FIRST_PORT, LAST_PORT)
    try:
        found = PortRange.parse(text)
    except InvalidPortError as error:
        raise BadConfigError(f"{ENV_PORTS}: {error.message}", hint=error.hint) from None
    if not found.first:
        raise BadConfigError(f"{ENV_PORTS} is {text!r}", hint="desks have fixed ports: FIRST-LAST")
    return found


def _check_state_dir(folder: Path, dirs: ProjectDirs, data: Table) -> None:
    """States of desks lie apart from saved logins, so that nothing of a desk's ever removes one of those."""
    auth, states = (Path(os.path.realpath(path)) for path in (dirs.base / AUTH_FOLDER, folder))
    if states == auth or auth in states.parents:
        raise data.wrong("state_dir", f"is {folder}, where saved logins are", "name a folder of its own")


def _path(table: Table, key: str, start: Path) -> Path:
    try:
        return _absolute(Path(table.text(key)), start)
    except BadConfigError:
        raise table.wrong(key, f"is {shown(table.values[key])}, no usable path", "write it out") from None


def _absolute(path: Path, start: Path) -> Path:
    try:
        os.fsencode(path)
        return Path(os.path.abspath(start / path.expanduser()))  # noqa: PTH100 - links stay as they are
    except (RuntimeError, ValueError):
        raise BadConfigError(f"{str(path)!r} is no usable path", hint="write it out") from None
