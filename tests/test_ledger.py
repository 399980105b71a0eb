"""The ledger: who holds a desk is one, a damaged file is named and left alone, and no failure tears it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_peaks.desks import lease as lease_rules
from pytest_peaks.desks import ledger_file, lock
from pytest_peaks.desks.clock import Moment
from pytest_peaks.desks.errors import (
    BadJsonError,
    LeaseLostError,
    NoFreeDeskError,
    SchemaTooNewError,
    WriteFailedError,
)
from pytest_peaks.desks.holding import Owner
from pytest_peaks.desks.lease import Claim, Rules
from pytest_peaks.desks.ledger import Ledger, Session
from pytest_peaks.desks.ledger_file import LedgerFile
from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.desks.turns import Turns
from pytest_peaks.session.identity import ProcessIdentity, State
from pytest_peaks.session.paths import ProjectDirs

PATIENCE = 60.0
ME = ProcessIdentity.of_self()
posix = pytest.mark.skipif(os.name != "posix", reason="signals, modes, flock")


def ledger_of(names: int = 3, seated: int = 2) -> Ledger:
    made = Ledger()
    rules = Rules(made)
    desks = [f"desk-{number}" for number in range(3)]
    rules.configure((desk, "hosted", "") for desk in desks)
    for number in range(names):
        if number < seated:
            claim = rules.seat(f"s{number}", desks[number], ME, "process", browser=True)
            rules.hand_over(claim, ME, "process", ME)
        else:
            made.sessions[f"s{number}"] = Session(None, 1, Moment.now())
    rules.join("waiting", ME)
    return made


@pytest.fixture
def file(tmp_path: Path) -> LedgerFile:
    made = LedgerFile(tmp_path / "ledger" / "playwright-sessions.json")
    with made.changing() as ledger:
        new = ledger_of()
        ledger.desks, ledger.sessions, ledger.epochs = new.desks, new.sessions, new.epochs
    return made


def pool_of(tmp_path: Path, desks: int = 3, ledger: Path | None = None) -> Pool:
    """A pool of desks that are somebody else's MCP servers, so that no browser is needed."""
    root = tmp_path / "project"
    dirs = ProjectDirs(root, root / ".peaks")
    own = dirs.base / "playwright-sessions.json"
    return Pool(
        PoolSettings(
            dirs=dirs,
            config=dirs.base / "pool.json",
            config_exists=True,
            ledger=ledger or own,
            state_dir=dirs.base / "states",
            desks=tuple(DeskSettings(f"desk-{number}", external=True) for number in range(desks)),
            own_ledger=ledger is None,
        )
    )


def take(pool: Pool, name: str, owner: Owner | None = None) -> Claim:
    held = owner or Owner("process", pool.me)
    return pool.take(name, wait=None, browser=False, check=lambda _: None, owner=held)


@contextlib.contextmanager
def another_process() -> Iterator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None
        yield child, identity
    finally:
        child.kill()
        child.communicate()


def script(text: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def within_time(call: Callable[[], Any]) -> Any:
    """What `call` returns or raises; fails instead of hanging for ever."""
    answers: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            answers.append((call(), None))
        except BaseException as error:
            answers.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert answers, "it hangs"
    result, error = answers[0]
    if error is not None:
        raise error
    return result


def change(file: LedgerFile) -> None:
    with file.changing() as ledger:
        ledger.sessions["another"] = Session(None, 1, Moment.now())


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.01)


# What is in the file


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.json"))
    path.symlink_to("elsewhere.json")


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_huge(path: Path) -> None:
    with path.open("r+b") as opened:
        opened.truncate(ledger_file.LARGEST_LEDGER + 1)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 20),
    "empty": lambda path: path.write_bytes(b""),
    "white": lambda path: path.write_bytes(b" \n"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "twice": lambda path: path.write_bytes(path.read_bytes() * 2),
    "zeros": lambda path: path.write_bytes(b"\0" * 4096),
    "list": lambda path: path.write_text("[]"),
    "null": lambda path: path.write_text("null"),
    "nothing": lambda path: path.write_text("{}"),
    "version": lambda path: path.write_text('{"version": true, "sessions": {}}'),
    "deep": lambda path: path.write_text("[" * 200_000),
    "byte order mark": lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()),
    "huge": make_huge,
    "directory": make_directory,
    "link": make_link,
    "fifo": make_fifo,
}


@posix
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ledger_is_named_without_a_hang_and_left_as_it_is(file: LedgerFile, damage: str) -> None:
    DAMAGE[damage](file.path)
    before = [file.path.lstat(), file.path.read_bytes() if file.path.is_file() else b""]
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for verb in (file.read, lambda: change(file)):
        with pytest.raises(BadJsonError) as caught:
            within_time(verb)
        assert str(file.path) in caught.value.message
        assert len(caught.value.message) < 500
    after = [file.path.lstat(), file.path.read_bytes() if file.path.is_file() else b""]
    assert [after[0].st_ino, after[0].st_mtime_ns, after[1]] == [
        before[0].st_ino,
        before[0].st_mtime_ns,
        before[1],
    ]
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) <= descriptors
    aside = file.set_aside()
    assert aside is not None
    assert os.path.lexists(aside)
    change(file)
    assert list(file.read().sessions) == ["another"]


def test_a_ledger_that_is_fine_is_not_set_aside(file: LedgerFile) -> None:
    assert file.set_aside() is None
    assert list(file.read().sessions) == ["s0", "s1", "s2"]


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, -1, 1e400, "../../x", "leased", "free", "s0", "desk-1", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(inner, (*path, key))


GOOD = ledger_of().to_json(1)
PLACES = list(places(GOOD))


@settings(deadline=None, max_examples=400, database=None)
@given(data=st.data(), where=st.lists(st.sampled_from(PLACES), min_size=1, max_size=2, unique=True))
def test_a_value_of_any_kind_at_any_place_is_refused_or_usable(
    data: st.DataObject, where: list[tuple[Any, ...]], scratch: Path
) -> None:
    content = json.loads(json.dumps(GOOD))
    for path in where:
        inner: Any = content
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in path[:-1]:
                inner = inner[key]
            action = data.draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
            if action == "replace":
                inner[path[-1]] = data.draw(junk)
            elif action == "remove":
                del inner[path[-1]]
            elif isinstance(inner, dict):
                inner[data.draw(st.text(max_size=5) | st.just("../../x"))] = inner.pop(path[-1])
    file = LedgerFile(scratch / "ledger.json")
    file.path.write_text(json.dumps(content))
    before = file.path.read_bytes()
    try:
        ledger = file.read()
    except (BadJsonError, SchemaTooNewError):
        with pytest.raises((BadJsonError, SchemaTooNewError)):
            change(file)
        assert file.path.read_bytes() == before
        return
    assert file.path.read_bytes() == before
    use(Rules(ledger))
    with file.changing() as changed:
        use(Rules(changed))
    if file.path.read_bytes()[:1]:
        file.read()


def use(rules: Rules) -> None:
    """What any verb does with a ledger."""
    for name in rules.vacated():
        rules.leave(rules.reclaim(name, ME))
    rules.prune()
    rules.ahead()
    rules.configure([("desk-0", "hosted", ""), ("desk-9", "external", "")])
    for session in rules.ledger.sessions.values():
        rules.is_held_by_process(session)
    rules.hand_over(rules.seat("newcomer", "desk-9", ME, "process", browser=True), ME, "process")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


def test_what_is_written_is_read_back_and_has_a_line_for_each_session(file: LedgerFile) -> None:
    ledger = ledger_of()
    with file.changing() as changed:
        changed.sessions, changed.desks, changed.epochs = ledger.sessions, ledger.desks, ledger.epochs
        changed.queue = ledger.queue
    assert file.read().to_json(0) == ledger.to_json(0)
    assert sum('"s' in line and '"created_at"' in line for line in file.path.read_text().splitlines()) == 3


@posix
def test_a_ledger_and_its_lock_are_for_nobody_else(file: LedgerFile) -> None:
    for path in (file.path, file.lock_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_change_that_changes_nothing_writes_nothing(file: LedgerFile) -> None:
    before = file.path.stat()
    with file.changing():
        pass
    assert (file.path.stat().st_mtime_ns, file.path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_change_that_fails_changes_nothing(file: LedgerFile) -> None:
    before = file.path.read_bytes()

    def fail() -> None:
        with file.changing() as ledger:
            ledger.sessions.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.path.read_bytes() == before
    change(file)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    assert LedgerFile(tmp_path / "none" / "ledger.json").read() == Ledger()
    assert not list(tmp_path.iterdir())


# Schemas


def test_a_later_schema_is_refused_and_stays(file: LedgerFile) -> None:
    file.path.write_text('{"version": 3, "whatever": []}')
    for verb in (file.read, lambda: change(file), file.set_aside):
        with pytest.raises(SchemaTooNewError, match="version 3 is newer"):
            verb()
    assert file.path.read_text() == '{"version": 3, "whatever": []}'
    assert not list(file.path.parent.glob("*corrupt*"))


def test_a_ledger_of_the_first_design_is_taken_over_with_a_copy_kept(file: LedgerFile) -> None:
    one = {"desk": "desk-0", "status": "active", "created_at": 5, "last_used_at": 7}
    text = json.dumps({"version": 1, "updated_at": 7, "sessions": {"ann": one, "../x": one}})
    file.path.write_text(text)
    assert list(file.read().sessions) == ["ann"]
    assert file.path.read_text() == text, "reading changes nothing"
    with file.changing() as ledger:
        assert ledger.sessions["ann"].desk is None, "nobody can say who held it"
    assert json.loads(file.path.read_text())["version"] == 2
    assert file.read().sessions["ann"].used.wall == 7
    [copy] = file.path.parent.glob("*.v1-*.json")
    assert copy.read_text() == text


# Writing

STEPS = ("opened", "half written", "written", "synced", "replaced", "folder synced")
KILLED = """
    import os, signal, sys
    from pathlib import Path
    from pytest_peaks.desks import ledger_file
    from pytest_peaks.desks.clock import Moment
    from pytest_peaks.desks.ledger import Session

    def die(step):
        if step == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger_file.step = die
    with ledger_file.LedgerFile(Path(sys.argv[1])).changing() as ledger:
        ledger.sessions["new"] = Session(None, 1, Moment.now())
"""


@posix
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_of_a_write_leaves_the_old_content_or_the_new(file: LedgerFile, step: str) -> None:
    old = file.path.read_bytes()
    done = script(KILLED, str(file.path), step, check=False)
    assert done.returncode == -signal.SIGKILL, f"there is no step {step!r}: {done.stderr}"
    is_new = step in ("replaced", "folder synced")
    assert ("new" in file.read().sessions) == is_new
    assert is_new or file.path.read_bytes() == old
    change(file)
    assert ("new" in file.read().sessions) == is_new
    assert sorted(path.name for path in file.path.parent.iterdir()) == [file.path.name, file.lock_path.name]


@posix
@pytest.mark.parametrize("call", ["fsync", "open", "replace", "write"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_disk_that_fails_is_told_and_the_ledger_stays(
    file: LedgerFile, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    def fail_at_write(step: str) -> None:
        if step == {"write": "half written", "open": "opened", "fsync": "written", "replace": "synced"}[call]:
            fail()

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "step", fail_at_write)
        with pytest.raises(WriteFailedError, match=os.strerror(number)):
            change(file)
    assert file.path.read_bytes() == before
    assert not list(file.path.parent.glob(".tmp*"))
    change(file)


@posix
def test_a_file_size_limit_is_told_and_the_ledger_stays(file: LedgerFile) -> None:
    before = file.path.read_bytes()
    said = script(
        """
        import resource, sys
        from pathlib import Path
        from pytest_peaks.desks.clock import Moment
        from pytest_peaks.desks.errors import WriteFailedError
        from pytest_peaks.desks.ledger import Session
        from pytest_peaks.desks.ledger_file import LedgerFile
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        try:
            with LedgerFile(Path(sys.argv[1])).changing() as ledger:
                ledger.sessions["new"] = Session(None, 1, Moment.now())
        except WriteFailedError as error:
            print(error.message)
        """,
        str(file.path),
    )
    assert "File too large" in said.stdout
    assert file.path.read_bytes() == before
    assert not list(file.path.parent.glob(".tmp*"))


@posix
def test_a_folder_that_cannot_be_written_to_is_told_and_the_ledger_is_read_all_the_same(
    file: LedgerFile,
) -> None:
    before = file.path.read_bytes()
    for path, mode in ((file.path, 0o644), (file.lock_path, 0o644), (file.path.parent, 0o555)):
        path.chmod(mode)
    said = script(
        """
        import os, sys
        from pathlib import Path
        from pytest_peaks.desks.clock import Moment
        from pytest_peaks.desks.errors import WriteFailedError
        from pytest_peaks.desks.ledger import Session
        from pytest_peaks.desks.ledger_file import LedgerFile
        import pytest_peaks.desks.lock
        folder = os.open(Path(sys.argv[1]).parent, os.O_RDONLY)
        os.chdir(folder)  # which nobody else can reach by its path
        if os.geteuid() == 0:
            os.seteuid(65534)
        file = LedgerFile(Path(Path(sys.argv[1]).name))
        print(len(file.read().sessions))
        try:
            with file.changing() as ledger:
                ledger.sessions["new"] = Session(None, 1, Moment.now())
        except WriteFailedError as error:
            print(error.message)
        """,
        str(file.path),
    )
    file.path.parent.chmod(0o755)
    assert said.stdout.splitlines() == ["3", f"{file.path.name} cannot be written: Permission denied"]
    assert file.path.read_bytes() == before


# The lock

HOLDER = """
    import os, sys
    from pathlib import Path
    from pytest_peaks.desks.ledger_file import LedgerFile
    with LedgerFile(Path(sys.argv[1])).changing():
        print("held", flush=True)
        input()
"""


@contextlib.contextmanager
def holder(file: LedgerFile) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of a change."""
    held = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(file.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert held.stdout is not None
    assert held.stdout.readline() == "held\n"
    try:
        yield held
    finally:
        held.kill()
        held.communicate()


@posix
def test_a_stopped_holder_of_the_lock_is_named_and_waited_for_no_longer_than_the_limit(
    file: LedgerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "LOCK_NOTICE", 0.1)
    monkeypatch.setattr(ledger_file, "LOCK_TIMEOUT", 0.5)
    said: list[str] = []
    with holder(file) as held:
        held.send_signal(signal.SIGSTOP)
        with pytest.raises(ledger_file.LockTimeoutError) as caught:
            within_time(lambda: change(dataclasses.replace(file, say=said.append)))
        held.send_signal(signal.SIGCONT)
        if sys.platform == "linux":
            assert f"process {held.pid} has it" in caught.value.message
            assert [f"process {held.pid} has it" in line for line in said] == [True]
        assert len(file.read().sessions) == 3, "reading waits for nobody"
    # What had been waited for in vain is not held by this process when it becomes free.
    monkeypatch.setattr(ledger_file, "LOCK_TIMEOUT", PATIENCE)
    change(file)
    script(KILLED, str(file.path), "never")
    assert {"another", "new"} <= set(file.read().sessions)


@posix
def test_a_killed_holder_frees_the_lock_at_once(file: LedgerFile) -> None:
    with holder(file) as held:
        threading.Timer(0.2, held.kill).start()
        within_time(lambda: change(file))


@posix
def test_a_forked_child_of_a_killed_holder_does_not_keep_the_lock(file: LedgerFile) -> None:
    forked = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
            import os, signal, sys, time
            from pathlib import Path
            from pytest_peaks.desks.ledger_file import LedgerFile
            with LedgerFile(Path(sys.argv[1])).changing():
                if os.fork() == 0:
                    print("forked", flush=True)
                    input()
                    os._exit(0)
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGKILL)
        """),
            str(file.path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert forked.stdout is not None
    assert forked.stdout.readline() == "forked\n"
    assert forked.wait(PATIENCE) == -signal.SIGKILL
    within_time(lambda: change(file))  # while the child lives on
    forked.communicate("\n", timeout=PATIENCE)


@posix
def test_a_lock_file_that_is_removed_while_it_is_waited_for_lets_nobody_in_twice(file: LedgerFile) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(30):
            with file.changing() as ledger:
                inside.append(1)
                most.append(len(inside))
                ledger.sessions["s0"].created_at += 1
                time.sleep(0.001)
                inside.pop()

    before = file.read().sessions["s0"].created_at
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with lock.locked(file.lock_path, notice=PATIENCE, limit=PATIENCE, on_notice=lambda: None):
            file.lock_path.unlink()
        time.sleep(0.01)
    assert max(most) == 1
    assert file.read().sessions["s0"].created_at == before + 120


@posix
def test_a_file_system_without_locks_is_told(file: LedgerFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    before = file.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(lock.fcntl, "flock", missing)
        with pytest.raises(WriteFailedError, match=os.strerror(errno.ENOSYS)):
            change(file)
    assert file.path.read_bytes() == before


def test_the_way_without_flock_locks_as_well(tmp_path: Path) -> None:
    path, said = tmp_path / "lock", []
    with (
        lock._polled(path, 1.0, 2.0, lambda: None),
        pytest.raises(lock.NotFreeError),
        lock._polled(path, 0.05, 0.2, lambda: said.append(1)),
    ):
        pass
    assert said == [1]
    with lock._polled(path, 1.0, 2.0, lambda: None):
        pass


# What is left when the ledger is lost


def test_a_lost_ledger_is_made_anew_from_the_seats_and_no_desk_is_given_away_twice(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, desks=2)
    with another_process() as (_, other):
        first = take(pool, "ann", Owner("process", other))
        second = take(pool, "bob")
        pool.settings.ledger.unlink()
        assert pool.look().ledger.seated() == {"desk-0": "ann", "desk-1": "bob"}
        with pytest.raises(NoFreeDeskError, match="desk-0 -> ann, desk-1 -> bob"):
            take(pool, "cleo")
        with pool.changing() as rules:
            rules.heartbeat(first)
            rules.heartbeat(second)
            assert rules.ledger.sessions["ann"].lease.owner == other


def test_epochs_rise_across_a_lost_ledger_also_where_nobody_sits(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, desks=1)
    for _ in range(3):
        last = take(pool, "ann")
        pool.left(last)
    pool.settings.ledger.unlink()
    assert take(pool, "bob").epoch == last.epoch + 1


def test_notes_that_are_damaged_or_anothers_are_passed_over(tmp_path: Path) -> None:
    pool = pool_of(tmp_path)
    take(pool, "ann")
    [note] = pool.seats.folder.iterdir()
    good = json.loads(note.read_text())
    for number, wrong in enumerate(
        [
            {"name": "../../x"},
            {"epoch": -1},
            {"epoch": True},
            {"session": "../x"},
            {"seat": None},
            {"desk": []},
            {"ledger": "/another"},
            {"name": "desk-2"},
            {"epoch": 0},
        ]
    ):
        (pool.seats.folder / f"a{number}.json").write_text(json.dumps({**good, **wrong}))
    (pool.seats.folder / "b.json").write_bytes(b"\0\xff")
    (pool.seats.folder / "c.json").mkdir()
    pool.settings.ledger.unlink()
    assert pool.look().ledger.seated() == {"desk-0": "ann"}


def test_two_ledgers_of_one_project_keep_apart(tmp_path: Path) -> None:
    one, other = pool_of(tmp_path), pool_of(tmp_path, ledger=tmp_path / "other.json")
    claims = [take(one, "ann"), take(other, "ann"), take(other, "bob")]
    one.left(claims[0])
    for pool in (one, other):
        pool.settings.ledger.unlink()
    assert one.look().ledger.seated() == {}
    assert other.look().ledger.seated() == {"desk-0": "ann", "desk-1": "bob"}


# Rules


def test_whoever_waits_gets_the_desk_of_one_that_dies_meanwhile(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, desks=1)
    with another_process() as (child, identity):
        take(pool, "ann", Owner("process", identity))
        got: list[str] = []
        thread = threading.Thread(
            target=lambda: got.append(Turns(pool).seat("bob", wait=PATIENCE).claim.session)
        )
        thread.start()
        wait_until(lambda: pool.file.read().queue, "it waits")
        child.kill()
        child.wait()
        thread.join(PATIENCE / 2)
        assert got == ["bob"]


def test_a_waiter_whom_a_new_ledger_does_not_know_queues_up_again(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, desks=1)
    held = take(pool, "ann")
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(Turns(pool).seat("bob", wait=PATIENCE).claim.session))
    thread.start()
    wait_until(lambda: pool.file.read().queue, "it waits")
    pool.settings.ledger.unlink()
    wait_until(lambda: pool.file.read().queue, "it waits again")
    pool.left(held)
    thread.join(PATIENCE / 2)
    assert got == ["bob"]


def test_a_desk_that_comes_free_is_for_the_first_who_waits_and_for_nobody_who_comes_later(
    tmp_path: Path,
) -> None:
    pool = pool_of(tmp_path, desks=2)
    held = [take(pool, name) for name in ("ann", "bob")]
    with another_process() as (child, other):
        with pool.changing() as rules:
            first, second = rules.join("cleo", other), rules.join("dan", ME)
        pool.left(held[0])
        with pytest.raises(NoFreeDeskError, match="2 wait before"):
            take(pool, "eve")
        rules = pool.look()
        assert rules.may_take(first, pool.free(rules))
        assert not rules.may_take(second, pool.free(rules))
        pool.left(held[1])
        with pytest.raises(NoFreeDeskError):
            take(pool, "eve")
        assert pool.look().may_take(second, ["desk-0", "desk-1"])
        child.kill()
        child.wait()
        assert take(pool, "eve").session == "eve", "the dead wait for nothing"
        assert [waiter.id for waiter in pool.look().ledger.queue] == [second.id]


def elsewhere(**changed: Any) -> ProcessIdentity:
    return dataclasses.replace(ME, **changed)


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (elsewhere(started=ME.started + 1), "dead"),
        (elsewhere(boot="another"), "dead"),
        (elsewhere(host="another"), "foreign"),
        (elsewhere(namespace="another"), "foreign"),
        (ME, "alive"),
    ],
)
@pytest.mark.parametrize("silent", [0.0, 7200.0])
def test_only_the_dead_and_the_silent_who_are_out_of_sight_lose_their_desk(
    owner: ProcessIdentity, state: State, silent: float
) -> None:
    assert owner.state() == state
    ledger, clock = Ledger(), [1000.0]
    rules = Rules(ledger, now=lambda: Moment(1e9, clock[0], "now"))
    rules.configure([("desk", "hosted", "")])
    rules.hand_over(rules.seat("ann", "desk", owner, "process", browser=True), owner, "process")
    clock[0] += silent
    assert rules.vacated() == (["ann"] if state == "dead" or (state == "foreign" and silent) else [])


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 10 * 86400.0])
def test_a_clock_that_is_set_makes_nobody_look_idle(jump: float) -> None:
    before = Moment(2e9, 500.0, "boot")
    assert before.until(Moment(2e9 + jump, 501.0, "boot")) == 1.0
    assert before.until(Moment(2e9 + 30.0, 3.0, "another boot")) == 30.0
    assert before.until(Moment(2e9 - 30.0, 3.0, "another boot")) == 0.0


def test_an_old_lease_does_nothing_any_more(file: LedgerFile) -> None:
    with file.changing() as ledger:
        rules = Rules(ledger)
        old = rules.claim("s0")
        new = rules.reclaim("s0", ME)
        before = ledger.to_json(0)
        acts: list[Callable[[], object]] = [
            lambda: rules.heartbeat(old),
            lambda: rules.leave(old),
            lambda: rules.hand_over(old, ME, "process"),
            lambda: rules.check(dataclasses.replace(new, epoch=old.epoch)),
            lambda: rules.check(dataclasses.replace(new, id=old.id)),
        ]
        for act in acts:
            with pytest.raises(LeaseLostError):
                act()
        assert ledger.to_json(0) == before
        rules.leave(new)
        with pytest.raises(LeaseLostError):
            rules.leave(new)


def test_whatever_was_not_handed_over_is_never_taken_for_a_sessions_own(file: LedgerFile) -> None:
    with file.changing() as ledger:
        rules = Rules(ledger)
        rules.seat("s2", "desk-2", ME, "process", browser=True)
        for _ in range(2):
            rules.reclaim("s2", ME)
            lease = ledger.sessions["s2"].lease
            assert lease is not None
            assert lease.phase == "starting"


# Every order of the steps of three owners at two desks


@dataclasses.dataclass
class Actor:
    """One owner: `idle`, `sits`, `ends` (its own turn), `sweeps` (somebody's), or `dead`."""

    doing: str = "idle"
    claim: Claim | None = None


def test_in_every_order_of_three_owners_steps_at_two_desks_a_desk_has_one_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_rules.secrets, "token_hex", lambda _: "id")  # the epoch alone has to tell
    owners = [elsewhere(pid=number) for number in (1, 2, 3)]
    now = Moment(1e9, 1.0, "boot")
    begin = Ledger()
    Rules(begin, now=lambda: now).configure((desk, "hosted", "") for desk in ("a", "b"))
    start = (json.dumps(begin.to_json(0)), (Actor(), Actor(), Actor()))
    seen, edge = {repr(start)}, [start]
    while edge:
        text, actors = edge.pop()
        for number in range(3):
            for step in ("acquire", "crash", "sweep", "go on", "close", "beat"):
                ledger = Ledger.from_json(json.loads(text))
                changed = [dataclasses.replace(actor) for actor in actors]
                rules = Rules(ledger, seen_by(changed, owners), lambda: now)
                if not act(rules, changed[number], f"s{number}", owners[number], step):
                    continue
                check(rules, changed, owners)
                if max(ledger.epochs.values(), default=0) > 3:
                    continue
                state = (json.dumps(ledger.to_json(0)), tuple(changed))
                if repr(state) not in seen:
                    seen.add(repr(state))
                    edge.append(state)
    assert len(seen) > 1000


def seen_by(actors: list[Actor], owners: list[ProcessIdentity]) -> Callable[[ProcessIdentity], State]:
    return lambda owner: "dead" if actors[owners.index(owner)].doing == "dead" else "alive"


def act(rules: Rules, actor: Actor, name: str, me: ProcessIdentity, step: str) -> bool:
    """Take a step; False if there is none."""
    free = [desk for desk, one in rules.ledger.desks.items() if one.state == "free"]
    session = rules.ledger.sessions.get(name)
    match step, actor.doing:
        case "acquire", "idle" if (
            free and rules.may_take(None, free) and (session is None or not session.desk)
        ):
            actor.claim = rules.seat(name, free[0], me, "process", browser=True)
            rules.hand_over(actor.claim, me, "process")
            actor.doing = "sits"
        case "beat", "sits":
            assert actor.claim is not None
            rules.heartbeat(actor.claim)
        case "close", "sits":
            actor.doing, actor.claim = "ends", rules.reclaim(name, me)
        case "sweep", "idle" if rules.vacated():
            actor.doing, actor.claim = "sweeps", rules.reclaim(rules.vacated()[0], me)
        case "go on", "ends" | "sweeps":
            assert actor.claim is not None
            rules.leave(actor.claim)
            actor.doing, actor.claim = "idle", None
        case "crash", "idle" | "sits" | "ends" | "sweeps":
            actor.doing = "dead"
        case _:
            return False
    return True


def check(rules: Rules, actors: list[Actor], owners: list[ProcessIdentity]) -> None:
    assert not list(rules.ledger.faults())
    holders: dict[str, int] = {}
    for number, actor in enumerate(actors):
        if actor.claim is None or actor.doing == "dead":
            continue
        session = rules.check(actor.claim)  # one that lives is never robbed
        assert session.lease is not None
        assert session.lease.owner == owners[number]
        assert actor.claim.desk not in holders, "two hold one desk"
        holders[actor.claim.desk] = number
    for desk, one in rules.ledger.desks.items():
        waits = [name for name, session in rules.ledger.sessions.items() if session.desk == desk]
        free = one.state == "free"
        assert free != bool(waits)
        assert free or desk in holders or set(waits) <= set(rules.vacated()), f"{desk} is lost for ever"
