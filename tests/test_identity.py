"""A process is the same one only if pid, start time, boot, host and pid namespace agree; a name is only a name."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_peaks.errors import InvalidNameError
from pytest_peaks.session import identity
from pytest_peaks.session.identity import ProcessIdentity, check_name
from pytest_peaks.session.processes import wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
quick = settings(deadline=None, max_examples=200, database=None)

identities = st.builds(
    ProcessIdentity,
    pid=st.integers(1, 2**31),
    started=st.integers(0, 2**63),
    host=st.text(),
    boot=st.text(),
    namespace=st.text(),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = ProcessIdentity.of(process.pid)
    assert found is not None
    return found


def test_a_running_process_is_alive_and_a_collected_one_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    process = of(sleeper)
    assert process.state() == "alive"
    assert process.is_alive()
    sleeper.kill()
    sleeper.wait()
    assert process.state() == "dead"
    assert ProcessIdentity.of(sleeper.pid) is None


@linux
def test_a_zombie_is_dead_although_its_pid_is_still_there(sleeper: subprocess.Popen[bytes]) -> None:
    process = of(sleeper)
    sleeper.kill()
    assert wait_until(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_ZOMBIE, 30)
    assert psutil.pid_exists(sleeper.pid)
    assert process.state() == "dead"
    assert ProcessIdentity.of(sleeper.pid) is None


def test_a_reused_pid_is_not_the_same_process(sleeper: subprocess.Popen[bytes]) -> None:
    process = of(sleeper)
    for started in (process.started - 1, process.started + 1):
        assert dataclasses.replace(process, started=started).state() == "dead"


def test_two_processes_differ_and_one_is_always_itself(sleeper: subprocess.Popen[bytes]) -> None:
    assert of(sleeper) == of(sleeper)
    assert of(sleeper) != ProcessIdentity.of_self()
    assert ProcessIdentity.of_self().pid == os.getpid()


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"boot": "another boot"}, "dead"),
        ({"host": "elsewhere"}, "foreign"),
        ({"namespace": "pid:[1]"}, "foreign"),
        # Another host's boot is of course another one: it says nothing about its processes.
        ({"host": "elsewhere", "boot": "another boot"}, "foreign"),
        ({"boot": "another boot", "namespace": "pid:[1]"}, "dead"),
    ],
)
def test_another_boot_is_dead_and_another_host_or_namespace_foreign(
    sleeper: subprocess.Popen[bytes], changes: dict[str, str], state: str
) -> None:
    process = dataclasses.replace(of(sleeper), **changes)
    assert process.state() == state
    assert not process.is_alive()


@pytest.mark.parametrize("pid", [0, -1, -(10**30), 2**22 + 1, 10**30])
def test_a_pid_that_no_process_can_have_is_dead(pid: int) -> None:
    assert identity.start_of(pid) is None
    assert ProcessIdentity.of(pid) is None


@linux
@pytest.mark.parametrize(
    "name", [b"a) b (c", b") S 1 2 (", b"( Z", b"two words", b"line\nfeed", b"\xff\xfe)"], ids=repr
)
def test_start_time_is_read_whatever_the_command_is_called(tmp_path: Path, name: bytes) -> None:
    executable = os.path.join(os.fsencode(tmp_path), name)
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(os.path.realpath(sleep), executable)
    with subprocess.Popen(["sleep", "300"], executable=executable) as process:
        try:
            found = of(process)
            stat = Path(f"/proc/{process.pid}/stat").read_bytes()
            assert b"(" + name[:15] + b")" in stat, "the kernel shows another name than was meant"
            ticks = os.sysconf("SC_CLK_TCK")
            expected = psutil.Process(process.pid).create_time() - psutil.boot_time()
            assert abs(found.started / ticks - expected) < 1.5
            assert found.is_alive()
        finally:
            process.kill()


def test_machine_mark_is_eight_hex_digits_that_depend_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = identity.machine_mark()
    assert len(mark) == 8
    assert set(mark) <= set("0123456789abcdef")
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert identity.machine_mark.__wrapped__() != mark


@quick
@given(identities)
def test_an_identity_survives_json(process: ProcessIdentity) -> None:
    assert ProcessIdentity.from_json(json.loads(json.dumps(process.to_json()))) == process


@quick
@given(junk)
def test_json_that_is_no_identity_is_a_value_error(data: object) -> None:
    with pytest.raises(ValueError):
        ProcessIdentity.from_json(data)


@quick
@given(process=identities, key=st.sampled_from(["pid", "started", "host", "boot", "namespace"]), value=junk)
@example(ProcessIdentity(1, 1, "", "", ""), "pid", True)
@example(ProcessIdentity(1, 1, "", "", ""), "pid", 0)
@example(ProcessIdentity(1, 1, "", "", ""), "pid", 1.0)
@example(ProcessIdentity(1, 1, "", "", ""), "started", "1")
@example(ProcessIdentity(1, 1, "", "", ""), "host", None)
def test_a_field_of_the_wrong_type_is_a_value_error(
    process: ProcessIdentity, key: str, value: object
) -> None:
    data = {**process.to_json(), key: value}
    right_type = type(value) is (int if key in ("pid", "started") else str)
    if right_type and not (key == "pid" and value < 1):  # type: ignore[operator]
        assert ProcessIdentity.from_json(data).to_json() == data
        return
    with pytest.raises(ValueError, match="identity"):
        ProcessIdentity.from_json(data)


@pytest.mark.parametrize("key", ["pid", "started", "host", "boot", "namespace"])
def test_a_missing_field_is_a_value_error(key: str) -> None:
    data = ProcessIdentity.of_self().to_json()
    del data[key]
    with pytest.raises(ValueError, match="identity"):
        ProcessIdentity.from_json(data)


DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
HOSTILE = [
    *("", ".", "..", "../../x", "a/b", "a\\b", "a\0", "a\n", "\na", " a", "a ", "-rf", "_a", "~", "a.b"),
    *(
        "A",
        "Admin",
        "CON",
        "\u00e9",
        "\u0661",
        "\u212a",
        "\u017f",
        "\ufb00",
        "a\u0300",
        "\u202eabc",
        "\U0001f600",
    ),
    *("a:b", "a;b", "$HOME", "`id`", "a" * 41, "b" * 255),
    *sorted(DEVICES),
]
names = (
    st.text(max_size=60)
    | st.text(string.ascii_letters + string.digits + "-_./\\", max_size=45)
    | st.from_regex(r"[a-z0-9][a-z0-9_-]{0,39}", fullmatch=True)
    | st.sampled_from(HOSTILE)
)


def safe(name: str) -> bool:
    """The promise, said in other words than the product's regular expression."""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    return 1 <= len(name) <= 40 and set(name) <= allowed and name[0] not in "-_" and name not in DEVICES


@settings(quick, max_examples=500)
@given(names)
def test_a_name_is_accepted_only_if_it_is_safe_as_part_of_a_path(name: str) -> None:
    if not safe(name):
        with pytest.raises(InvalidNameError):
            check_name(name)
        return
    assert check_name(name) == name
    for kind, root in ((PurePosixPath, "/data"), (PureWindowsPath, "C:/data")):
        path = kind(root) / name
        assert path.parent == kind(root)
        assert path.name == name
    assert not getattr(os.path, "isreserved", lambda _: False)(name)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:12])
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        check_name(name, "slug")
    assert repr(name) in caught.value.message
    assert "slug" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", [None, 5, 1.5, True, b"admin", ["admin"], Path("admin"), {}])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(InvalidNameError):
        check_name(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "0", "admin", "gmail-2", "a_b", "a" * 40, "com0", "com10", "console"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert check_name(name) == name
