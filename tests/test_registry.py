"""Records: what is written is read back, a bad file is named and hides no good one, a kill tears nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.record import Kind, NewerSchemaError, Record, Status, now_iso
from pytest_peaks.session.registry import Problem, Registry, write_atomically

T = TypeVar("T")
quick = settings(deadline=None, max_examples=150, database=None)

ME = ProcessIdentity.of_self()
RECORD = Record(
    session_id="tty-aabbccddeeff0011",
    port=8931,
    browser="chromium",
    user_data_dir="/abs/path/to/playwright-userdata/tty-aabbccddeeff0011",
    started_at="2026-06-17T15:00:00.000Z",
    owner=ME,
    pid=12345,
    processes={"browser": dataclasses.replace(ME, pid=12345)},
    status="ready",
    temp_dir="/tmp/peaks-x/1",
    run_uid="abc123",
    slot=3,
    worker="gw3",
    endpoints={"cdp": "ws://127.0.0.1:8931/devtools/browser/1"},
)

text = st.text(max_size=40)
# Whatever a file system can name: no NUL, no lone surrogate, no step upwards.
folders = st.just("") | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40).map(
    lambda name: "/" + name
).filter(lambda path: ".." not in Path(path).parts)
identities = st.builds(
    ProcessIdentity,
    pid=st.integers(1, 2**31),
    started=st.integers(),
    host=text,
    boot=text,
    namespace=text,
)
records = st.builds(
    Record,
    session_id=st.from_regex(r"[a-z0-9][A-Za-z0-9@_.-]{0,40}", fullmatch=True),
    port=st.integers(0, 65535),
    browser=text,
    user_data_dir=folders,
    started_at=text,
    owner=identities,
    pid=st.none() | st.integers(0),
    processes=st.dictionaries(st.sampled_from(["browser", "mcp"]), identities),
    status=st.sampled_from(get_args(Status)),
    ephemeral=st.booleans(),
    temp_dir=folders,
    run_uid=text,
    slot=st.none() | st.integers(0),
    worker=text,
    endpoints=st.dictionaries(text, text, max_size=3),
    kind=st.sampled_from(get_args(Kind)),
    terminal=text,
    launch=text,
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(tmp_path / "records")
    made.folder.mkdir()
    made.write(RECORD)
    return made


@pytest.fixture(scope="module")
def scratch() -> Iterator[Registry]:
    """One folder for all examples of a property; a good record is in it."""
    folder = Path(tempfile.mkdtemp(prefix="pkt-"))
    made = Registry(folder)
    made.write(RECORD)
    yield made
    shutil.rmtree(folder)


def within_ten_seconds(call: Any) -> Any:
    """What `call` returns; fails instead of hanging for ever."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(10)
    assert answers, "it hangs"
    return answers[0]


# What is written is read back


@quick
@given(records)
def test_a_record_survives_json(record: Record) -> None:
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


@settings(quick, max_examples=50)
@given(record=records)
def test_a_record_survives_the_disk(scratch: Registry, record: Record) -> None:
    scratch.write(record)
    try:
        assert scratch.read(record.session_id) == record
        listed, problems = scratch.list()
        assert record in listed
        assert RECORD in listed
        assert problems == []
    finally:
        scratch.remove(record.session_id)
    assert scratch.read(record.session_id) is None


def test_the_six_fields_of_the_first_design_keep_their_names_and_formats(registry: Registry) -> None:
    example_of_the_design = json.loads("""
        {
          "terminalId": "tty-aabbccddeeff0011",
          "port": 8931,
          "browser": "chromium",
          "userDataDir": "/abs/path/to/playwright-userdata/tty-aabbccddeeff0011",
          "startedAt": "2026-06-17T15:00:00.000Z",
          "pid": 12345
        }
    """)
    path = registry.folder / "tty-aabbccddeeff0011.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert dict(list(written.items())[:6]) == example_of_the_design
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now_iso())


def test_a_record_is_only_for_its_owner_to_read(registry: Registry) -> None:
    old = os.umask(0)
    try:
        registry.write(RECORD)
    finally:
        os.umask(old)
    assert stat.S_IMODE(registry.path_of(RECORD.session_id).stat().st_mode) == 0o600


def test_records_are_listed_by_id(registry: Registry) -> None:
    for name in ("b", "a", "c"):
        registry.write(RECORD.with_(session_id=name))
    assert [record.session_id for record in registry.list()[0]] == ["a", "b", "c", RECORD.session_id]


def test_removing_is_idempotent_and_a_missing_folder_is_empty(registry: Registry, tmp_path: Path) -> None:
    registry.remove(RECORD.session_id)
    registry.remove(RECORD.session_id)
    assert registry.list() == ([], [])
    assert Registry(tmp_path / "nowhere").list() == ([], [])
    assert Registry(tmp_path / "nowhere").read("x") is None


# What is no record is a ValueError


@quick
@given(junk)
@example(math.nan)
def test_json_that_is_no_record_is_a_value_error(data: object) -> None:
    with pytest.raises(ValueError):
        Record.from_json(data)


KINDS = {
    "terminalId": (str,),
    "port": (int,),
    "browser": (str,),
    "userDataDir": (str,),
    "startedAt": (str,),
    "pid": (int, type(None)),
    "schema": (),
    "status": (),
    "owner": (),
    "identities": (),
    "endpoints": (),
    "ephemeral": (bool,),
    "tempDir": (str,),
    "runUid": (str,),
    "slot": (int, type(None)),
    "worker": (str,),
    "kind": (),
    "terminal": (str,),
    "launch": (str,),
}


def test_every_field_of_a_record_is_tried_with_wrong_types() -> None:
    assert set(KINDS) == set(RECORD.to_json())


@pytest.mark.parametrize("key", KINDS)
@pytest.mark.parametrize("value", [None, True, 7, -1, 0.5, "text", "7", [], ["a"], {"browser": 1}], ids=repr)
def test_a_field_of_the_wrong_type_is_a_value_error(key: str, value: object) -> None:
    data = {**RECORD.to_json(), key: value}
    right = type(value) in KINDS[key] and not (value == -1 or (key.endswith("Dir") and value))
    if right:
        assert Record.from_json(data).to_json() == data
        return
    with pytest.raises(ValueError):
        Record.from_json(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", 65536),
        ("status", "gone"),
        ("kind", "borrowed"),
        ("endpoints", {"cdp": 1}),
        ("endpoints", {"cdp": None}),
        ("identities", {"browser": {}}),
        ("identities", {"browser": 7}),
        ("owner", {**ME.to_json(), "pid": 0}),
        ("schema", 0),
        ("schema", 1.0),
        ("schema", True),
        ("userDataDir", "relative/path"),
        # Paths that the system cannot take, or that lead elsewhere than they seem to.
        ("userDataDir", "/nul\0byte"),
        ("userDataDir", "/lone\ud800surrogate"),
        ("userDataDir", "/up/../and/away"),
        ("userDataDir", "/" + "deep/" * 2000),
        ("userDataDir", "/" + "long" * 64),
        ("tempDir", "/nul\0byte"),
        ("tempDir", "/up/.."),
    ],
)
def test_a_value_that_no_session_can_have_is_a_value_error(key: str, value: object) -> None:
    with pytest.raises(ValueError):
        Record.from_json({**RECORD.to_json(), key: value})


@pytest.mark.parametrize("key", sorted(set(RECORD.to_json()) - {"pid", "slot"}))
def test_a_missing_field_is_a_value_error(key: str) -> None:
    data = RECORD.to_json()
    del data[key]
    with pytest.raises(ValueError):
        Record.from_json(data)


def test_a_later_schema_is_told_apart_from_a_bad_one() -> None:
    with pytest.raises(NewerSchemaError, match="schema 2 is newer than 1"):
        Record.from_json({"schema": 2, "of": "another shape"})


# A bad file hides no good one


@settings(quick, max_examples=100)
@given(content=st.binary(max_size=200) | junk.map(lambda data: json.dumps(data).encode()))
@example(content=b"")
@example(content=b"\xff\xfe\x00")
@example(content=b"\xef\xbb\xbf{}")
@example(content=b"null")
@example(content=b"1" * 5000)
@example(content=b"[" * 100_000)
@example(content=b'{"schema":' * 5000 + b"1" + b"}" * 5000)
def test_arbitrary_content_is_named_and_hides_no_good_record(scratch: Registry, content: bytes) -> None:
    path = scratch.folder / "bad.json"
    path.write_bytes(content)
    listed, problems = scratch.list()
    path.unlink()
    assert listed == [RECORD]
    assert [problem.path for problem in problems] == [path]
    assert problems[0].reason


def test_a_record_cut_off_at_any_byte_is_a_problem(registry: Registry) -> None:
    whole = registry.path_of(RECORD.session_id).read_bytes()
    path = registry.folder / "cut.json"
    # The last byte is the line feed, the one before closes the object.
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        listed, problems = registry.list()
        assert listed == [RECORD], f"cut at {length}"
        assert [problem.path for problem in problems] == [path], f"cut at {length}"


@pytest.mark.skipif(os.name != "posix", reason="FIFOs, sockets and symlinks")
def test_every_kind_of_bad_file_is_named_beside_the_good_records(registry: Registry, tmp_path: Path) -> None:
    folder = registry.folder
    good = registry.path_of(RECORD.session_id).read_text(encoding="utf-8")
    (tmp_path / "good.json").write_text(good, encoding="utf-8")

    (folder / "directory.json").mkdir()
    (folder / "symlink.json").symlink_to(tmp_path / "good.json")
    (folder / "dangling.json").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "fifo.json")
    (folder / "large.json").write_bytes(b" " * (2 * 1024 * 1024))
    (folder / "other-name.json").write_text(good, encoding="utf-8")
    (folder / "nested.json").write_text("[" * 200_000)
    (folder / "duplicate-keys.json").write_text('{"schema": 1, "schema": 1}')
    (folder / "newer.json").write_text('{"schema": 99}')
    (folder / "two.json").write_text(good + good, encoding="utf-8")
    os.close(os.open(os.path.join(os.fsencode(folder), b"\xff.json"), os.O_CREAT, 0o600))

    (folder / "notes.txt").write_text("no record, and none of our business")
    (folder / ".tmp-abc.part").write_text(good[:100])
    (folder / ".hidden.json").write_text("{")
    (folder / "set-aside").mkdir()

    listed, problems = within_ten_seconds(registry.list)
    assert listed == [RECORD]
    found = {problem.path.stem: problem for problem in problems}
    in_place = {"directory", "symlink", "dangling", "fifo", "newer"}
    assert {name for name, problem in found.items() if problem.left_in_place} == in_place
    moved = {"large", "other-name", "nested", "duplicate-keys", "two", os.fsdecode(b"\xff")}
    assert set(found) == in_place | moved
    assert "too many for a record" in found["large"].reason
    assert "names another session" in found["other-name"].reason
    assert "newer" in found["newer"].reason
    for name in found:
        assert within_ten_seconds(lambda name=name: (registry.read(name),)) == (None,)


def test_setting_aside_keeps_the_content_and_a_later_schema_where_it_is(registry: Registry) -> None:
    (registry.folder / "bad.json").write_bytes(b"\x00 secret \xff")
    (registry.folder / "newer.json").write_text('{"schema": 2}')
    _, problems = registry.list()
    moved = [registry.set_aside(problem) for problem in problems]
    assert moved[1] is None
    assert moved[0] is not None
    assert moved[0].read_bytes() == b"\x00 secret \xff"
    assert moved[0].parent == registry.folder / "set-aside"
    assert (registry.folder / "newer.json").read_text() == '{"schema": 2}'
    assert not (registry.folder / "bad.json").exists()

    listed, problems = registry.list()
    assert listed == [RECORD]
    assert [problem.path.name for problem in problems] == ["newer.json"]


def test_two_bad_files_of_one_name_are_both_kept(registry: Registry) -> None:
    for content in ("first", "second"):
        (registry.folder / "bad.json").write_text(content)
        (problem,) = registry.list()[1]
        registry.set_aside(problem)
    kept = {path.read_text() for path in (registry.folder / "set-aside").iterdir()}
    assert kept == {"first", "second"}


def test_setting_aside_what_somebody_else_moved_already_is_no_error(registry: Registry) -> None:
    gone = Problem(registry.folder / "gone.json", "bad")
    assert registry.set_aside(gone) is None


# A kill tears nothing


WRITER = """
import sys
from pathlib import Path
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.identity import ProcessIdentity

registry = Registry(Path(sys.argv[1]))
record = Record("loop", 0, "chromium", "", "", ProcessIdentity.of_self())
print("writing", flush=True)
while True:
    for size in (0, 20_000, 3):
        registry.write(record.with_(worker="x" * size))
"""


def test_a_killed_writer_never_leaves_a_torn_record(registry: Registry) -> None:
    reads = 0
    for round_ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(registry.folder)], stdout=subprocess.PIPE
        ) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"writing\n"
                # Killed after a different number of reads each time, so at a different step of the write.
                for _ in range(5 + 7 * round_):
                    listed, problems = registry.list()
                    assert problems == []
                    reads += sum(record.session_id == "loop" for record in listed)
            finally:
                writer.kill()
        listed, problems = registry.list()
        assert problems == []
        assert {record.session_id for record in listed} <= {"loop", RECORD.session_id}
    assert reads > 0, "the reader never met the writer"
    record = registry.read("loop")
    assert record is not None
    assert len(record.worker) in (0, 3, 20_000)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_keeps_the_old_content_and_leaves_no_litter(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        registry.write(RECORD.with_(port=1))
    monkeypatch.undo()
    assert registry.list() == ([RECORD], [])
    assert [path.name for path in registry.folder.iterdir()] == [f"{RECORD.session_id}.json"]


@pytest.mark.skipif(os.name != "posix", reason="symlinks")
def test_writing_replaces_a_symlink_and_never_follows_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "x.json").symlink_to(victim)
    write_atomically(tmp_path / "x.json", "ours")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "x.json").is_symlink()
