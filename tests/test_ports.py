"""Ports: what a range is, what counts as busy, and that no two owners ever hold one port."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_peaks.errors import (
    InvalidPortError,
    LockTimeoutError,
    PortExhaustedError,
    PortUnavailableError,
)
from pytest_peaks.session import ports, reservations
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.processes import wait_until
from pytest_peaks.session.reservations import Reservations, allocating

quick = settings(deadline=None, max_examples=300, database=None)
ME = ProcessIdentity.of_self()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
posix = pytest.mark.skipif(os.name != "posix", reason="forks and signals")


def free_block(count: int) -> PortRange:
    """`count` ports in a row that nobody listens on, away from the ephemeral ones.

    Each process looks from a place of its own, so that two runs on one machine seldom meet.
    """
    first = 22000 + os.getpid() * 64 % 8000
    while not all(not ports.is_busy(port) for port in range(first, first + count)):
        first += count
    return PortRange(first, first + count - 1)


@contextlib.contextmanager
def listening(host: str, port: int, *, dual_stack: bool = False) -> Iterator[None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, dualstack_ipv6=dual_stack):
        yield


@contextlib.contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is killed in the end, whatever state it is in."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# Ranges


@quick
@given(st.integers(1024, 65535), st.integers(1024, 65535), st.sampled_from(["", " ", "\t"]))
def test_a_range_within_the_limits_is_read_back_as_it_is(one: int, other: int, blank: str) -> None:
    first, last = sorted((one, other))
    parsed = PortRange.parse(f"{blank}{first}{blank}-{blank}{last}{blank}")
    assert parsed == PortRange(first, last, strict=True)
    assert PortRange.parse(str(parsed)) == parsed
    assert PortRange.parse(f"{blank}{first}{blank}") == PortRange(first, first)
    if first < last:
        with pytest.raises(InvalidPortError, match="ends before it begins"):
            PortRange.parse(f"{last}-{first}")


@quick
@given(st.integers())
@example(1023)
@example(65536)
@example(-1)
@example(80)
@example(999_999)
@example(1_000_000)
def test_a_number_outside_the_limits_is_no_port(number: int) -> None:
    if number == 0 or 1024 <= number <= 65535:
        return
    for text in (str(number), f"{number}-9000", f"8000-{number}"):
        with pytest.raises(InvalidPortError):
            PortRange.parse(text)


def test_zero_lets_the_system_choose() -> None:
    for text in ("0", " 0 ", "0-0", "00"):
        assert PortRange.parse(text) == PortRange(0, 0, strict=False)
    for text in ("0-9000", "8000-0"):
        with pytest.raises(InvalidPortError):
            PortRange.parse(text)


NO_RANGES = [
    *("", " ", "-", "abc", "8931x", "x8931", "8931-", "-8931", "8931-9000-9100", "8931--9000", "8931..9000"),
    *(
        "8931,9000",
        "8931.0",
        "8_931",
        "8e3",
        "+8931",
        "-1",
        "0x2345",
        "89 31",
        "8931 9000",
        "8931:9000",
        "true",
    ),
    *(
        "\u0668\u0669\u0663\u0661",
        "\uff18\uff19\uff13\uff11",
        "8931\u20139000",
        "8931\u00a0",
        "\u20038931",
        "8931\0",
        "\u00b2\u00b3\u2074\u2075",
    ),
]


@pytest.mark.parametrize("text", NO_RANGES, ids=ascii)
def test_what_is_no_range_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InvalidPortError) as caught:
        PortRange.parse(text)
    assert repr(text) in caught.value.message
    assert "1024-65535" in caught.value.hint


@settings(quick, max_examples=600)
@given(st.text(max_size=12) | st.text("0123456789- \t.+_x\n", max_size=14))
def test_any_other_text_is_refused_or_means_ports_within_the_limits(text: str) -> None:
    try:
        parsed = PortRange.parse(text)
    except InvalidPortError:
        return
    assert text.isascii()
    assert set(text) <= set("0123456789-") | set(" \t\n\r\f\v")
    assert parsed.first == parsed.last == 0 or 1024 <= parsed.first <= parsed.last <= 65535
    numbers = [int(part) for part in text.split("-")]
    assert (parsed.first, parsed.last) == (numbers[0], numbers[-1])


# What counts as busy


def test_a_port_that_nobody_listens_on_is_free() -> None:
    assert not ports.is_busy(free_block(1).first)


def test_a_port_listened_on_only_on_127_0_0_1_is_busy() -> None:
    port = free_block(1).first
    with listening("127.0.0.1", port):
        assert ports.is_busy(port)
    assert not ports.is_busy(port)


@needs_ipv6
def test_a_port_listened_on_only_on_the_ipv6_loopback_is_busy() -> None:
    port = free_block(1).first
    with listening("::1", port):
        assert ports.is_busy(port)
    assert not ports.is_busy(port)


@needs_ipv6
@pytest.mark.parametrize("dual_stack", [True, False])
def test_a_port_listened_on_on_all_ipv6_addresses_is_busy(dual_stack: bool) -> None:
    port = free_block(1).first
    with listening("::", port, dual_stack=dual_stack):
        assert ports.is_busy(port)


def test_a_port_listened_on_on_all_ipv4_addresses_is_busy() -> None:
    port = free_block(1).first
    with listening("0.0.0.0", port):
        assert ports.is_busy(port)


@posix
def test_a_port_whose_last_connection_is_in_time_wait_is_free() -> None:
    port = free_block(1).first
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first is the one that waits
        assert client.recv(1) == b""
        client.close()
    with socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(("127.0.0.1", port))  # without SO_REUSEADDR: so it is in TIME_WAIT
    assert not ports.is_busy(port)


def socket_module(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """Give ports.py a socket module whose sockets come from `make`."""
    names = ("AF_INET", "AF_INET6", "SOCK_STREAM", "SOL_SOCKET", "SO_REUSEADDR")
    fake = SimpleNamespace(**{name: getattr(socket, name) for name in names}, socket=make)
    monkeypatch.setattr(ports, "socket", fake)


@pytest.mark.parametrize("busy", [True, False])
def test_without_ipv6_sockets_only_ipv4_decides(monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    def make(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return socket.socket(family, kind)

    port = free_block(1).first
    socket_module(monkeypatch, make)
    with listening("127.0.0.1", port) if busy else contextlib.nullcontext():
        assert ports.is_busy(port) is busy


class Refusing(socket.socket):
    """Sockets whose bind fails in a way that the test chooses."""

    reason: tuple[int, str]
    refused: tuple[int, ...]

    def bind(self, address: Any) -> None:
        if self.family in self.refused:
            raise OSError(*self.reason)
        super().bind(address)


def refusing(number: int, *families: int) -> type[Refusing]:
    return type("R", (Refusing,), {"reason": (number, os.strerror(number)), "refused": families})


def test_an_ipv6_loopback_without_an_address_does_not_make_a_port_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_block(1).first
    socket_module(monkeypatch, refusing(errno.EADDRNOTAVAIL, socket.AF_INET6))
    assert not ports.is_busy(port)
    with listening("127.0.0.1", port):
        assert ports.is_busy(port)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EADDRNOTAVAIL, errno.ENOBUFS])
def test_a_port_that_may_not_be_tried_is_an_error_of_its_own_and_not_busy(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    block = free_block(2)
    socket_module(monkeypatch, refusing(number, socket.AF_INET))
    with pytest.raises(PortUnavailableError) as caught:
        ports.reserve(block, ME, "s")
    assert str(block.first) in caught.value.message
    assert os.strerror(number) in caught.value.message
    assert caught.value.exit_code == 4


# Who holds a port


def test_the_walk_takes_the_first_port_that_is_neither_held_nor_busy_nor_skipped() -> None:
    block = free_block(5)
    assert ports.reserve(block, ME, "a") == block.first
    with listening("127.0.0.1", block.first + 1):
        assert ports.reserve(block, ME, "b", skip=frozenset({block.first + 2})) == block.first + 3
    assert ports.reserve(block, ME, "c") == block.first + 1
    ports.release(block.first, "a")
    assert ports.reserve(block, ME, "d") == block.first


def test_an_exhausted_range_is_an_error_if_strict_and_else_left_to_the_system() -> None:
    block = free_block(2)
    for name in ("a", "b"):
        ports.reserve(block, ME, name)
    with pytest.raises(PortExhaustedError, match=str(block)) as caught:
        ports.reserve(block, ME, "c")
    assert "peaks reap" in caught.value.hint
    assert ports.reserve(PortRange(block.first, block.last, strict=False), ME, "c") == 0
    assert ports.reserve(PortRange.parse("0"), ME, "c") == 0


def test_a_port_that_the_system_chose_is_held_as_well() -> None:
    block = free_block(2)
    ports.reserve_exactly(block.first, ME, "a")
    assert ports.reserve(block, ME, "b") == block.last


def test_release_by_another_session_does_nothing() -> None:
    block = free_block(1)
    ports.reserve(block, ME, "mine")
    ports.release(block.first, "yours")
    with pytest.raises(PortExhaustedError):
        ports.reserve(block, ME, "other")
    ports.release(block.first, "mine")
    ports.release(block.first, "mine")
    assert ports.reserve(block, ME, "other") == block.first


HOLD = """
import sys
from pytest_peaks.session import ports
from pytest_peaks.session.identity import ProcessIdentity
print(ports.reserve(ports.PortRange.parse(sys.argv[1]), ProcessIdentity.of_self(), "held"), flush=True)
sys.stdin.read()
"""


def test_a_living_process_keeps_its_port_and_a_killed_ones_is_free_at_once() -> None:
    block = free_block(1)
    with python(HOLD, str(block)) as holder:
        assert line_of(holder) == str(block.first)
        with pytest.raises(PortExhaustedError):
            ports.reserve(block, ME, "s")
        holder.kill()
        holder.wait()
        assert ports.reserve(block, ME, "s") == block.first


def test_a_port_held_on_another_host_is_not_taken() -> None:
    block = free_block(1)
    with allocating() as runtime:
        elsewhere = ProcessIdentity(1, 1, "elsewhere", "boot", "")
        Reservations(runtime, "ports").take(str(block.first), elsewhere, "s")
    with pytest.raises(PortExhaustedError):
        ports.reserve(block, ME, "t")


RESERVE_AT_ONCE = """
import json, os, sys
from pytest_peaks.errors import PeaksError
from pytest_peaks.session import ports
from pytest_peaks.session.identity import ProcessIdentity

block, count = ports.PortRange.parse(sys.argv[1]), int(sys.argv[2])
start_read, start_write = os.pipe()
answer_read, answer_write = os.pipe()
end_read, end_write = os.pipe()
for number in range(count):
    if os.fork() == 0:
        os.close(start_write), os.close(end_write)
        os.read(start_read, 1)
        try:
            answer = str(ports.reserve(block, ProcessIdentity.of_self(), f"s{number}"))
        except PeaksError as error:
            answer = error.code
        except BaseException as error:
            answer = repr(error)
        os.write(answer_write, answer.encode() + b"\\n")
        os.read(end_read, 1)  # holds its port until all have asked
        os._exit(0)
os.close(start_write)
answers = b""
while answers.count(b"\\n") < count:
    answers += os.read(answer_read, 65536)
print(json.dumps(answers.decode().split()), flush=True)
sys.stdin.read()
os.close(end_write)
for _ in range(count):
    os.wait()
print("ended", flush=True)
"""


@posix
@pytest.mark.parametrize(("processes", "surplus"), [(32, 0), (37, 5)])
def test_processes_that_reserve_at_once_get_one_port_each_and_only_the_surplus_nothing(
    processes: int, surplus: int
) -> None:
    block = free_block(32)
    with python(RESERVE_AT_ONCE, str(block), str(processes)) as starter:
        answers = json.loads(line_of(starter))
        got = [int(answer) for answer in answers if answer.isdigit()]
        refused = [answer for answer in answers if not answer.isdigit()]
        assert sorted(got) == list(range(block.first, block.last + 1))
        assert refused == ["PORT_EXHAUSTED"] * surplus
        assert starter.stdin is not None
        starter.stdin.close()
        assert line_of(starter) == "ended"
    with allocating() as runtime:
        assert len(Reservations(runtime, "ports").drop_dead()) == 32


# Files and locks


@settings(quick, max_examples=100)
@given(st.binary(max_size=80))
@example(b"")
@example(b"null")
@example(b"[]")
@example(b"{}")
@example(b'{"owner": {}, "session": "s"}')
@example(b'{"schema": 1, "owner": {"pid": true}, "session": "s"}')
@example(b"[" * 100_000)
@example(b"1" * 5000)
def test_a_corrupt_reservation_holds_nothing_and_is_cleared_away(content: bytes) -> None:
    with allocating() as runtime:
        held = Reservations(runtime, "ports")
        path = held.folder / "4711.json"
        path.write_bytes(content)
        assert held.holder("4711") is None
        held.drop("4711", "s")
        path.write_bytes(content)
        assert held.drop_dead() == ["4711"]
        assert not path.exists()


@posix
def test_a_reservation_that_is_no_regular_file_holds_nothing_and_stops_no_sweep(tmp_path: Path) -> None:
    with allocating() as runtime:
        held = Reservations(runtime, "ports")
        (held.folder / "1.json").mkdir()
        os.mkfifo(held.folder / "2.json")
        (held.folder / "3.json").symlink_to(tmp_path / "nowhere")
        held.take("4", ME, "s")
        answers: list[Any] = []

        def look() -> None:
            answers.append([held.holder(key) for key in "1234"])
            for key in "123":
                held.drop(key, "s")
            held.drop_dead()
            answers.append(held.holder("4"))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(10)
        assert answers == [[None, None, None, (ME, "s")], (ME, "s")], "unless it hangs"


def test_dropping_the_dead_keeps_the_living() -> None:
    dead = ProcessIdentity(ME.pid, ME.started + 1, ME.host, ME.boot, ME.namespace)
    with allocating() as runtime:
        held = Reservations(runtime, "ports")
        held.take("1", ME, "mine")
        held.take("2", dead, "theirs")
        assert held.drop_dead() == ["2"]
        assert held.holder("1") == (ME, "mine")
        assert [path.name for path in held.folder.iterdir()] == ["1.json"]


def test_reservations_and_the_lock_are_only_for_their_user_to_read() -> None:
    old = os.umask(0)
    try:
        with allocating() as runtime:
            Reservations(runtime, "ports").take("1", ME, "s")
    finally:
        os.umask(old)
    if os.name == "posix":
        modes = {path.relative_to(runtime): path.stat().st_mode & 0o777 for path in runtime.rglob("*")}
        modes[Path()] = runtime.stat().st_mode & 0o777
        assert {str(path): mode for path, mode in modes.items() if mode & 0o077} == {}


TAKE_THE_LOCK = """
import os, sys
from pytest_peaks.session.reservations import allocating
with allocating():
    print("held", flush=True)
    sys.stdin.read()
"""


@posix
def test_a_lock_held_by_a_stopped_process_is_an_error_that_says_so_and_no_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = free_block(1)
    with python(TAKE_THE_LOCK) as holder:
        assert line_of(holder) == "held"
        holder.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: psutil.Process(holder.pid).status() == psutil.STATUS_STOPPED, 30)
        monkeypatch.setattr(reservations, "LOCK_TIMEOUT", 0.3)
        started = time.monotonic()
        with pytest.raises(LockTimeoutError, match=r"allocator\.lock was held by another process") as caught:
            ports.reserve(block, ME, "s")
        assert time.monotonic() - started < 30
        assert "stopped" in caught.value.hint
        assert caught.value.exit_code == 6
        monkeypatch.setattr(reservations, "LOCK_TIMEOUT", 60.0)
        holder.kill()  # the kernel gives a dead process's lock back
        assert ports.reserve(block, ME, "s") == block.first


@posix
def test_a_child_forked_while_the_lock_is_held_does_not_keep_it() -> None:
    code = """
import os, sys
from pytest_peaks.session.reservations import allocating
with allocating():
    child = os.fork()
    if child == 0:
        os.close(1)
        sys.stdin.read()
        os._exit(0)
print("released", flush=True)
os.waitpid(child, 0)
"""
    with python(code) as holder:
        assert line_of(holder) == "released"
        with allocating():
            pass
