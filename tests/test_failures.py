"""Bad input and browsers that do not start: one clear error a cause, and nothing is left."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from leaks import Surroundings

from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

HELLO = """
    def test_hello(peaks_page):
        peaks_page.set_content("<h1>hello</h1>")
        assert peaks_page.text_content("h1") == "hello"
"""


def stand_in(project: pytest.Pytester, script: str, *, python: bool = False) -> str:
    """An executable in place of the browser; `CHROMIUM` in `script` is the real one."""
    path = project.path / "browser"
    head = "#!/usr/bin/env python3\n" if python else "#!/bin/sh\n"
    path.write_text(head + script.replace("CHROMIUM", str(browsers.find(BrowserSpec()).executable)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"--peaks-executable={path}"


WRONG_MARKERS = {
    "isolation='frehs'": ("'frehs' is not an isolation", "fresh, recycled, profile, browser"),
    "browser='netscape'": ("'netscape' is not a browser", "chromium"),
    "viewprt={}": ("unknown argument 'viewprt'", "did you mean 'viewport'"),
    "name='Not A Name'": ("name 'Not A Name' is not usable", "a-z"),
    "name='../up'": ("name '../up' is not usable", "a-z"),
    "url=8": ("url is 8", "give a URL"),
    "user_data_dir=''": ("user_data_dir is ''", "give a path"),
    "isolation='fresh', user_data_dir='d'": ("isolation='fresh' and user_data_dir contradict", "leave out"),
    "isolation='profile', locale='de-DE'": ("locale: a profile's own context", "leave them out"),
    "user_data_dir='d', viewport=None": ("viewport: a profile's own context", "leave them out"),
    "no_viewport=True, viewport={'width': 1, 'height': 1}": (
        "viewport and no_viewport contradict",
        "leave one out",
    ),
    "'a', 'b'": ("2 positional arguments", "by name"),
    "'a', name='b'": ("name is given twice", "once"),
}


@pytest.mark.parametrize("arguments", WRONG_MARKERS)
def test_a_wrong_marker_is_a_usage_error_naming_test_and_argument(
    project: pytest.Pytester, arguments: str
) -> None:
    project.makepyfile(
        f"import pytest\n@pytest.mark.peaks_session({arguments})\ndef test_it(peaks_page): pass"
    )
    what, hint = WRONG_MARKERS[arguments]
    result = project.runpytest_subprocess("--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *::test_it: @pytest.mark.peaks_session: *{what}*{hint}*"])


def test_a_wrong_marker_is_reported_under_xdist_too(project: pytest.Pytester) -> None:
    project.makepyfile(
        "import pytest\n@pytest.mark.peaks_session(isolatoin='fresh')\ndef test_it(peaks_page): pass"
    )
    result = project.runpytest_subprocess("-n2")
    assert result.ret not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    result.stdout.fnmatch_lines(["*::test_it: *unknown argument 'isolatoin'*did you mean 'isolation'*"])


def test_contradictions_between_levels_are_found(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        @pytest.mark.peaks_session(isolation="profile")
        class TestIt:
            @pytest.mark.peaks_session(locale="de-DE")
            def test_it(self, peaks_page): pass
        """
    )
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::TestIt::test_it: *locale*"])


def test_a_value_that_the_browser_refuses_names_the_options(project: pytest.Pytester) -> None:
    project.makepyfile(
        "import pytest\n@pytest.mark.peaks_session(viewport={'width': 'wide', 'height': 1})\n"
        "def test_it(peaks_page): pass\n\ndef test_next(peaks_page): pass"
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["INVALID_OPTION: *viewport.width*", "hint: *viewport*"])


def test_an_executable_that_is_not_there(project: pytest.Pytester) -> None:
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess("--peaks-executable=/nowhere/chromium", "-n2")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["BROWSER_NOT_FOUND: the executable /nowhere/chromium does not exist", "hint: *`peaks install`"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("browser", "command"),
    [
        ("chrome", "playwright install chrome"),
        ("msedge", "playwright install msedge"),
        ("firefox", "playwright install firefox"),
        ("webkit", "playwright install --with-deps webkit"),
    ],
)
def test_a_browser_that_is_not_installed_comes_with_the_command_that_installs_it(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, browser: str, command: str
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(project.path / "none"))
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess("--peaks-browser", browser)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"BROWSER_NOT_FOUND: no {browser} on this machine; looked for *", f"hint: run `{command}`*"]
    )


def test_no_chromium_at_all(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.makeconftest(
        """
        from pytest_peaks.session import browsers
        browsers._SHELLS = browsers._CHROMIUMS = ("/nowhere/chromium",)
        """
    )
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["BROWSER_NOT_FOUND: no chromium *looked for */nowhere/chromium*", "hint: run `peaks install`*"]
    )


def test_a_browser_that_exits_is_quoted(project: pytest.Pytester) -> None:
    option = stand_in(project, "echo the reason >&2\nexit 3\n")
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess(option)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["START_FAILED: *exited with status 3*", "*the reason*", "hint: *"])


def test_missing_libraries_are_named(project: pytest.Pytester) -> None:
    message = "error while loading shared libraries: libnss3.so: cannot open shared object file"
    option = stand_in(project, f"echo '$0: {message}' >&2\nexit 127\n")
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess(option)
    result.stdout.fnmatch_lines(["MISSING_LIBRARIES: *libnss3.so*", "hint: *install-deps*"])


def test_a_file_that_is_no_program(project: pytest.Pytester) -> None:
    path = project.path / "browser"
    path.write_bytes(b"\x00\x01\x02")
    path.chmod(0o755)
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess(f"--peaks-executable={path}")
    result.stdout.fnmatch_lines(["START_FAILED: *cannot be run: *"])


def test_an_unusable_sandbox_is_solved(project: pytest.Pytester) -> None:
    # Says what Chromium says, unless it is told to do without.
    option = stand_in(
        project,
        'case "$*" in *--no-sandbox*) exec CHROMIUM "$@";; esac\n'
        "echo 'FATAL: No usable sandbox! Update your kernel' >&2; exit 1\n",
    )
    project.makeconftest(
        "from pytest_peaks.session import machine\nmachine.sandbox = lambda: machine.Sandbox(True, 'as said')"
    )
    # Root needs the switch in any case; the first start then fails for that reason or for the stand-in's.
    project.makepyfile(HELLO)
    project.runpytest_subprocess(option).assert_outcomes(passed=1)


def test_a_port_lost_to_another_program_is_replaced(
    project: pytest.Pytester, surroundings: Surroundings
) -> None:
    # Takes the first port on 127.0.0.1 just before Chromium does, which then goes to ::1 in silence.
    option = stand_in(
        project,
        f"""
import os, re, socket, sys
port = int(re.search("--remote-debugging-port=([0-9]+)", " ".join(sys.argv))[1])
if port == {surroundings.ports.start}:
    thief = socket.socket()
    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    thief.bind(("127.0.0.1", port))
    thief.listen()
    os.set_inheritable(thief.fileno(), True)
os.execv("CHROMIUM", ["CHROMIUM", *sys.argv[1:]])
""",
        python=True,
    )
    project.makepyfile(
        HELLO
        + f"\n    def test_port(peaks_session): assert peaks_session.port == {surroundings.ports.start + 1}\n"
    )
    project.runpytest_subprocess(option).assert_outcomes(passed=2)


def test_the_system_chooses_a_port_where_the_range_is_zero(project: pytest.Pytester) -> None:
    project.makepyfile(HELLO + "\n    def test_port(peaks_session): assert peaks_session.port > 1023\n")
    project.runpytest_subprocess("--peaks-ports=0").assert_outcomes(passed=2)


def test_an_exhausted_range_says_so(project: pytest.Pytester, surroundings: Surroundings) -> None:
    import socket

    with socket.create_server(("127.0.0.1", surroundings.ports.start)):
        project.makepyfile(HELLO)
        result = project.runpytest_subprocess(f"--peaks-ports={surroundings.ports.start}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"PORT_EXHAUSTED: no free port in {surroundings.ports.start}-*", "hint: *"])


def test_a_window_without_a_display(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess("--peaks-headed")
    result.stdout.fnmatch_lines(["NO_DISPLAY: *", "hint: *xvfb-run*"])


@pytest.mark.parametrize("kind", ["file", "project"])
def test_a_user_data_dir_that_can_be_none(project: pytest.Pytester, kind: str) -> None:
    (project.path / "file").write_text("precious")
    where = "file" if kind == "file" else "."
    project.makepyfile(
        f"import pytest\n@pytest.mark.peaks_session(user_data_dir={where!r})\ndef test_it(peaks_page): pass"
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["INVALID_USER_DATA_DIR: *", "hint: *"])
    assert (project.path / "file").read_text() == "precious"


def test_what_pages_log_stays_out_of_the_log_file(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_it(peaks_page, peaks_session):
            peaks_page.goto("about:blank")
            peaks_page.evaluate("console.log('secret-canary'); console.error('secret-canary')")
            logs = list(peaks_session.user_data_dir.parents[1].glob("logs/*.log"))
            assert logs
            assert not any("secret-canary" in log.read_text() for log in logs)
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_children_get_a_short_temp_dir_and_no_mcp_settings(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_MCP_CDP_ENDPOINT", "http://127.0.0.1:1")
    project.makepyfile(
        """
        import pathlib
        def test_it(peaks_session):
            raw = pathlib.Path(f"/proc/{peaks_session.pid}/environ").read_bytes().split(b"\\0")
            env = dict(line.decode().split("=", 1) for line in raw if line)
            assert not any(name.startswith("PLAYWRIGHT_MCP_") for name in env)
            assert len(env["TMPDIR"]) <= 62 and pathlib.Path(env["TMPDIR"]).is_dir()
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)
