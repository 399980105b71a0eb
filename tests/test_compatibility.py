"""Beside what people already have: other plugins, unittest, debuggers, proxies, awkward machines."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.parametrize(
    "arguments", [["-p", "no:xdist"], ["-n", "0"], ["-n", "1"], ["-n", "8"]], ids=" ".join
)
def test_any_number_of_workers_and_none(project: pytest.Pytester, arguments: list[str]) -> None:
    project.makepyfile(
        HELLO + "\n    def test_slot(peaks_page, peaks_slot):\n        assert 0 <= peaks_slot < 8\n"
    )
    result = project.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["slot * port *", "nothing left behind"])


@pytest.mark.parametrize(
    "arguments", [["--collect-only"], ["--help"], ["--collect-only", "-n2"], ["--markers"]], ids=" ".join
)
def test_looking_starts_nothing(project: pytest.Pytester, arguments: list[str]) -> None:
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess(*arguments)
    assert result.ret == 0
    assert not (project.path / ".peaks").exists()


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_run_without_a_browser_pays_nothing(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    project.makeconftest(
        """
        import sys
        def pytest_unconfigure():
            assert "playwright" not in sys.modules
            assert "pytest_peaks.owner" not in sys.modules
        """
    )
    project.makepyfile("def test_plain(peaks_slot): assert peaks_slot in (0, 1)")
    result = project.runpytest_subprocess(workers)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert not (project.path / ".peaks").exists()
    assert not (surroundings.runtime / "guardians").exists()
    result.stdout.no_fnmatch_line("*nothing left behind*")


def test_unittest_cases_have_their_page_as_an_attribute(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import unittest, pytest

        @pytest.mark.usefixtures("peaks_page")
        @pytest.mark.peaks_session(viewport={"width": 320, "height": 480})
        class TestCase(unittest.TestCase):
            def test_one(self):
                self.peaks_page.set_content("<h1>hello</h1>")
                self.assertEqual(self.peaks_page.text_content("h1"), "hello")
                self.assertEqual(self.peaks_page.viewport_size["width"], 320)
                self.assertIs(self.peaks_session.page, self.peaks_page)

            def test_two(self):
                self.assertEqual(self.peaks_page.url, "about:blank")
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_beside_pytest_playwright_in_one_test(project: pytest.Pytester, workers: str) -> None:
    project.makeini("[pytest]\n")  # pytest-playwright itself warns under the newest pytest
    executable = str(browsers.find(BrowserSpec()).executable)
    project.makeconftest(
        f"""
        import pytest
        @pytest.fixture(scope="session")
        def browser_type_launch_args():
            return dict(executable_path={executable!r}, args=["--no-sandbox"])
        """
    )
    project.makepyfile(
        """
        import pytest
        def test_theirs(page):
            page.set_content("<h1>theirs</h1>")

        def test_ours(peaks_page):
            peaks_page.set_content("<h1>ours</h1>")

        def test_both(page, peaks_page, peaks_session, browser):
            page.goto("data:text/html,theirs")
            peaks_page.goto("data:text/html,ours")
            assert peaks_session.browser is not browser
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", workers)
    result.assert_outcomes(passed=3)
    _remove_driver_litter(project)


def test_pytest_playwright_in_the_environment_gives_a_suite_of_ours_no_warnings(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]\nfilterwarnings = error\n")
    project.makepyfile(HELLO)
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    _remove_driver_litter(project)


def _remove_driver_litter(project: pytest.Pytester) -> None:
    """What pytest-playwright's own browser and driver leave in TMPDIR is not the plugin's to remove."""
    import shutil

    for path in Path(os.environ["TMPDIR"]).iterdir():
        if not path.name.startswith("peaks-"):
            shutil.rmtree(path, ignore_errors=True)


def test_a_suite_can_bring_its_own_playwright(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import pytest
        from playwright.sync_api import sync_playwright

        @pytest.fixture(scope="session")
        def playwright():
            with sync_playwright() as started:
                yield started
        """
    )
    project.makepyfile(
        """
        def test_it(playwright, peaks_page, peaks_browser):
            assert peaks_browser.browser_type == playwright.chromium
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_proxy_in_the_environment_is_not_in_the_way(
    project: pytest.Pytester, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    project.makepyfile(f"def test_it(peaks_page):\n    assert peaks_page.goto({site!r}).ok")
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_checkout_that_cannot_hold_files_uses_the_users_state_dir(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (project.path / ".peaks").write_text("in the way, also for root")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project.makepyfile(
        HELLO + "\n    def test_where(peaks_session):\n        print(peaks_session.user_data_dir)\n"
    )
    result = project.runpytest_subprocess("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"*{tmp_path}/state/peaks/projects/*/_runtime/playwright-userdata/*"])
    (project.path / ".peaks").unlink()


def test_a_long_tmpdir_is_solved_not_reported(
    project: pytest.Pytester, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = surroundings.temp / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    project.makepyfile(HELLO)
    project.runpytest_subprocess().assert_outcomes(passed=1)
    assert list(long.iterdir()) == []
    long.rmdir()


@pytest.mark.parametrize("value", ["1", "console"])
def test_pwdebug_without_a_display(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("PWDEBUG", value)
    monkeypatch.delenv("DISPLAY", raising=False)
    project.makepyfile(HELLO)
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_page_is_alive_in_pdb(project: pytest.Pytester) -> None:
    project.makepyfile(HELLO.replace('== "hello"', '== "bye"'))
    child = project.spawn_pytest("--pdb", expect_timeout=60)
    child.expect(r"\(Pdb\)")
    child.sendline("print('title', peaks_page.text_content('h1') * 2)")
    child.expect("title hellohello")
    child.expect(r"\(Pdb\)")
    child.sendline("q")
    child.expect("1 failed")
    child.wait()
    child.close()


def test_wider_scopes_through_the_factory(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def shared(peaks_session_factory):
            with peaks_session_factory("shared", locale="de-DE") as session:
                session.page.goto("data:text/html,<title>shared</title>")
                yield session.page

        @pytest.fixture(scope="class")
        def by_class(peaks_session_factory):
            return peaks_session_factory(isolation="browser").page  # closed at the end of the run

        class TestIt:
            def test_one(self, shared, peaks_page, by_class):
                assert shared.title() == "shared"
                peaks_page.goto("about:blank")

            def test_two(self, shared, peaks_browser, by_class):
                assert shared.title() == "shared", "a test's end closed a wider page"
                assert shared.evaluate("navigator.language") == "de-DE"
                assert by_class.url == "about:blank"
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_wider_fixture_on_a_tests_page_is_told_what_to_do(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        @pytest.fixture(scope="module")
        def wide(peaks_page): return peaks_page
        def test_it(wide): pass
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ScopeMismatch*", "*with peaks_session_factory() as session:*"])


def test_markers_merge_and_the_closest_wins(project: pytest.Pytester, site: str) -> None:
    project.makepyfile(
        f"""
        import pytest
        pytestmark = pytest.mark.peaks_session("module-wide", locale="fr-FR", viewport={{"width": 700, "height": 500}})

        @pytest.mark.peaks_session(viewport={{"width": 320, "height": 480}}, url={site!r})
        class TestPhone:
            @pytest.mark.peaks_session(locale="de-DE", name="own")
            def test_it(self, peaks_page, peaks_session):
                assert peaks_page.viewport_size == {{"width": 320, "height": 480}}
                assert peaks_page.evaluate("navigator.language") == "de-DE"
                assert peaks_page.url == {site + "/"!r}
                assert peaks_session.name == "own"

        def test_module(peaks_page, peaks_session):
            assert peaks_page.viewport_size["width"] == 700
            assert peaks_page.evaluate("navigator.language") == "fr-FR"
            assert peaks_session.name == "module-wide"
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_base_url_completes_relative_addresses(project: pytest.Pytester, site: str) -> None:
    project.makeconftest(f"import pytest\n@pytest.fixture(scope='session')\ndef base_url(): return {site!r}")
    project.makepyfile(
        f"""
        import pytest
        def test_it(peaks_page):
            assert peaks_page.goto("/some").url == {site!r} + "/some"

        @pytest.mark.parametrize("isolation", ["fresh", "profile", "browser"])
        @pytest.mark.peaks_session(url="/start")
        def test_start(peaks_session_factory, isolation):
            with peaks_session_factory(url="/start", isolation=isolation) as session:
                assert session.page.url == {site!r} + "/start"
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=4)


def test_without_a_debugging_port(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\naddopts = -p no:playwright\npeaks_debug_port = off\n")
    project.makepyfile(
        HELLO
        + """
    def test_facts(peaks_session):
        assert peaks_session.port is None and peaks_session.endpoint is None
        peaks_session.page.goto("about:blank")

    def test_profile(peaks_session_factory):
        for _ in range(2):
            with peaks_session_factory(isolation="profile") as session:
                session.page.goto("about:blank")
                assert session.user_data_dir.is_dir()
"""
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-n2")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["peaks: *no ports*", "slot *no port*", "nothing left behind"])


def test_two_runs_in_one_project_at_once(project: pytest.Pytester) -> None:
    project.makepyfile(HELLO + "\n    def test_again(peaks_page): peaks_page.goto('about:blank')\n")
    command = [sys.executable, "-m", "pytest", "-n2", "-p", "no:cacheprovider"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=project.path) for _ in range(2)]
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert "2 passed" in output, output
        assert "nothing left behind" in output
