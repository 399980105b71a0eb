"""Where things are kept: the project's ``.peaks`` folder, the user's runtime dir, short temp dirs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.errors import NotWritableError
from pytest_peaks.session import light
from pytest_peaks.session.identity import ProcessIdentity, machine_mark

GITIGNORE = (
    "# Made by pytest-peaks: run-time files and saved logins do not belong in a repository.\n*\n!pool.json\n"
)

# Chromium puts `org.chromium.Chromium.XXXXXX/SingletonSocket` below TMPDIR and aborts when that is
# longer than a socket's name may be (107 bytes on Linux, 103 on macOS): 62 and 58 are left for TMPDIR.
LONGEST_TMPDIR = 58
# In a session's temp dir: whose it is.
_OWNER_FILE = "owner.json"


def project_root(start: Path) -> Path:
    """The git top level that holds `start`, else `start` itself; always absolute."""
    return Path(light.project_root(str(start)))


@dataclass(frozen=True, slots=True)
class ProjectDirs:
    """The folders of one project.

    :ivar root: the project.
    :ivar base: ``<root>/.peaks``, or a folder in the user's state dir where that can't be written.
    """

    root: Path
    base: Path

    @classmethod
    def locate(cls, root: Path) -> ProjectDirs:
        """Say where the folders of `root` are; creates nothing."""
        base = root / ".peaks"
        if light.can_hold_files(str(base)):
            return cls(root, base)
        import platformdirs

        key = f"{root.name or 'root'}-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        return cls(root, Path(platformdirs.user_state_dir("peaks", appauthor=False)) / "projects" / key)

    def create(self) -> ProjectDirs:
        """Make the folders, with the ``.gitignore`` that keeps them out of repositories.

        :raises NotWritableError: they can't be made.
        """
        try:
            # Those above too, so that nobody else may put a folder of theirs in the place of one.
            self.base.mkdir(parents=True, exist_ok=True, mode=0o755)
            for folder in (self.runtime, self.records, self.profiles, self.logs):
                folder.mkdir(exist_ok=True, mode=0o700 if folder != self.runtime else 0o755)
            ignore = self.base / ".gitignore"
            if not ignore.exists():
                ignore.write_text(GITIGNORE)
        except OSError as error:
            raise NotWritableError(
                f"{self.base} cannot be written to: {error.strerror or error}",
                hint="make the project or the user's state dir (XDG_STATE_HOME) writable",
            ) from error
        return self

    @property
    def runtime(self) -> Path:
        return self.base / "_runtime"

    @property
    def records(self) -> Path:
        return self.base.joinpath(*light.RECORDS)

    @property
    def profiles(self) -> Path:
        return self.runtime / "playwright-userdata"

    @property
    def artifacts(self) -> Path:
        """What named sessions wrote that was given no place: snapshots, screenshots, downloads."""
        return self.runtime / "playwright-cli"

    @property
    def logs(self) -> Path:
        return self.runtime / "logs"


def runtime_dir() -> Path:
    """The user's folder for reservations and locks, machine-wide, mode 0700; made if missing.

    ``PEAKS_RUNTIME_DIR`` names another one (the project's own tests do).

    :raises NotWritableError: it can't be made, or belongs to somebody else.
    """
    chosen = os.environ.get("PEAKS_RUNTIME_DIR")
    folder = Path(chosen) if chosen else _user_runtime_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        info = folder.lstat()
    except OSError as error:
        raise NotWritableError(
            f"the runtime dir {folder} cannot be made: {error.strerror or error}",
            hint="set PEAKS_RUNTIME_DIR to a folder of yours",
        ) from error
    if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
        raise NotWritableError(
            f"the runtime dir {folder} is not a directory of yours",
            hint="set PEAKS_RUNTIME_DIR to a folder of yours",
        )
    if os.name == "posix" and stat.S_IMODE(info.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def _user_runtime_dir() -> Path:
    if sys.platform.startswith("linux"):
        for candidate in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
            if candidate and Path(candidate).is_dir() and os.access(candidate, os.W_OK | os.X_OK):
                return Path(candidate) / "peaks"
        return Path("/tmp") / f"peaks-runtime-{os.getuid()}"
    import platformdirs

    return Path(platformdirs.user_runtime_dir("peaks", appauthor=False))


def node_cache_dir() -> Path | None:
    """Where node may keep what it compiled of Playwright's code, which saves a fifth of its start.

    None if the user has said something about it (``NODE_COMPILE_CACHE``, ``NODE_DISABLE_COMPILE_CACHE``), or
    there is no place for it. Source: Node's documentation of ``module.enableCompileCache``.
    """
    if os.environ.get("NODE_COMPILE_CACHE") or os.environ.get("NODE_DISABLE_COMPILE_CACHE"):
        return None
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("peaks", appauthor=False)) / "node"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def temp_base() -> Path:
    """The folder below which short temp dirs are made.

    TMPDIR where it is short enough for Chromium, else ``/tmp``.

    :raises NotWritableError: neither can be written to.
    """
    candidates = [Path(tempfile.gettempdir())]
    if os.name == "posix":
        candidates += [Path("/tmp"), Path("/var/tmp")]
    room = LONGEST_TMPDIR - len(_temp_name(ProcessIdentity.of_self())) - len("/9999")
    for candidate in candidates:
        short = os.name != "posix" or len(str(candidate)) + 1 <= room
        if short and candidate.is_dir() and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    raise NotWritableError(
        f"no short temp dir: tried {', '.join(map(str, candidates))}",
        hint=f"set TMPDIR to a writable folder whose path is at most {room} characters long",
    )


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _temp_name(owner: ProcessIdentity) -> str:
    return f"peaks-{_user()}-{machine_mark()}-{owner.pid}-{owner.started:x}"


def owner_temp_dir(owner: ProcessIdentity) -> Path:
    """Make the temp dir of one owner. Its name says whose it is, so that a sweep needs no other file."""
    folder = temp_base() / _temp_name(owner)
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():
        raise NotWritableError(f"{folder} belongs to somebody else", hint="remove it, or set another TMPDIR")
    return folder


def session_temp_dir(owner: ProcessIdentity) -> Path:
    """Make the temp dir of a session whose owner's process is not there yet; `owner` has it until then.

    A file in it says whose it is: see :func:`hand_temp_dir_to`.
    """
    # Whole or not at all, so that one without the file never is there to stay.
    made_in = owner_temp_dir(ProcessIdentity.of_self())
    folder = made_in / f"peaks-{_user()}-{machine_mark()}-c{secrets.token_hex(5)}"
    folder.mkdir(mode=0o700)
    hand_temp_dir_to(folder, owner)
    target = made_in.parent / folder.name
    folder.rename(target)
    with contextlib.suppress(OSError):
        made_in.rmdir()
    return target


def hand_temp_dir_to(folder: Path, owner: ProcessIdentity) -> None:
    """Note another owner of a session's temp dir."""
    part = folder / f"{_OWNER_FILE}.part"
    part.write_text(json.dumps(owner.to_json()), encoding="utf-8")
    part.replace(folder / _OWNER_FILE)


def is_session_temp_dir(folder: Path) -> bool:
    """Whether `folder` is one that :func:`session_temp_dir` made on this boot."""
    named = re.fullmatch(rf"peaks-{_user()}-{machine_mark()}-c[0-9a-f]{{10}}", folder.name)
    return named is not None and _is_own_folder(folder)


def temp_dir_owner(folder: Path) -> ProcessIdentity | None:
    """Whose temp dir `folder` is; None if it is none that peaks made on this boot."""
    if is_session_temp_dir(folder):
        try:
            return ProcessIdentity.from_json(json.loads((folder / _OWNER_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return None
    match = re.fullmatch(rf"peaks-{_user()}-{machine_mark()}-([0-9]+)-([0-9a-f]+)", folder.name)
    if not match or not _is_own_folder(folder):
        return None
    me = ProcessIdentity.of_self()
    return ProcessIdentity(int(match[1]), int(match[2], 16), me.host, me.boot, me.namespace)


def _is_own_folder(folder: Path) -> bool:
    """Whether `folder` is a directory of this user's: anybody may make one of such a name in /tmp."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and (not hasattr(os, "getuid") or info.st_uid == os.getuid())


def orphaned_temp_dirs() -> list[Path]:
    """Temp dirs of this user, on this machine and boot, whose owner is dead."""
    bases = {Path(tempfile.gettempdir())}
    with contextlib.suppress(NotWritableError):
        bases.add(temp_base())
    found = []
    for base in bases:
        for folder in base.glob("peaks-*"):
            owner = temp_dir_owner(folder)
            if owner is not None and owner.state() == "dead":
                found.append(folder)
    return sorted(found)
