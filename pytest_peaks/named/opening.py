"""Opening a named session: reserve its name, start a daemon of playwright-cli, wait until it listens."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_peaks.doors import bundled, cli_client, cli_line
from pytest_peaks.errors import (
    PeaksError,
    SessionExistsError,
    SharedBrowserError,
    StartFailedError,
    TooManySessionsError,
)
from pytest_peaks.named import sessions
from pytest_peaks.named.names import check_session_name
from pytest_peaks.named.sessions import Facts, Named
from pytest_peaks.named.settings import CliSettings
from pytest_peaks.named.wish import Wish, browser_of, check_configs, chosen_by_config, profile_for
from pytest_peaks.session import guardian, machine, processes, profiles, spawning
from pytest_peaks.session.browsers import Found
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import child_environment
from pytest_peaks.session.paths import ProjectDirs, hand_temp_dir_to, session_temp_dir
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.startup import log_tail

# Listening after 0.4 s on an idle machine, browser included.
LISTEN_TIMEOUT = 90.0
# playwright-cli's own default for headless browsers, in milliseconds; those with a window stay.
IDLE_TIMEOUT = 60 * 60 * 1000
# Artifacts of sessions that are gone are kept this long, in seconds.
KEEP_ARTIFACTS = 7 * 24 * 3600.0
# Settings in the environment that would make two sessions share something.
_SHARING = ("CDP_ENDPOINT", "USER_DATA_DIR", "ISOLATED", "EXTENSION", "PORT", "CONFIG", "HEADLESS")
# A daemon outlives the shell that set these: the first writes what is typed into its log, and the second has
# it wait for somebody at an inspector.
_DEBUGGING = ("DEBUG", "PWDEBUG")


def open_session(dirs: ProjectDirs, settings: CliSettings, name: str, wish: Wish) -> Named:
    """Open a session; it is ready for commands, and on no page yet.

    Dead sessions of the project are cleared away first.

    :raises InvalidNameError: the name is not allowed; says why and what would be.
    :raises SessionExistsError: a live session has it.
    :raises TooManySessionsError: as many are open as the project allows; names them.
    :raises SharedBrowserError: another session is a guest of the same browser.
    :raises PeaksError: it could not be started; nothing of it is left.
    """
    check_session_name(name, settings.names)
    check_configs(wish)
    found = None if wish.attach or chosen_by_config(wish) else browser_of(wish)
    dirs.create()
    profile = profile_for(dirs, name, wish)
    sessions.quarantine(sessions.look(dirs))
    record = _record(name, wish, profile)
    try:
        _reserve(dirs, settings, record)
        return _start(dirs, name, wish, record, found)
    except BaseException as error:
        _give_up(dirs, record)
        if isinstance(error, OSError):
            raise StartFailedError(f"session {name} cannot be started: {error}") from error
        raise


def _give_up(dirs: ProjectDirs, record: Record) -> None:
    """End a start that failed, and leave nothing of it."""
    current = Registry(dirs.records).read(record.session_id)
    if current is None or current.temp_dir != record.temp_dir:
        current = record  # closed meanwhile, and its name may be another session's by now
    guardian.clear(dirs, current)


def _record(name: str, wish: Wish, profile: Path | None) -> Record:
    """What there is to say of a session that is to be started; makes its temp dir."""
    me = ProcessIdentity.of_self()
    facts = Facts(
        headed=wish.headed,
        persistent=profile is not None,
        attached=wish.attach.partition("=")[2] or wish.attach,
        place=os.getcwd(),  # noqa: PTH109 - text is what is kept
    )
    return Record(
        session_id=sessions.record_id(name),
        port=0,
        browser=wish.browser or "chromium",
        user_data_dir=str(profile or ""),
        started_at=now_iso(),
        owner=me,
        ephemeral=profile is None,
        temp_dir=str(session_temp_dir(me)),
        kind="cli",
        launch=facts.to_text(),
    )


def _reserve(dirs: ProjectDirs, settings: CliSettings, record: Record) -> None:
    """Write the record of a session that is to be started; its name is taken with it."""
    name = record.session_id.removeprefix(sessions.PREFIX)
    with allocating() as runtime:
        live = [session for session in sessions.look(dirs) if session.holds_its_name]
        _check_room(live, settings, name, Facts.from_text(record.launch))
        held, key = Reservations(runtime, "sessions"), guardian.name_key(dirs, record.session_id)
        _check_name_is_free(dirs, name, held.holder(key))
        Registry(dirs.records).write(record)
        held.take(key, record.owner, record.session_id, where=str(dirs.base))


def _check_room(live: list[Named], settings: CliSettings, name: str, facts: Facts) -> None:
    holder = next((session for session in live if session.name == name), None)
    if holder is not None:
        raise SessionExistsError(
            f"session {name} is {holder.state} already: {holder.described()}",
            hint=f"`peaks cli -s={name} …` drives it, `peaks cli -s={name} close` ends it",
        )
    if len(live) >= settings.max_sessions:
        raise TooManySessionsError(
            f"{len(live)} of {settings.max_sessions} sessions are open: "
            + ", ".join(session.described() for session in live),
            hint="close one, or raise cli_max_sessions in [tool.peaks] of pyproject.toml",
        )
    for session in live:
        if facts.attached and _where(session.facts.attached) == _where(facts.attached):
            raise SharedBrowserError(
                f"session {session.name} is a guest of that browser already; two would share its tab and storage",
                hint=f"drive that one, or give the new session a browser of its own: peaks cli -s={name} open",
            )


def _where(attached: str) -> tuple[str, int | None] | str:
    """Host and port of a browser that was given by URL: ``ws://`` and ``http://`` name the same one."""
    try:
        url = urllib.parse.urlsplit(attached)
        host, port = url.hostname, url.port
    except ValueError:
        return attached
    if not host or port is None:
        return attached
    return ("127.0.0.1" if host in ("localhost", "::1") else host), port


def _check_name_is_free(dirs: ProjectDirs, name: str, holder: tuple[ProcessIdentity, str] | None) -> None:
    """Refuse a name whose record is not a named session's. A file that is no record is set aside."""
    registry = Registry(dirs.records)
    records, problems = registry.list()
    path = registry.path_of(sessions.record_id(name))
    taken = next(
        (f"a {record.kind} session has it" for record in records if record.session_id == path.stem), ""
    )
    for problem in problems:
        if problem.path == path and registry.set_aside(problem) is None:
            taken = f"{path}: {problem.reason}"
    if not taken and holder is not None:
        taken = f"process {holder[0].pid} has it"
    if taken:
        raise SessionExistsError(
            f"the name {name} is not free: {taken}", hint="choose another name, or `peaks reap` what is dead"
        )


def _start(dirs: ProjectDirs, name: str, wish: Wish, record: Record, found: Found | None) -> Named:
    temp = Path(record.temp_dir)
    artifacts = _fresh_artifacts(dirs, name)
    if record.user_data_dir:
        profile = Path(record.user_data_dir)
        profiles.hold(profile, record.owner, guardian.profile_holder(record))
        if profile == sessions.profile_of(dirs, name):
            profile.mkdir(mode=0o700, exist_ok=True)
            (profile / profiles.KEEP).touch(mode=0o600)
    workspace = temp / "w"
    (workspace / ".playwright").mkdir(parents=True)
    log = dirs.logs / f"{record.session_id}.log"
    log.unlink(missing_ok=True)
    command = [
        bundled.driver_command()[0],
        str(bundled.cli_daemon_script()),
        name,
        *_switches(wish, record),
        *wish.flags,
    ]
    env = _environment(wish, record, found, artifacts)
    daemon = spawning.spawn_detached(command, env, log, cwd=workspace)
    # Until it is ready it is its opener's, and goes when that dies.
    record = record.with_(processes={"cli": daemon})
    _note(dirs, record)
    hand_temp_dir_to(temp, daemon)
    if record.user_data_dir:
        profiles.hold(Path(record.user_data_dir), daemon, guardian.profile_holder(record))
    socket = _wait_until_listening(name, daemon, log, temp)
    browser = None if wish.attach else _browser_of(daemon)
    record = record.with_(
        owner=daemon,
        pid=browser.pid if browser else None,
        processes={**record.processes, **({"browser": browser} if browser else {})},
        endpoints={"cli": socket},
        status="ready",
        launch=replace(Facts.from_text(record.launch), version=_version()).to_text(),
    )
    _note(dirs, record)
    return Named(dirs, record, "open")


def _note(dirs: ProjectDirs, record: Record) -> None:
    """Write the record of a session that is being started, and whose its name is.

    :raises StartFailedError: somebody has ended the session meanwhile.
    """
    registry = Registry(dirs.records)
    with allocating() as runtime:
        current = registry.read(record.session_id)
        if current is None or current.temp_dir != record.temp_dir:
            name = record.session_id.removeprefix(sessions.PREFIX)
            raise StartFailedError(
                f"session {name} was closed while it was being opened", hint=f"peaks cli -s={name} open"
            )
        registry.write(record)
        key = guardian.name_key(dirs, record.session_id)
        Reservations(runtime, "sessions").take(key, record.owner, record.session_id, where=str(dirs.base))


def _switches(wish: Wish, record: Record) -> list[str]:
    switches = []
    if wish.attach:
        switches.append(f"--{wish.attach}")
    if wish.browser:
        switches.append(f"--browser={wish.browser}")
    if wish.headed:
        switches.append("--headed")
    if record.user_data_dir:
        switches.append(f"--profile={record.user_data_dir}")
    if wish.config is not None:
        switches.append(f"--config={wish.config}")
    if "idle-timeout" in cli_line.surface().commands["open"].flags:
        default = 0 if wish.headed or wish.attach else IDLE_TIMEOUT
        switches.append(f"--idle-timeout={default if wish.idle_timeout is None else wish.idle_timeout}")
    return switches


def _environment(wish: Wish, record: Record, found: Found | None, artifacts: Path) -> Mapping[str, str]:
    """What the daemon is started with: the user's own settings of playwright-cli, but for what would be shared."""
    temp = Path(record.temp_dir)
    own = {key: value for key, value in os.environ.items() if key.startswith("PLAYWRIGHT_MCP_")}
    env = {**own, **child_environment(record.mark, temp)}
    for key in (*(f"PLAYWRIGHT_MCP_{each}" for each in _SHARING), *_DEBUGGING):
        env.pop(key, None)
    env = bundled.cli_scope(env, temp, artifacts, own_list=not wish.attach)
    if wish.attach:
        return env
    if found is not None:
        env["PLAYWRIGHT_MCP_BROWSER"] = str(found.browser)
        if found.executable is not None:
            env["PLAYWRIGHT_MCP_EXECUTABLE_PATH"] = str(found.executable)
    env["PLAYWRIGHT_MCP_SANDBOX"] = "true" if machine.sandbox().usable else "false"
    return env


def _wait_until_listening(name: str, daemon: ProcessIdentity, log: Path, temp: Path) -> str:
    deadline = time.monotonic() + LISTEN_TIMEOUT
    while True:
        alive = daemon.is_alive()  # asked before the log is read, so that its last words are in it
        socket = cli_client.socket_of(temp / "d", name)
        if socket is not None:
            return socket
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if not alive:
            raise _failure(name, text)
        if time.monotonic() > deadline:
            raise StartFailedError(
                f"session {name} was not ready after {LISTEN_TIMEOUT:.0f} s{log_tail(text)}",
                hint="`peaks doctor` says what is wrong with this machine",
            )
        time.sleep(processes.POLL)


def _failure(name: str, log: str) -> PeaksError:
    """What the end of a daemon means, by its last words."""
    processes_hint = "`peaks doctor` says what is wrong with this machine"
    if "ECONNREFUSED" in log or "connectOverCDP" in log:
        processes_hint = "nothing listens at that address; is the browser still there?"
    return StartFailedError(f"session {name} ended before it was ready{log_tail(log)}", hint=processes_hint)


def _browser_of(daemon: ProcessIdentity) -> ProcessIdentity | None:
    """The browser that a daemon has launched."""
    import psutil

    try:
        children = psutil.Process(daemon.pid).children()
    except psutil.Error:
        return None
    return ProcessIdentity.of(children[0].pid) if children else None


def _version() -> str:
    package = Path(bundled.driver_command()[1]).parent / "package.json"
    return str(json.loads(package.read_text(encoding="utf-8")).get("version", ""))


def _fresh_artifacts(dirs: ProjectDirs, name: str) -> Path:
    """An empty folder for what the session writes. What sessions of long ago wrote is removed."""
    folder = sessions.artifacts_of(dirs, name)
    dirs.artifacts.mkdir(mode=0o700, exist_ok=True)
    living = {session.name for session in sessions.look(dirs) if session.holds_its_name}
    for old in [folder, *dirs.artifacts.iterdir()]:
        stale = old == folder or time.time() - old.lstat().st_mtime > KEEP_ARTIFACTS
        if stale and old.is_dir() and (old == folder or old.name not in living):
            profiles.remove_tree(old, dirs.artifacts)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
