"""Traces, pictures and videos of tests: what is kept when, where, under which name, and who is told."""

from __future__ import annotations

import json
import os
import shutil
import struct
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_peaks.artifacts import folder
from pytest_peaks.artifacts.folder import file_name, folder_name
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

HEADERS = {".png": b"\x89PNG\r\n\x1a\n", ".webm": b"\x1aE\xdf\xa3", ".zip": b"PK"}

OUTCOMES = """
    import pytest

    def go(page, text):
        page.goto(f"data:text/html,<h1>{text}</h1>")

    @pytest.fixture
    def broken_setup(peaks_page):
        go(peaks_page, "test_setup_error")
        raise ValueError

    @pytest.fixture
    def broken_teardown():  # set up before the session, so it is torn down after it
        yield
        raise ValueError

    def test_passes(peaks_page):
        go(peaks_page, "test_passes")

    def test_fails(peaks_page):
        go(peaks_page, "test_fails")
        assert False

    def test_setup_error(broken_setup):
        pass

    def test_teardown_error(broken_teardown, peaks_page):
        go(peaks_page, "test_teardown_error")

    @pytest.mark.flaky(reruns=1)
    def test_flaky(peaks_page, request):
        go(peaks_page, "test_flaky")
        assert request.node.execution_count == 2

    @pytest.mark.flaky(reruns=2)
    def test_never(peaks_page):
        go(peaks_page, "test_never")
        assert False

    def test_skipped(peaks_page):
        go(peaks_page, "test_skipped")
        pytest.skip()

    @pytest.mark.xfail
    def test_expected(peaks_page):
        go(peaks_page, "test_expected")
        assert False
"""
FAILED = {"fails", "setup_error", "flaky", "never", "never-retry1", "never-retry2"}
# By mode and kind of file: the runs of tests whose files are kept.
KEPT = {
    "on": FAILED | {"teardown_error", "passes", "flaky-retry1", "skipped", "expected"},
    # A picture is taken when the session ends, and the test had not failed by then.
    "retain-on-failure": FAILED,
    "on-first-retry": {"flaky-retry1", "never-retry1"},
}
MODES = [
    ("on", "retain-on-failure", "on-first-retry", "-n0"),
    ("retain-on-failure", "on-first-retry", "on", "-n2"),
    ("on-first-retry", "on", "retain-on-failure", "-n0"),
]


@pytest.fixture
def ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An ffmpeg where Playwright looks for its own; gives the option that names the browser, which is not there."""
    import imageio_ffmpeg

    executable = browsers.find(BrowserSpec()).executable
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "downloads"))
    place = browsers.download_folder("ffmpeg")
    assert place is not None
    place.mkdir(parents=True)
    (place / "ffmpeg-linux").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return f"--peaks-executable={executable}"


def kept(project: pytest.Pytester, output: str = "test-results") -> dict[str, list[str]]:
    """The files of each test, by its folder's name; all of them are whole, and nothing else is there."""
    found: dict[str, list[str]] = {}
    base = project.path / output
    for folder_, folders, names in os.walk(base):
        if Path(folder_) == base:
            assert not names
            continue
        assert not folders
        assert names, f"{folder_} is empty"
        found[Path(folder_).name] = sorted(names)
        for name in names:
            path = Path(folder_, name)
            assert path.read_bytes().startswith(HEADERS[path.suffix]), path
    return found


def actions(trace: Path) -> list[str]:
    """The actions in a trace, with what they were called with."""
    with zipfile.ZipFile(trace) as opened:
        assert opened.testzip() is None
        lines = [
            json.loads(line)
            for name in opened.namelist()
            if name.endswith(".trace")
            for line in opened.read(name).splitlines()
        ]
    events = [line for line in lines if line["type"] == "before"]
    return [f"{event['class']}.{event['method']} {json.dumps(event['params'])}" for event in events]


@pytest.mark.parametrize(("tracing", "screenshot", "video", "workers"), MODES)
def test_what_is_kept_of_which_outcome(
    project: pytest.Pytester, ffmpeg: str, tracing: str, screenshot: str, video: str, workers: str
) -> None:
    project.makepyfile(test_it=OUTCOMES)
    embedded = ["--self-contained-html"] if workers == "-n0" else []
    result = project.runpytest_subprocess(
        f"--peaks-tracing={tracing}",
        f"--peaks-screenshot={screenshot}",
        f"--peaks-video={video}",
        "--junitxml=junit.xml",
        "--html=report/all.html",
        *embedded,
        ffmpeg,
        workers,
    )
    found = kept(project)

    runs = {}
    for name in KEPT["on"]:
        plain, _, retry = name.partition("-retry")
        runs[folder_name(f"test_it.py::test_{plain}", retry=int(retry or 0))] = name
    assert set(found) <= set(runs)
    by_file = {"trace.zip": tracing, "video.webm": video, "test-*-1.png": screenshot}
    for file, mode in by_file.items():
        wanted = set(KEPT[mode])
        if mode == "retain-on-failure" and file != "test-*-1.png":
            wanted |= {"teardown_error"}
        having = {runs[key] for key, names in found.items() if any(Path(name).match(file) for name in names)}
        assert having == wanted, (file, mode)
    for key, names in found.items():
        assert len(names) == len(set(names)) <= 3
        run = runs[key]
        title = f"test_{run.partition('-retry')[0]}"
        if "trace.zip" in names:
            gone = actions(project.path / "test-results" / key / "trace.zip")
            assert any("Frame.goto" in done and title in done for done in gone), gone
        failed = run in FAILED | {"teardown_error"}
        pictures = [name for name in names if name.endswith(".png")]
        assert pictures in ([], [f"test-{'failed' if failed else 'finished'}-1.png"])

    files = {f"test-results/{key}/{name}" for key, names in found.items() for name in names}
    check_reports(project, files, embedded=bool(embedded))
    counts = [
        f"{sum(file.endswith(suffix) for file in files)} {noun}s"
        for suffix, noun in ((".zip", "trace"), (".png", "picture"), (".webm", "video"))
    ]
    result.stdout.fnmatch_lines([f"kept {', '.join(counts)} in test-results", "nothing left behind"])


def check_reports(project: pytest.Pytester, files: set[str], *, embedded: bool) -> None:
    """JUnit names every file, once, at its test; pytest-html shows it."""
    named = {}
    for case in ET.parse(project.path / "junit.xml").getroot().iter("testcase"):
        for one in case.iter("property"):
            path = str(one.get("value"))
            assert path not in named
            named[path] = str(one.get("name"))
            assert str(case.get("name")).replace("_", "-") in path
    assert set(named) == files
    kinds = {".zip": "playwright_trace", ".png": "playwright_screenshot", ".webm": "playwright_video"}
    assert all(kinds[Path(path).suffix] == kind for path, kind in named.items())
    html = (project.path / "report" / "all.html").read_text()
    linked = [file for file in files if not embedded or file.endswith(".zip")]
    assert [file for file in linked if f"../{file}" not in html] == []
    assert html.count("data:image/png;base64,") >= embedded


def test_every_kind_of_session(project: pytest.Pytester, site: str) -> None:
    project.makeconftest(
        """
        import pytest
        from pytest_peaks.artifacts import recording

        recording.PICTURES_TIMEOUT = 2.0  # for each of the two that are stuck

        @pytest.fixture(scope="module")
        def wide(peaks_session_factory):
            with peaks_session_factory() as session:
                session.page.goto("about:blank")
                yield session.page
        """
    )
    project.makepyfile(
        test_it=f"""
        import time
        import pytest
        SITE = {site!r}
        pids = set()

        @pytest.mark.peaks_session(isolation="recycled")
        @pytest.mark.parametrize("number", range(4))
        def test_recycled(peaks_page, number):
            peaks_page.goto(f"{{SITE}}/number-{{number}}")

        @pytest.mark.peaks_session(isolation="profile")
        @pytest.mark.parametrize("number", range(2))
        def test_profile(peaks_page, number):
            peaks_page.goto(f"{{SITE}}/number-{{number}}")

        def test_own_process(peaks_sessions):
            peaks_sessions("own", isolation="browser").page.goto(SITE)

        def test_agent(peaks_page, peaks_mcp):
            peaks_page.goto(SITE)
            peaks_mcp.call("browser_navigate", url=f"{{SITE}}/agent")

        def test_two_users(peaks_page, peaks_sessions):
            peaks_page.goto(f"{{SITE}}/nobody")
            for session in peaks_sessions("alice", "bob"):
                session.page.goto(f"{{SITE}}/{{session.name}}")
                session.context.new_page()

        def test_context_by_hand(peaks_page, peaks_browser):
            peaks_browser.new_context().new_page().goto(SITE)

        def test_closed_by_hand(peaks_page):
            peaks_page.goto(SITE)
            peaks_page.context.close()

        def test_no_page(peaks_session):
            pass

        @pytest.mark.parametrize("what", ["for(;;);", "alert(1)"])
        def test_stuck(peaks_session, what):
            pids.add(peaks_session.pid)
            peaks_session.page.on("dialog", lambda dialog: None)
            # Not while the call is traced: older versions of Playwright would wait for the page.
            peaks_session.page.evaluate(f"setTimeout(() => {{{{ {{what}} }}}}, 500)")
            time.sleep(1)

        def test_the_browser_was_not_ended_for_it(peaks_session):
            pids.add(peaks_session.pid)
            assert len(pids) == 1

        def test_stopped_by_hand(peaks_context):
            peaks_context.tracing.stop()

        def test_wide(wide):
            wide.goto(SITE)
        """
    )
    result = project.runpytest_subprocess(
        "-pno:xdist", "--peaks-tracing=on", "--peaks-screenshot=on", "--tb=short"
    )
    result.assert_outcomes(passed=17)
    # Nothing but the last two: the one was stopped, the others are the same as ever.
    result.stdout.fnmatch_lines(["contexts: 1 made, 3 used again"])
    found = kept(project)
    both = ["test-finished-1.png", "trace.zip"]
    expected = {
        **{f"test_recycled[{number}]": both for number in range(4)},
        **{f"test_profile[{number}]": both for number in range(2)},
        "test_own_process": ["test-finished-own-1.png", "trace-own.zip"],
        "test_agent": both,
        "test_two_users": [
            *both[:1],
            *(f"test-finished-{name}-{number}.png" for name in ("alice", "bob") for number in (1, 2)),
            *("trace-alice.zip", "trace-bob.zip"),
            *both[1:],
        ],
        "test_context_by_hand": ["test-finished-1.png", "test-finished-2.png", "trace.zip"],
        "test_closed_by_hand": both,
        "test_no_page": ["trace.zip"],
        "test_stuck[for(;;);]": ["trace.zip"],
        "test_stuck[alert(1)]": ["trace.zip"],
        "test_the_browser_was_not_ended_for_it": ["trace.zip"],
    }
    assert found == {folder_name(f"test_it.py::{name}"): files for name, files in expected.items()}

    def visited(test: str, file: str = "trace.zip") -> list[str]:
        path = project.path / "test-results" / folder_name(f"test_it.py::{test}") / file
        return [action for action in actions(path) if "Frame.goto" in action]

    for name in [name for name in expected if "[" in name and "stuck" not in name]:
        (only,) = visited(name)
        assert f"/number-{name[-2]}" in only, "a trace has what another test did"
    for user in ("alice", "bob"):
        (only,) = visited("test_two_users", f"trace-{user}.zip")
        assert user in only


def test_a_context_that_was_traced_is_not_used_again_by_tests_that_are_not(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.peaks_session(isolation="recycled")

        @pytest.mark.flaky(reruns=1)
        def test_retried(peaks_page, request):
            peaks_page.goto("data:text/html,x")
            assert request.node.execution_count == 2

        def test_next(peaks_page):
            peaks_page.goto("data:text/html,x")
            assert not peaks_page.evaluate("Object.getOwnPropertyNames(window).filter(n => n.includes('playwright'))")
        """
    )
    result = project.runpytest_subprocess("-p", "no:xdist", "--peaks-tracing=on-first-retry")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["contexts: *it was traced 1*"])


def test_a_videos_own_context(project: pytest.Pytester, ffmpeg: str) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.peaks_session(isolation="recycled")
        def test_recycled(peaks_page):
            peaks_page.goto("data:text/html,x")

        @pytest.mark.peaks_session(isolation="profile")
        @pytest.mark.parametrize("number", range(2))
        def test_profile(peaks_page, number):
            peaks_page.goto("data:text/html,x")

        def test_two_users(peaks_sessions):
            alice, bob = peaks_sessions("alice", "bob")
            for session in (alice, bob, bob):
                session.context.new_page().goto("data:text/html,x")
        """
    )
    result = project.runpytest_subprocess("-n2", "--peaks-video=on", ffmpeg)
    result.assert_outcomes(passed=4)
    assert kept(project) == {
        folder_name("test_a_videos_own_context.py::test_recycled"): ["video.webm"],
        folder_name("test_a_videos_own_context.py::test_two_users"): [
            "video-alice.webm",
            "video-bob-1.webm",
            "video-bob-2.webm",
        ],
    }
    assert str(result.stdout).count("no video of a browser's own context") == 1


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_without_ffmpeg_it_is_said_before_a_browser_starts(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: str
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    project.makepyfile("def test_it(peaks_page): pass\ndef test_again(peaks_page): pass")
    result = project.runpytest_subprocess("--peaks-video=retain-on-failure", workers)
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.USAGE_ERROR)
    said = str(result.stdout) + str(result.stderr)
    assert said.count("VIDEO_NOT_POSSIBLE: videos need Playwright's ffmpeg, which is not in") in (1, 2)
    assert "playwright install ffmpeg" in said
    assert "passed" not in said
    assert not (project.path / ".peaks").exists()


def test_without_ffmpeg_tests_without_a_browser_run(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    project.makepyfile("def test_plain(): pass")
    project.runpytest_subprocess("-p", "no:xdist", "--peaks-video=on").assert_outcomes(passed=1)


def test_what_is_not_recorded_is_not_even_imported(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import sys
        def pytest_unconfigure():
            assert "playwright" in sys.modules
            for name in ("recorder", "recording", "reporting", "hooks", "folder"):
                assert f"pytest_peaks.artifacts.{name}" not in sys.modules
        """
    )
    project.makepyfile("def test_it(peaks_page): assert 0")
    result = project.runpytest_subprocess("--peaks-isolation=recycled")
    result.assert_outcomes(failed=1)
    assert "Error" not in str(result.stderr)
    result.stdout.no_fnmatch_line("kept *")
    assert not (project.path / "test-results").exists()


@pytest.mark.parametrize(
    "death",
    [
        "os._exit(1)",
        pytest.param("os.kill(os.getpid(), 9)", marks=pytest.mark.slow),
        "os.kill(peaks_session.pid, 9)",
    ],
)
def test_what_dies_takes_nothing_with_it_that_was_kept(project: pytest.Pytester, death: str) -> None:
    project.makepyfile(
        test_it=f"""
        import os

        def test_first(peaks_page):
            peaks_page.goto("data:text/html,first")

        def test_death(peaks_page, peaks_session):
            peaks_page.goto("data:text/html,death")
            {death}
            peaks_page.goto("about:blank")

        def test_last(peaks_page):
            peaks_page.goto("data:text/html,last")
        """
    )
    result = project.runpytest_subprocess("-n1", "--peaks-tracing=on", "--peaks-screenshot=on")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["kept 2 traces, 2 pictures in test-results", "nothing left behind"])
    assert sorted(kept(project)) == sorted(
        folder_name(f"test_it.py::test_{name}") for name in ("first", "last")
    )


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="subtests came with pytest 9")
def test_a_failed_subtest_is_a_failure(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        def test_it(peaks_page, subtests):
            for number in (1, 2):
                with subtests.test(number=number):
                    assert number == 2
        """
    )
    project.runpytest_subprocess("-p", "no:xdist", "--peaks-tracing=retain-on-failure")
    assert kept(project) == {folder_name("test_it.py::test_it"): ["trace.zip"]}


def test_an_interrupted_test_keeps_its_trace(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        def test_it(peaks_page):
            peaks_page.goto("data:text/html,first")
            raise KeyboardInterrupt
        """
    )
    result = project.runpytest_subprocess("-p", "no:xdist", "--peaks-tracing=retain-on-failure")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert kept(project) == {folder_name("test_it.py::test_it"): ["trace.zip"]}


THEIR_BROWSER = """
import pytest
@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    return {{**browser_type_launch_args, "executable_path": {executable!r}, "args": ["--no-sandbox"]}}
"""


def test_pytest_playwrights_options_and_folders(project: pytest.Pytester, site: str) -> None:
    project.makeini("[pytest]\n")
    project.makeconftest(THEIR_BROWSER.format(executable=str(browsers.find(BrowserSpec()).executable)))
    project.makepyfile(
        test_it="""
        import pytest

        def test_ours(peaks_page):
            peaks_page.goto("/ours")
            assert "iPhone" in peaks_page.evaluate("navigator.userAgent")
            assert 0

        def test_both(page, peaks_page):
            page.goto("/theirs")
            peaks_page.goto("/ours")

        class TestElsewhere:
            @pytest.fixture
            def output_path(self, tmp_path_factory, request):
                return str(request.config.rootpath / "elsewhere" / "here")

            def test_it(self, peaks_page):
                peaks_page.goto("/ours")
        """
    )
    theirs = ("--tracing=on", "--screenshot=only-on-failure", "--device=iPhone 15", f"--base-url={site}")
    options = ("-p", "no:cacheprovider", "-p", "no:peaks-bridge", "-W", "ignore", *theirs)
    result = project.runpytest_subprocess(*options, "--output=out")
    result.assert_outcomes(passed=2, failed=1)
    assert kept(project, "out") == {
        "test-it-py-test-ours": ["test-failed-1.png", "trace.zip"],
        "test-it-py-test-both-chromium": ["trace-2.zip", "trace.zip"],
    }
    both = project.path / "out" / "test-it-py-test-both-chromium"
    assert any("/theirs" in action for action in actions(both / "trace.zip"))
    assert any("/ours" in action for action in actions(both / "trace-2.zip"))
    assert kept(project, "elsewhere") == {"here": ["trace.zip"]}

    # Our own options win.
    result = project.runpytest_subprocess(
        *options, "--output=out", "--peaks-output=ours", "--peaks-tracing=off", "-k", "test_ours"
    )
    assert kept(project, "ours") == {folder_name("test_it.py::test_ours"): ["test-failed-1.png"]}
    for path in Path(os.environ["TMPDIR"]).iterdir():
        if not path.name.startswith("peaks-"):
            shutil.rmtree(path, ignore_errors=True)  # their browser's


def test_devices_and_base_url(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(
        f"""
        import time
        import pytest

        SITE = {site!r}
        marked = pytest.mark.peaks_session

        def agent(page):
            page.goto("/")
            assert page.url.startswith(SITE)
            return page.evaluate("navigator.userAgent")

        @pytest.fixture(scope="session")
        def base_url():
            return "http://nowhere.invalid"

        @pytest.mark.parametrize("isolation", ["fresh", "recycled", "recycled", "browser"])
        def test_configured(peaks_sessions, isolation):
            page = peaks_sessions("a", isolation=isolation).page
            assert "iPhone" in agent(page)
            assert page.viewport_size["width"] == 393
            assert page.evaluate("navigator.maxTouchPoints") > 0

        @marked(device="Pixel 5", viewport={{"width": 500, "height": 400}})
        def test_marked(peaks_page):
            assert "Pixel 5" in agent(peaks_page)
            assert peaks_page.viewport_size["width"] == 500

        @marked(device=None)
        def test_none(peaks_page):
            assert "Mobile" not in agent(peaks_page)

        @marked(no_viewport=True)
        def test_no_viewport(peaks_page):
            assert "iPhone" in agent(peaks_page)

        @marked(isolation="profile")
        def test_profile(peaks_page):
            assert "Mobile" not in peaks_page.evaluate("navigator.userAgent")

        def test_door(peaks_page, peaks_mcp):
            peaks_mcp.call("browser_navigate", url=SITE)
            assert "iPhone" in peaks_page.evaluate("navigator.userAgent")

        def test_unknown(peaks_sessions):
            peaks_sessions("a", device="iphone 51")
        """
    )
    result = project.runpytest_subprocess(
        "-p", "no:xdist", "--peaks-device=iPhone 15", f"--peaks-base-url={site}"
    )
    result.assert_outcomes(passed=9, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*INVALID_OPTION: Playwright knows no device 'iphone 51'*",
            "*hint: did you mean 'iPhone *",
            "no iPhone 15 in profiles and desks, whose context exists already",
        ]
    )


def test_slow_motion_and_pictures_of_the_whole_page(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import time

        def test_it(peaks_page):
            start = time.monotonic()
            peaks_page.goto("data:text/html,<body style='margin: 0'><p style='margin: 0; height: 3000px'>tall")
            assert time.monotonic() - start >= 0.7
        """
    )
    options = ("--peaks-slowmo=700", "--peaks-screenshot=on", "--peaks-full-page-screenshot")
    project.runpytest_subprocess("-p", "no:xdist", *options).assert_outcomes(passed=1)
    picture = project.path / "test-results" / folder_name("test_it.py::test_it") / "test-finished-1.png"
    assert struct.unpack(">II", picture.read_bytes()[16:24])[1] == 3000


def test_tests_of_hostile_names_have_a_folder_each(project: pytest.Pytester) -> None:
    names = [
        "../..",
        "a/b",
        "a-b",
        "a b",
        "A B",
        "con",
        "ü",
        "u",
        "",
        ".",
        "x" * 300,
        "x" * 301,
        "\x00",
        "名前",
    ]
    project.makepyfile(
        test_it=f"""
        import pytest
        @pytest.mark.parametrize("name", {names!r}, ids=str)
        def test_it(peaks_page, name):
            pass
        """
    )
    result = project.runpytest_subprocess(
        "-n2", "--peaks-screenshot=on", "--peaks-tracing=on", "--peaks-output=out/deeper"
    )
    result.assert_outcomes(passed=len(names))
    found = kept(project, "out/deeper")
    assert len(found) == len(names)
    assert all(files == ["test-finished-1.png", "trace.zip"] for files in found.values())


@pytest.mark.slow
def test_workers_that_all_run_the_same_test_have_a_folder_each(project: pytest.Pytester) -> None:
    project.makepyfile(test_it="def test_it(peaks_page): pass")
    result = project.runpytest_subprocess("-n2", "--dist=each", "--peaks-tracing=on")
    result.assert_outcomes(passed=2)
    name = folder_name("test_it.py::test_it")
    assert kept(project) == {f"{name}-{worker}": ["trace.zip"] for worker in ("gw0", "gw1")}


@given(st.lists(st.text(), unique=True, max_size=20), st.integers(0, 3))
def test_names_of_folders_are_legal_and_differ(node_ids: list[str], retry: int) -> None:
    found = [folder_name(node_id, retry=retry) for node_id in node_ids]
    assert len({name.casefold() for name in found}) == len(found)
    for name in found:
        assert name.isascii()
        assert name == name.lower() == name.strip("-. ")
        assert name.replace("-", "").isalnum()
        assert 8 <= len(name) <= 110
        assert folder_name("", retry=1) != name or retry == 1


def test_a_folder_shows_the_latest_run(tmp_path: Path) -> None:
    mine = tmp_path / folder_name("test_it")
    foreign = ["notes.txt", "trace.zip.bak", "trace", "test-failed-1.jpeg", "Video.webm"]
    ours = [
        "trace.zip",
        "trace-2.zip",
        "trace-alice.zip.part",
        "video-bob-1.webm",
        "test-finished-alice-1.png",
    ]
    others = [
        tmp_path / f"{mine.name}-retry1",
        tmp_path / f"{mine.name}-retry1x",
        tmp_path / folder_name("test_it2"),
        tmp_path / f"{mine.name}-retry2",
    ]
    for path in (mine, *others[:3]):
        path.mkdir()
        for name in ours:
            (path / name).touch()
    for name in foreign:
        (mine / name).touch()
    (mine / "video.webm").mkdir()
    others[3].symlink_to(others[2])

    folder.clear_earlier(mine, retry=0)
    assert sorted(path.name for path in mine.iterdir()) == sorted([*foreign, "video.webm"])
    assert not others[0].exists(), "an earlier run's repetition"
    for path in others[1:]:
        assert len(list(path.iterdir())) == len(ours), "another test's, or nobody knows whose"

    folder.clear_earlier(others[2], retry=1)
    assert not others[2].exists()


@pytest.mark.parametrize("other_file_system", [False, True])
def test_no_file_is_overwritten_or_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_file_system: bool
) -> None:
    if other_file_system:

        def rename(self: Path, target: Path) -> None:
            raise OSError("another device")

        monkeypatch.setattr(Path, "rename", rename)
    target = tmp_path / "deep" / "er"
    for number, name in enumerate(["trace.zip", "trace-2.zip", "trace-3.zip"]):
        source = tmp_path / "source"
        source.write_text(str(number))
        assert folder.put(source, target, "trace.zip") == target / name
    assert [(target / name).read_text() for name in ("trace.zip", "trace-2.zip", "trace-3.zip")] == list(
        "012"
    )
    if other_file_system:
        monkeypatch.setattr(shutil, "copyfile", rename)
        with pytest.raises(OSError, match="another device"):
            folder.put(source, target, "video.webm")
    assert len(list(target.iterdir())) == 3


def test_names_of_files_are_those_of_pytest_playwright() -> None:
    assert file_name("trace", "", 1, 1, failed=True) == "trace.zip"
    assert file_name("trace", "alice", 2, 2, failed=True) == "trace-alice-2.zip"
    assert file_name("video", "", 2, 3, failed=False) == "video-2.webm"
    assert file_name("screenshot", "", 1, 1, failed=True) == "test-failed-1.png"
    assert file_name("screenshot", "bob", 2, 2, failed=False) == "test-finished-bob-2.png"


def test_what_cannot_be_kept_is_told_and_fails_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(test_it="def test_it(peaks_page): pass")
    (project.path / "test-results").write_text("in the way")
    result = project.runpytest_subprocess("-n1", "--peaks-tracing=on")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["not kept: test_it.py::test_it: *", "nothing left behind"])
