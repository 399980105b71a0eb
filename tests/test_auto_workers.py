"""`-n auto` starts as many workers as xdist says, or as many as fit with their browsers; whoever says a number wins."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_peaks.auto_workers import GB, WITH_A_BROWSER, WITH_A_SHELL, Room, fit, room, room_of_cgroups

quick = settings(deadline=None, max_examples=300, database=None)

asked = st.integers(1, 256)
cpus = st.one_of(st.integers(1, 256), st.floats(0.01, 256), st.just(math.inf))
memory = st.one_of(st.integers(0, 2**45), st.just(math.inf))
per_worker = st.integers(1, 2**35)


@quick
@given(asked, cpus, memory, per_worker)
def test_the_number_is_only_lowered_and_never_below_one(
    asked: int, cpus: float, memory: float, per_worker: int
) -> None:
    found = fit(asked, Room(cpus, memory), per_worker)
    assert 1 <= found.number <= asked
    assert bool(found.reason) == (found.number < asked)


@quick
@given(asked, cpus, memory, per_worker)
def test_more_than_one_worker_overbooks_neither_cpus_nor_memory(
    asked: int, cpus: float, memory: float, per_worker: int
) -> None:
    number = fit(asked, Room(cpus, memory), per_worker).number
    if number > 1:
        assert number <= cpus
        assert number * per_worker <= memory
    if number < asked:
        assert number + 1 > cpus or (number + 1) * per_worker > memory


@quick
@given(asked, cpus, memory, per_worker, st.integers(0, 2**40), st.integers(0, 64))
def test_more_room_never_means_fewer_workers(
    asked: int, cpus: float, memory: float, per_worker: int, more_memory: int, more_cpus: int
) -> None:
    small = fit(asked, Room(cpus, memory), per_worker).number
    assert small <= fit(asked, Room(cpus + more_cpus, memory + more_memory), per_worker).number


def test_the_reason_names_what_is_short() -> None:
    assert fit(8, Room(), WITH_A_SHELL).reason == ""
    assert "2.5 CPUs" in fit(8, Room(2.5, 64 * GB), WITH_A_SHELL).reason
    assert "1.5 GB of memory are free" in fit(8, Room(8, 1.5 * GB), WITH_A_BROWSER).reason


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_limits_of_cgroup_version_2_and_of_those_around_it_count(tmp_path: Path) -> None:
    write(tmp_path / "ci", cpu__max="350000 100000", memory__max="max")
    write(
        tmp_path / "ci" / "job",
        cpu__max="max 100000",
        memory__max=str(4 * GB),
        memory__high=str(3 * GB),
        memory__current=str(2 * GB),
        memory__stat=f"anon 5\ninactive_file {GB}",
    )
    assert room_of_cgroups(["0::/ci/job"], tmp_path) == Room(3.5, 2 * GB)


def test_limits_of_cgroup_version_1_count_also_where_the_path_is_outside_of_the_container(
    tmp_path: Path,
) -> None:
    write(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    write(
        tmp_path / "memory",
        memory__limit_in_bytes=str(GB),
        memory__usage_in_bytes=str(GB // 2),
        memory__stat="inactive_file 7\ntotal_inactive_file 0",
    )
    lines = ["4:memory:/docker/0123", "3:cpu,cpuacct:/docker/0123", "1:name=systemd:/", "0::/../.."]
    assert room_of_cgroups(lines, tmp_path) == Room(2.0, GB / 2)


def test_no_limits_are_no_limits(tmp_path: Path) -> None:
    write(tmp_path, cpu__max="max 100000", memory__max="max", memory__current="5")
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(tmp_path / "memory", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="5")
    lines = ["2:memory:/", "1:cpu:/", "0::/", "", "nonsense"]
    assert room_of_cgroups(lines, tmp_path) == Room()
    assert 0 < room().cpus <= os.cpu_count()
    assert room().memory > 0


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """What is started may use one CPU of several, which xdist does not see."""
    if sys.platform != "linux" or (psutil.cpu_count(logical=False) or 1) < 2:
        pytest.skip("needs Linux and two cores")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


LINE = "peaks: -n auto: 1 worker, not *: one CPU may be used (peaks_auto_workers)"
OURS = "def test_it(peaks_slot): pass"


def test_a_suite_of_peaks_gets_as_many_workers_as_fit(project: pytest.Pytester, one_cpu: None) -> None:
    project.makepyfile(OURS)
    result = project.runpytest_subprocess("-n", "auto")
    result.stdout.fnmatch_lines([LINE, "created: 1/1 worker"])


@pytest.mark.parametrize("who", ["environment", "conftest", "setting", "another suite"])
def test_whoever_says_a_number_wins(
    project: pytest.Pytester, one_cpu: None, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    project.makepyfile("def test_it(): pass" if who == "another suite" else OURS)
    expected = psutil.cpu_count(logical=False)
    if who == "environment":
        monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "2")
        expected = 2
    elif who == "conftest":
        project.makeconftest("def pytest_xdist_auto_num_workers(): return 2")
        expected = 2
    elif who == "setting":
        monkeypatch.setenv("PEAKS_AUTO_WORKERS", "off")
    result = project.runpytest_subprocess("-n", "auto")
    result.stdout.fnmatch_lines([f"created: {expected}/{expected} workers"])
    result.stdout.no_fnmatch_line("*-n auto*")
