"""Options: three spellings, one precedence, and a bad value is named as it was given before anything starts."""

from __future__ import annotations

import json
import operator
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_peaks import config as settings
from pytest_peaks.config import PeaksConfig
from pytest_peaks.errors import InvalidNameError, InvalidOptionError
from pytest_peaks.options import OPTIONS, Option
from pytest_peaks.session.ports import WORKER_PORTS, PortRange
from pytest_peaks.session.spec import BrowserName, BrowserSpec, Isolation

ON_THE_COMMAND_LINE = [option for option in OPTIONS if option.command_line]
WITH_A_VALUE = [option for option in ON_THE_COMMAND_LINE if not option.flag]


@pytest.fixture(autouse=True)
def no_ports_from_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEAKS_PORTS")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


class Given:
    """A stand-in for pytest's config: what was given in each spelling."""

    rootpath = Path("/project")

    def __init__(self, *, line: dict[str, Any] | None = None, ini: dict[str, Any] | None = None) -> None:
        self.line = line or {}
        self.ini = ini or {}

    def getoption(self, name: str, default: Any = None) -> Any:
        return self.line.get(name, default)

    def getini(self, name: str) -> Any:
        return self.ini.get(name, "")


def read(*, line: dict[str, Any] | None = None, ini: dict[str, Any] | None = None) -> PeaksConfig:
    return settings.read(Given(line=line, ini=ini))  # type: ignore[arg-type]


# What each option is read into, three values of it and, where there is one, a bad one.
VALUES: dict[str, tuple[str, tuple[str, str, str], str | None]] = {
    "browser": ("browser", ("firefox", "webkit", "msedge"), "opera"),
    "executable": ("executable", ("/bin/a", "/bin/b", "/bin/c"), "~no-such-user-of-this-machine/x"),
    "headed": ("headed", ("True", "False", "True"), "maybe"),
    "isolation": ("isolation", ("recycled", "profile", "browser"), "none"),
    "ports": ("ports", ("9001-9002", "9003-9004", "9005-9006"), "80"),
    "debug_port": ("debug_port", ("True", "False", "True"), "maybe"),
    "mcp_command": ("mcp.command", ("one -a", "two -b", "three -c"), None),
    "reuse": ("reuse", ("force", "off", "on"), "maybe"),
    "fresh": ("fresh", ("True", "False", "True"), "maybe"),
    "attach": ("attach", ("http://127.0.0.1:9222", "ws://host/path", "tty-1"), "ftp://host"),
    "async_safe": ("async_safe", ("on", "off", "on"), "maybe"),
    "desk_wait": ("desk_wait", ("0.0", "2.5", "600.0"), "soon"),
    "bridge": ("bridge", ("True", "False", "True"), "maybe"),
    "tracing": ("artifacts.tracing", ("on", "retain-on-failure", "on-first-retry"), "sometimes"),
    "screenshot": ("artifacts.screenshot", ("on", "retain-on-failure", "off"), "sometimes"),
    "video": ("artifacts.video", ("on", "retain-on-failure", "off"), "sometimes"),
    "full_page_screenshot": ("artifacts.full_page", ("True", "False", "True"), "maybe"),
    "output": ("artifacts.output", ("/tmp/a", "/tmp/b", "/tmp/c"), "~no-such-user-of-this-machine/x"),
    "base_url": ("base_url", ("http://a.test", "http://b.test", "http://c.test"), None),
    "device": ("device", ("iPhone 15", "Pixel 7", "Galaxy S9+"), None),
    "slowmo": ("slow_mo", ("50.0", "0.5", "100.0"), "slowly"),
    "auto_workers": ("auto_workers", ("False", "True", "False"), "maybe"),
}
KNOWN = [option for option in OPTIONS if option.name in VALUES]
WITH_A_BAD_VALUE = [option for option in KNOWN if VALUES[option.name][2] is not None]


def test_every_option_is_tried() -> None:
    assert set(VALUES) == {option.name for option in OPTIONS}


@pytest.mark.parametrize("option", KNOWN, ids=lambda option: option.name)
def test_the_command_line_wins_over_the_environment_and_that_over_the_ini_file(
    option: Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    attribute, (on_line, in_env, in_ini), _ = VALUES[option.name]
    value = operator.attrgetter(attribute)
    ini, line = {option.ini: in_ini}, {option.ini: on_line}
    assert str(value(read(ini=ini))) == in_ini
    monkeypatch.setenv(option.env, in_env)
    assert str(value(read(ini=ini))) == in_env
    if option.command_line:
        assert str(value(read(ini=ini, line=line))) == on_line
    monkeypatch.setenv(option.env, "")
    assert str(value(read(ini=ini))) == in_ini, "an empty variable counts as not set"


def test_a_flag_can_be_taken_back_by_the_environment_but_not_by_the_ini_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not read().headed
    assert read(ini={"peaks_headed": "true"}).headed
    monkeypatch.setenv("PEAKS_HEADED", "off")
    assert not read(ini={"peaks_headed": "true"}).headed
    assert read(ini={"peaks_headed": "false"}, line={"peaks_headed": True}).headed


@pytest.mark.parametrize(
    ("text", "means"), [("on", True), ("off", False), ("1", True), ("0", False), (" Yes ", True)]
)
def test_on_and_off_are_read_in_any_usual_spelling(text: str, means: bool) -> None:
    assert read(ini={"peaks_debug_port": text}).debug_port is means


def test_without_any_of_them_the_defaults_hold() -> None:
    found = read()
    assert found.root == Path("/project")
    assert found.browser_spec == BrowserSpec()
    assert (found.isolation, found.ports) == (Isolation.FRESH, WORKER_PORTS)
    assert (found.headed, found.debug_port, found.executable) == (False, True, None)


def test_pwdebug_shows_the_window_only_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWDEBUG", "1")
    monkeypatch.setattr(sys, "platform", "linux")
    assert not read().headed
    monkeypatch.setenv("DISPLAY", ":99")
    assert read().headed
    assert not read(ini={"peaks_headed": "off"}).headed


def test_relative_executables_start_at_the_root_and_a_tilde_is_the_home_folder() -> None:
    assert read(line={"peaks_executable": "bin/chrome"}).executable == Path("/project/bin/chrome")
    assert read(line={"peaks_executable": "~/chrome"}).executable == Path.home() / "chrome"
    assert read(line={"peaks_ports": "0"}).ports == PortRange(0, 0, strict=False)


@pytest.mark.parametrize(
    ("option", "spelling"),
    [(option, spelling) for option in WITH_A_BAD_VALUE for spelling in ("env", "ini")]
    + [(option, "line") for option in WITH_A_BAD_VALUE if option in WITH_A_VALUE],
    ids=lambda part: getattr(part, "name", part),
)
def test_a_bad_value_is_named_by_the_spelling_it_was_given_in(
    option: Option, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = VALUES[option.name][2]
    assert bad is not None
    given: dict[str, dict[str, Any]] = {spelling: {option.ini: bad}}
    if spelling == "env":
        monkeypatch.setenv(option.env, bad)
        given = {}
    with pytest.raises(InvalidOptionError) as caught:
        read(**given)
    name = {"line": option.switch, "env": option.env, "ini": f"{option.ini} in the ini file"}[spelling]
    assert caught.value.message.startswith(f"{name}: ")
    assert repr(bad) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["ftp://host", "../other", "two words", "file:///etc"])
def test_what_is_neither_a_url_nor_a_terminal_is_nothing_to_attach_to(text: str) -> None:
    with pytest.raises((InvalidOptionError, InvalidNameError)) as caught:
        read(line={"peaks_attach": text})
    assert caught.value.message.startswith("--peaks-attach: ")
    assert repr(text) in caught.value.message


# On the outside


def header(result: pytest.RunResult) -> str:
    (line,) = (line for line in result.outlines if line.startswith("peaks: "))
    return line


def test_the_header_says_what_was_resolved_and_nothing_is_started(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executable = tmp_path / "my chromium"
    executable.write_text("#!/bin/sh\necho started > started\n")
    executable.chmod(0o755)
    project.makepyfile("def test_it(peaks_page): pass")
    monkeypatch.setenv("PEAKS_ISOLATION", "profile")
    monkeypatch.setenv("PEAKS_PORTS", "9003-9004")
    project.makeini(
        f"[pytest]\naddopts = -p no:playwright -p no:cacheprovider\npeaks_executable = {executable}\n"
        "peaks_ports = 9005-9006\npeaks_isolation = browser\n"
    )
    result = project.runpytest_subprocess("--collect-only", "--peaks-ports", "9001-9002")
    assert result.ret == 0
    assert header(result) == f"peaks: chromium ({executable}), isolation profile, ports 9001-9002"
    result = project.runpytest_subprocess(
        "--collect-only", "--peaks-ports=0", "--peaks-headed", "--peaks-isolation=fresh"
    )
    assert "isolation fresh" in header(result)
    assert header(result).endswith(", headed")
    assert not (project.path / "started").exists()
    assert not (project.path / ".peaks").exists()


def test_a_browser_that_is_not_there_is_said_in_the_header_and_stops_no_test_without_one(
    project: pytest.Pytester,
) -> None:
    project.makepyfile("def test_it(): pass")
    result = project.runpytest_subprocess("--peaks-executable", "no/such/browser")
    result.assert_outcomes(passed=1)
    assert "no/such/browser does not exist" in header(result)
    assert "--peaks-executable" in header(result)


@pytest.mark.parametrize(
    ("line", "env", "ini"),
    [
        (["--peaks-browser", "opera"], {}, {}),
        (["--peaks-ports", "80-90"], {}, {}),
        ([], {"PEAKS_ISOLATION": "none"}, {}),
        (["-n", "2"], {"PEAKS_ISOLATION": "none"}, {}),
        ([], {}, {"peaks_debug_port": "maybe"}),
    ],
    ids=str,
)
def test_a_bad_value_ends_the_run_with_one_sentence(
    project: pytest.Pytester, line: list[str], env: dict[str, str], ini: dict[str, str]
) -> None:
    project.makepyfile("def test_it(): pass")
    with (project.path / "tox.ini").open("a") as file:
        file.writelines(f"\n{name} = {value}\n" for name, value in ini.items())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        result = project.runpytest_subprocess(*line)
    name, value = [*env.items(), *ini.items(), line][0]
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(rf"INVALID_[A-Z]+: {name}[^:]*: {value!r}", text)
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert not (project.path / ".peaks").exists()


def test_the_help_lists_both_spellings_and_the_variable_of_every_option(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--help")
    assert result.ret == 0
    text = " ".join(result.stdout.str().split())
    for option in OPTIONS:
        assert f"{option.ini} (string):" in text
        assert f"Environment: {option.env}." in text
        assert (f" {option.switch}" in text) is option.command_line
    for name in (*BrowserName, *Isolation):
        assert name in text
    assert str(WORKER_PORTS) in text


HEAVY = ("playwright", "psutil", "filelock", "click", "rich", "platformdirs", "asyncio", "greenlet")


def test_a_run_without_a_browser_imports_none_of_the_heavy_modules(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makeconftest(
        f"""
        import json, pathlib, sys

        def pytest_unconfigure(config):
            loaded = sorted(name for name in {HEAVY!r} if name in sys.modules)
            pathlib.Path("loaded.json").write_text(json.dumps(loaded))
        """
    )
    project.makepyfile("def test_it(): import pytest_peaks.plugin")
    project.makeini("[pytest]\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = project.runpytest_subprocess("-p", "pytest_peaks.plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    header(result)
    assert json.loads((project.path / "loaded.json").read_text()) == []
    assert not (project.path / ".peaks").exists()
