"""User-data dirs: which may be used, that one browser at a time has one, and that a removal stays inside."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_peaks.errors import InvalidUserDataDirError, ProfileInUseError
from pytest_peaks.session import profiles
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.processes import wait_until

quick = settings(deadline=None, max_examples=80, database=None, suppress_health_check=[HealthCheck.too_slow])
posix = pytest.mark.skipif(os.name != "posix", reason="symlinks and signals")
ME = ProcessIdentity.of_self()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = Path(os.path.realpath(tmp_path)) / "project"
    made.mkdir()
    return made


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# Which may be used


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        "profiles/alice",
        "with spaces/and more",
        "gr\u00fc\u00df-\u4e2d\u6587-\U0001f600",
        "100%25",
        "a'b\"c",
        "-rf",
    ],
)
def test_a_relative_path_starts_at_the_project_and_is_made(root: Path, name: str) -> None:
    path = profiles.check_user_data_dir(name, root)
    assert path == root / name
    assert path.is_dir()
    assert profiles.check_user_data_dir(path, root) == path


def test_a_path_outside_the_project_and_one_below_home_are_accepted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    assert profiles.check_user_data_dir("../elsewhere", root) == root.parent / "elsewhere"
    assert profiles.check_user_data_dir("~/profile", root) == home / "profile"


def refused(text: str | Path, root: Path) -> InvalidUserDataDirError:
    with pytest.raises(InvalidUserDataDirError) as caught:
        profiles.check_user_data_dir(text, root)
    assert caught.value.hint
    return caught.value


def test_the_project_what_is_above_it_and_the_home_folder_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for text in (
        ".",
        "",
        "..",
        "sub/..",
        root,
        root.parent,
        *root.parents,
        root.anchor,
        "~",
        home,
        home / ".",
    ):
        assert "must not be a browser's profile" in refused(text, root).message


@posix
def test_a_symlink_to_the_project_or_the_home_folder_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for number, target in enumerate((root, root.parent, home, Path("/"))):
        link = root / f"link{number}"
        link.symlink_to(target)
        assert "must not be a browser's profile" in refused(link.name, root).message


def test_a_file_is_refused(root: Path) -> None:
    (root / "file").write_text("mine")
    assert "not a directory" in refused("file", root).message
    assert "cannot be made" in refused("file/below", root).message
    assert (root / "file").read_text() == "mine"


@posix
def test_a_symlink_to_a_file_is_refused(root: Path) -> None:
    (root / "file").write_text("mine")
    (root / "link").symlink_to(root / "file")
    assert "not a directory" in refused("link", root).message


@pytest.mark.parametrize(
    "text", ["x" * 300, "deep/" * 2000, "nul\0byte", "~no-such-user-of-this-machine/profile"]
)
def test_a_path_that_the_system_cannot_make_is_refused(root: Path, text: str) -> None:
    refused(text, root)
    assert list(root.iterdir()) == []


@posix
def test_a_loop_of_symlinks_is_refused(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    refused("a", root)


def test_a_directory_that_cannot_be_written_to_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written to" in refused("profile", root).message


# Who has it


def test_a_second_session_is_refused_and_told_who_has_the_profile(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    profiles.hold(profile, ME, "first")
    profiles.hold(profile, ME, "first")
    with pytest.raises(ProfileInUseError, match=f"session first .process {ME.pid} on {ME.host}"):
        profiles.hold(profile, ME, "second")
    profiles.release(profile, "second")
    with pytest.raises(ProfileInUseError):
        profiles.hold(profile, ME, "second")
    profiles.release(profile, "first")
    profiles.hold(profile, ME, "second")


@posix
def test_a_profile_is_the_same_one_through_a_symlink(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    (root / "link").symlink_to(profile)
    profiles.hold(profile, ME, "first")
    with pytest.raises(ProfileInUseError, match="session first"):
        profiles.hold(root / "link", ME, "second")
    with pytest.raises(ProfileInUseError, match="session first"):
        profiles.hold(profiles.check_user_data_dir("link", root), ME, "second")
    profiles.release(root / "link", "first")
    profiles.hold(root / "link", ME, "second")
    with pytest.raises(ProfileInUseError, match="session second"):
        profiles.hold(profile, ME, "first")


HOLD = """
import sys
from pathlib import Path
from pytest_peaks.session import profiles
from pytest_peaks.session.identity import ProcessIdentity
profiles.hold(Path(sys.argv[1]), ProcessIdentity.of_self(), "theirs")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_living_process_keeps_its_profile_and_a_killed_ones_is_free_at_once(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    with running(sys.executable, "-c", HOLD, str(profile)) as holder:
        assert line_of(holder) == "held"
        with pytest.raises(ProfileInUseError, match=f"session theirs .process {holder.pid} "):
            profiles.hold(profile, ME, "mine")
        holder.kill()
        holder.wait()
        profiles.hold(profile, ME, "mine")


def singleton_lock(profile: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (profile / "SingletonLock").unlink()
    (profile / "SingletonLock").symlink_to(text)


@posix
def test_chromiums_own_lock_of_another_host_is_honoured(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    singleton_lock(profile, "other-host-with-dashes-4711")
    with pytest.raises(ProfileInUseError, match="process 4711 on host other-host-with-dashes"):
        profiles.hold(profile, ME, "s")
    (profile / "SingletonLock").unlink()
    profiles.hold(profile, ME, "s")


@posix
@pytest.mark.parametrize("number", ["", "0", "x", "99999999999999999999", "\u0661", "1 2"])
def test_chromiums_own_lock_of_no_possible_process_is_stale(root: Path, number: str) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    singleton_lock(profile, f"{platform.node()}-{number}")
    profiles.hold(profile, ME, "s")


@posix
def test_chromiums_own_lock_of_a_dead_process_is_stale(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    with running("sleep", "300") as process:
        singleton_lock(profile, f"{platform.node()}-{process.pid}")
        process.kill()
        process.wait()
        profiles.hold(profile, ME, "s")


@posix
def test_chromiums_own_lock_counts_only_if_that_process_is_a_browser_on_this_profile(root: Path) -> None:
    profile = profiles.check_user_data_dir("alice", root)
    (root / "link").symlink_to(profile)
    wait = ["-c", "print('up', flush=True); input()"]
    for switch, counts in (
        ("--user-data-dir=/somewhere/else", False),
        (f"--user-data-dir={profile}x", False),
        ("--headless", False),
        (f"--user-data-dir={profile}", True),
        (f"--user-data-dir={root / 'link'}", True),
    ):
        with running(sys.executable, *wait, switch) as process:
            assert line_of(process) == "up"
            singleton_lock(profile, f"{platform.node()}-{process.pid}")
            for name in (profile, root / "link"):
                if counts:
                    with pytest.raises(ProfileInUseError, match=f"a browser .process {process.pid}"):
                        profiles.hold(name, ME, "s")
                else:
                    profiles.hold(name, ME, "s")
            profiles.release(profile, "s")


# How one is removed


@pytest.fixture(scope="module")
def yard() -> Iterator[Path]:
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="pkt-")))
    yield folder
    shutil.rmtree(folder)


# So deep that no path of PARTS climbs out of the yard, whatever the product does with it.
DEPTH = "1/2/3/4/5/6/7"


def prepared(yard: Path) -> Path:
    """A folder `inside` with all kinds of things, beside a `victim`; made anew for each example."""
    base = yard / DEPTH
    shutil.rmtree(yard / "1", ignore_errors=True)
    inside = base / "t" / "inside"
    (inside / "a" / "b" / "c").mkdir(parents=True)
    (inside / "inside").mkdir()
    (base / "t" / "victim").mkdir()
    (base / "t" / "victim" / "file").write_text("precious")
    (inside / "keep").write_text("kept")
    (inside / "up").symlink_to("..")
    (inside / "here").symlink_to(".")
    (inside / "out").symlink_to(base / "t" / "victim")
    (inside / "a" / "b" / "away").symlink_to(base / "t" / "victim")
    (inside / "a" / "base").symlink_to(base)
    return inside


def seen(yard: Path) -> dict[str, str]:
    """Everything in the yard, with what it is."""
    found = {}
    for folder, names, files in os.walk(yard):
        for name in [*names, *files]:
            path = Path(folder, name)
            kind = "dir" if path.is_dir() else "file"
            found[str(path)] = f"-> {path.readlink()}" if path.is_symlink() else kind
    return found


PARTS = (
    "a",
    "b",
    "c",
    "inside",
    "victim",
    "up",
    "here",
    "out",
    "away",
    "base",
    "t",
    "keep",
    ".",
    "..",
    "",
    "new",
)


@posix
@quick
@given(parts=st.lists(st.sampled_from(PARTS), max_size=6), start=st.sampled_from(["inside", "t", "relative"]))
@example(parts=[], start="inside")
@example(parts=["."], start="inside")
@example(parts=["up", "inside"], start="inside")
@example(parts=["up", "victim"], start="inside")
@example(parts=["here", "up", "inside"], start="inside")
@example(parts=["..", "victim"], start="inside")
@example(parts=["a", "..", "..", "inside"], start="inside")
@example(parts=["out"], start="inside")
@example(parts=["a"], start="inside")
def test_a_removal_never_touches_anything_that_is_not_strictly_inside(
    yard: Path, parts: list[str], start: str
) -> None:
    inside = prepared(yard)
    before = seen(yard)
    path = {"inside": inside, "t": inside.parent, "relative": Path()}[start].joinpath(*parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiles, "REMOVE_ATTEMPTS", 1)
        patch.chdir(inside)
        gone = profiles.remove_tree(path, inside)
    after = seen(yard)
    lost = {name for name in before if name not in after}
    assert set(after) <= set(before)
    assert inside.is_dir()
    assert all(Path(name).is_relative_to(inside) and Path(name) != inside for name in lost), lost
    assert (inside.parent / "victim" / "file").read_text() == "precious"
    if ".." in path.parts:
        assert not gone
    if lost:
        # Only the one tree that was named, reached as it was named or through links within `inside`.
        assert gone
        real = os.path.realpath(path.parent) + os.sep + path.name
        assert all(name == real or name.startswith(real + os.sep) for name in lost)


@posix
def test_the_tree_goes_and_what_its_symlinks_point_to_stays(yard: Path) -> None:
    inside = prepared(yard)
    assert profiles.remove_tree(inside / "a", inside)
    assert not (inside / "a").exists()
    assert (inside.parent / "victim" / "file").read_text() == "precious"
    assert (inside / "keep").exists()


def test_what_is_not_there_counts_as_gone(yard: Path) -> None:
    inside = prepared(yard)
    assert profiles.remove_tree(inside / "never", inside)


@posix
def test_a_tree_that_another_process_still_writes_to_goes_as_well(root: Path) -> None:
    tree = root / "profile"
    tree.mkdir()
    code = """
import itertools, pathlib, sys, time
tree = pathlib.Path(sys.argv[1])
print("writing", flush=True)
end = time.monotonic() + 0.3
for number in itertools.count():
    if time.monotonic() > end:
        break
    try:
        (tree / f"sub{number % 7}").mkdir(exist_ok=True)
        (tree / f"sub{number % 7}" / str(number)).touch()
    except OSError:
        if not tree.exists():
            break
"""
    with running(sys.executable, "-c", code, str(tree)) as writer:
        assert line_of(writer) == "writing"
        assert wait_until(lambda: any(tree.iterdir()) or writer.poll() is not None, 30)
        assert profiles.remove_tree(tree, root)
    assert not tree.exists()


def test_a_tree_that_cannot_be_removed_is_reported(root: Path) -> None:
    (root / "profile").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiles, "REMOVE_PAUSE", 0.001)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert not profiles.remove_tree(root / "profile", root)
