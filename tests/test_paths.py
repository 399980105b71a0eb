"""Where things are kept: found from anywhere in a project, private to the user, short enough for Chromium."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from leaks import Surroundings

from pytest_peaks.errors import NotWritableError
from pytest_peaks.session import paths
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs, project_root

posix = pytest.mark.skipif(os.name != "posix", reason="modes, owners and symlinks")
linux = pytest.mark.skipif(sys.platform != "linux", reason="XDG folders")
ME = ProcessIdentity.of_self()
DEAD = dataclasses.replace(ME, started=ME.started + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def state_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's state dir of the test's own."""
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder / "state"


# The project


def test_a_project_is_found_from_its_subfolders_and_through_symlinks(folder: Path) -> None:
    project = folder / "project"
    (project / ".git").mkdir(parents=True)
    (project / "tests" / "deep").mkdir(parents=True)
    assert project_root(project) == project
    assert project_root(project / "tests" / "deep") == project
    if os.name == "posix":
        (folder / "link").symlink_to(project / "tests")
        assert project_root(folder / "link") == project


def test_a_worktree_is_a_project_of_its_own(folder: Path) -> None:
    main, worktree = folder / "main", folder / "main" / "worktrees" / "feature"
    (main / ".git").mkdir(parents=True)
    (worktree / "tests").mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {main}/.git/worktrees/feature\n")
    assert project_root(worktree / "tests") == worktree
    assert project_root(main / "worktrees") == main


def test_without_git_the_folder_itself_is_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "plain").mkdir()
    monkeypatch.chdir(folder)
    # A .git above the temp dir of this machine is not looked for here: relative paths become absolute.
    assert project_root(Path("plain")).is_absolute()
    assert (folder / "plain").is_relative_to(project_root(Path("plain")))


def test_the_folders_are_in_the_project_and_out_of_its_repository(folder: Path) -> None:
    dirs = ProjectDirs.locate(folder)
    assert dirs.base == folder / ".peaks"
    assert not dirs.base.exists(), "locating creates nothing"
    dirs.create()
    dirs.create()
    assert dirs.records == folder / ".peaks" / "_runtime" / "playwright-sessions"
    assert dirs.profiles == folder / ".peaks" / "_runtime" / "playwright-userdata"
    for made in (dirs.records, dirs.profiles, dirs.logs):
        assert made.is_dir()
        if os.name == "posix":
            assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0
    lines = (dirs.base / ".gitignore").read_text().splitlines()
    assert lines[0].startswith("# Made by pytest-peaks")
    assert lines[1:] == ["*", "!pool.json"]


def test_git_sees_nothing_of_the_folders_but_pool_json(folder: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-c", "core.excludesFile=", *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    git("init", "-q")
    dirs = ProjectDirs.locate(folder).create()
    (dirs.records / "a.json").write_text("{}")
    (dirs.base / "auth").mkdir()
    (dirs.base / "auth" / "admin.json").write_text("{}")
    assert git("status", "--porcelain", "--untracked-files=all") == ""
    (dirs.base / "pool.json").write_text("{}")
    assert git("status", "--porcelain", "--untracked-files=all") == "?? .peaks/pool.json\n"


def test_a_gitignore_that_was_edited_is_left_alone(folder: Path) -> None:
    (folder / ".peaks").mkdir()
    (folder / ".peaks" / ".gitignore").write_text("mine\n")
    ProjectDirs.locate(folder).create()
    assert (folder / ".peaks" / ".gitignore").read_text() == "mine\n"


@linux
@pytest.mark.parametrize("obstacle", ["file", "dangling symlink", "not writable"])
def test_a_project_that_cannot_hold_files_has_them_in_the_users_state_dir(
    folder: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    project, other = folder / "a" / "project", folder / "b" / "project"
    for root in (project, other):
        root.mkdir(parents=True)
        if obstacle == "file":
            (root / ".peaks").write_text("in the way")
        elif obstacle == "dangling symlink":
            (root / ".peaks").symlink_to(folder / "nowhere")
    if obstacle == "not writable":
        real = os.access
        below = (str(project), str(other))
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in below and real(path, mode))
    dirs = ProjectDirs.locate(project)
    assert dirs.root == project
    assert dirs.base.is_relative_to(state_home / "peaks" / "projects")
    assert dirs.base.name.startswith("project-")
    assert dirs.base != ProjectDirs.locate(other).base, "two projects of one name share a folder"
    assert dirs == ProjectDirs.locate(project)
    dirs.create()
    assert dirs.records.is_dir()
    assert (dirs.base / ".gitignore").exists()


@pytest.mark.parametrize("obstacle", ["_runtime", "_runtime/playwright-sessions", "_runtime/logs"])
def test_folders_that_cannot_be_made_are_an_error_that_names_the_place(folder: Path, obstacle: str) -> None:
    path = folder / ".peaks" / obstacle
    path.parent.mkdir(parents=True)
    path.write_text("in the way")
    with pytest.raises(NotWritableError) as caught:
        ProjectDirs.locate(folder).create()
    assert str(folder / ".peaks") in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 4


# The user's runtime dir


def test_the_runtime_dir_is_made_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKS_RUNTIME_DIR", str(folder / "new" / "runtime"))
    old = os.umask(0)
    try:
        made = paths.runtime_dir()
    finally:
        os.umask(old)
    assert made == folder / "new" / "runtime"
    if os.name == "posix":
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o701])
def test_a_runtime_dir_that_others_can_enter_is_tightened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    runtime = folder / "runtime"
    runtime.mkdir(exist_ok=True)
    runtime.chmod(mode)
    monkeypatch.setenv("PEAKS_RUNTIME_DIR", str(runtime))
    assert stat.S_IMODE(paths.runtime_dir().stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("kind", ["file", "symlink", "dangling symlink", "fifo", "below a file"])
def test_a_runtime_dir_that_is_something_else_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    runtime = chosen = folder / "chosen"
    if kind == "file":
        runtime.write_text("mine")
    elif kind == "fifo":
        os.mkfifo(runtime)
    elif kind == "below a file":
        runtime.write_text("mine")
        chosen = runtime / "below"
    else:
        target = folder / "target"
        if kind == "symlink":
            target.mkdir(mode=0o755)
        runtime.symlink_to(target)
    monkeypatch.setenv("PEAKS_RUNTIME_DIR", str(chosen))
    with pytest.raises(NotWritableError) as caught:
        paths.runtime_dir()
    assert str(chosen) in caught.value.message
    assert "PEAKS_RUNTIME_DIR" in caught.value.hint
    if kind == "symlink":
        assert stat.S_IMODE((folder / "target").stat().st_mode) == 0o755, "what it points to was changed"


@posix
def test_a_runtime_dir_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = folder / "theirs"
    runtime.mkdir(mode=0o755)
    monkeypatch.setenv("PEAKS_RUNTIME_DIR", str(runtime))
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(NotWritableError, match="not a directory of yours"):
        paths.runtime_dir()
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o755


@linux
def test_the_runtime_dir_is_below_xdg_runtime_dir_where_that_is_usable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEAKS_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert paths.runtime_dir() == folder / "peaks"


@linux
@pytest.mark.parametrize("given", [None, "", "/no/such/folder"])
def test_without_xdg_runtime_dir_there_is_a_fallback_of_the_users_own(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", given)
    # As on a machine without /run/user; only the name is asked for, nothing is made.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert paths._user_runtime_dir() == Path("/tmp") / f"peaks-runtime-{os.getuid()}"


# Short temp dirs


def test_an_owners_temp_dir_is_in_tmpdir_private_and_tells_whose_it_is(surroundings: Surroundings) -> None:
    made = paths.owner_temp_dir(ME)
    try:
        assert made == paths.owner_temp_dir(ME)
        assert paths.temp_dir_owner(made) == ME
        if os.name == "posix":
            assert stat.S_IMODE(made.stat().st_mode) == 0o700
    finally:
        made.rmdir()


@posix
@pytest.mark.parametrize("length", [18, 24, 30, 40, 63, 100, 200])
def test_a_sessions_temp_dir_is_never_too_long_for_a_socket_of_chromiums(
    folder: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    base = Path(os.path.realpath(os.environ["TMPDIR"]))
    long = base / ("x" * max(1, length - len(str(base)) - 1))
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    name = paths._temp_name(ME)
    made = paths.temp_base() / name / "9999"
    # Chromium puts "org.chromium.Chromium.XXXXXX/SingletonSocket" below it; a socket's name has 107 bytes at most.
    assert len(str(made)) <= 62
    assert len(str(made / "org.chromium.Chromium.XXXXXX" / "SingletonSocket")) <= 107
    assert paths.temp_base().is_dir()
    if len(str(long / name / "9999")) <= paths.LONGEST_TMPDIR:
        assert paths.temp_base() == long, "a TMPDIR that is short enough is used"


@posix
def test_the_longest_names_of_owners_fit_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = dataclasses.replace(ME, pid=4194304, started=10**9)
    monkeypatch.setattr(ProcessIdentity, "of_self", lambda: owner)
    monkeypatch.setattr(os, "getuid", lambda: 60000)
    assert len(str(paths.temp_base() / paths._temp_name(owner) / "9999")) <= 62


def test_no_usable_temp_dir_is_an_error_that_lists_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tmpdir = tempfile.gettempdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotWritableError, match="no short temp dir") as caught:
        paths.temp_base()
    assert tmpdir in caught.value.message
    assert "TMPDIR" in caught.value.hint


@posix
def test_only_temp_dirs_of_dead_owners_of_this_user_and_boot_are_orphans(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp = surroundings.temp
    mark, user = paths.machine_mark(), os.getuid()
    mine, orphan = paths._temp_name(ME), paths._temp_name(DEAD)
    folders = [
        mine,
        orphan,
        f"peaks-{user}-{'0' * 8}-1-1",  # another boot, host or namespace
        f"peaks-{user + 1}-{mark}-1-1",  # another user
        f"peaks-{user}-{mark}-1",
        f"peaks-{user}-{mark}-1-1-1",
        f"peaks-{user}-{mark}-x-1",
        f"peaks-{user}-{mark}-1-XYZ",
        f"peaks-{user}-{mark}-\u0661-1",
        f"peaks-{user}-{mark}-1-1\n",
        f"x{orphan}",
        "peaks-",
        "peaks-notes",
    ]
    try:
        for name in folders:
            (temp / name).mkdir()
        (temp / f"peaks-{user}-{mark}-999999999-1").write_text("a file")
        (temp / f"peaks-{user}-{mark}-999999998-1").symlink_to(temp / orphan)
        # A TMPDIR that is short enough is the only place besides what temp_base falls back to.
        monkeypatch.setattr(paths, "temp_base", lambda: temp)
        assert paths.orphaned_temp_dirs() == [temp / orphan]
    finally:
        monkeypatch.undo()


@posix
def test_a_temp_dir_that_somebody_else_made_under_our_name_is_left_alone(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (surroundings.temp / paths._temp_name(DEAD)).mkdir()
    monkeypatch.setattr(paths, "temp_base", lambda: surroundings.temp)
    assert len(paths.orphaned_temp_dirs()) == 1
    real = Path.lstat

    def somebody_elses(path: Path) -> os.stat_result:
        found = list(real(path))
        found[stat.ST_UID] = os.getuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", somebody_elses)
    assert paths.orphaned_temp_dirs() == []
    with pytest.raises(NotWritableError, match="belongs to somebody else"):
        paths.owner_temp_dir(DEAD)
