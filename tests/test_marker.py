"""The marker: the closest wins, context options merge, and whatever is wrong is said in one sentence."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_peaks.config import PeaksConfig, read
from pytest_peaks.errors import InvalidNameError, InvalidOptionError
from pytest_peaks.marker import CONTEXT_OPTIONS, OWN_ARGUMENTS, build_spec, merge
from pytest_peaks.marker_name import DESCRIPTION
from pytest_peaks.options import OPTIONS
from pytest_peaks.session.spec import BrowserName, BrowserSpec, Isolation

quick = settings(deadline=None, max_examples=300, database=None)
ROOT = Path("/project")


class Nothing:
    """A stand-in for pytest's config in which nothing was given."""

    rootpath = ROOT

    def getoption(self, _name: str, default: Any = None) -> Any:
        return default

    def getini(self, _name: str) -> Any:
        return ""


def configured(**changes: Any) -> PeaksConfig:
    with pytest.MonkeyPatch.context() as patch:
        for option in OPTIONS:
            patch.delenv(option.env, raising=False)
        patch.delenv("PWDEBUG", raising=False)
        return dataclasses.replace(read(Nothing()), **changes)  # type: ignore[arg-type]


CONFIG = configured()


def refused(*, config: PeaksConfig = CONFIG, **arguments: Any) -> InvalidOptionError:
    with pytest.raises(InvalidOptionError) as caught:
        build_spec(arguments, config)
    assert caught.value.hint
    return caught.value


# Merging


def test_the_closest_marker_wins_name_by_name() -> None:
    function = ((), {"isolation": "browser", "locale": "de-DE"})
    class_ = (("admin",), {"locale": "fr-FR", "timezone_id": "Europe/Paris"})
    module = (("user",), {"isolation": "fresh", "viewport": {"width": 1, "height": 1}})
    assert merge([function, class_, module]) == {
        "name": "admin",
        "isolation": "browser",
        "locale": "de-DE",
        "timezone_id": "Europe/Paris",
        "viewport": {"width": 1, "height": 1},
    }
    assert merge([]) == {}


def test_the_closest_wins_also_with_nothing() -> None:
    assert merge([((), {"name": None}), (("admin",), {})]) == {"name": None}
    assert build_spec(merge([((), {"name": None}), (("admin",), {})]), CONFIG).name == ""


def test_the_name_may_be_positional_and_nothing_else_may() -> None:
    assert merge([(("admin",), {})]) == {"name": "admin"}
    with pytest.raises(InvalidOptionError, match="2 positional arguments"):
        merge([(("admin", "browser"), {})])
    with pytest.raises(InvalidOptionError, match="name is given twice"):
        merge([(("admin",), {"name": "admin"})])


@quick
@given(
    st.lists(st.dictionaries(st.sampled_from([*sorted(CONTEXT_OPTIONS), "name"]), st.integers(), max_size=5))
)
def test_every_argument_comes_from_the_closest_marker_that_has_it(markers: list[dict[str, int]]) -> None:
    merged = merge(((), kwargs) for kwargs in markers)
    assert set(merged) == {key for kwargs in markers for key in kwargs}
    for key, value in merged.items():
        assert value == next(kwargs[key] for kwargs in markers if key in kwargs)


# What a marker means


def test_without_arguments_the_configuration_decides() -> None:
    spec = build_spec({}, CONFIG)
    assert spec.browser == BrowserSpec()
    assert (spec.name, spec.isolation, spec.url, dict(spec.context_options)) == (
        "",
        Isolation.FRESH,
        None,
        {},
    )
    config = configured(
        isolation=Isolation.PROFILE,
        headed=True,
        debug_port=False,
        browser=BrowserName.CHROME,
        executable=Path("/x"),
    )
    spec = build_spec({}, config)
    assert spec.isolation is Isolation.PROFILE
    assert spec.browser == BrowserSpec(
        BrowserName.CHROME, executable=Path("/x"), headed=True, debug_port=False, persistent=True
    )


def test_what_a_marker_says_goes_into_the_session() -> None:
    spec = build_spec(
        {"name": "admin", "isolation": "browser", "url": "/login", "locale": "de-DE", "offline": False},
        CONFIG,
    )
    assert spec.name == "admin"
    assert spec.isolation is Isolation.BROWSER
    assert spec.url == "/login"
    assert dict(spec.context_options) == {"locale": "de-DE", "offline": False}
    assert not spec.browser.persistent
    with pytest.raises(TypeError):
        spec.context_options["locale"] = "fr-FR"  # type: ignore[index]


@pytest.mark.parametrize("name", list(BrowserName))
def test_another_browser_than_the_configured_one_does_not_get_its_executable(name: BrowserName) -> None:
    config = configured(browser=BrowserName.CHROMIUM, executable=Path("/opt/chromium"))
    spec = build_spec({"browser": str(name)}, config)
    assert spec.browser.browser is name
    assert spec.browser.executable == (Path("/opt/chromium") if name is BrowserName.CHROMIUM else None)


@pytest.mark.parametrize(
    ("given_", "path"),
    [
        ("profiles/alice", ROOT / "profiles" / "alice"),
        (Path("alice"), ROOT / "alice"),
        ("/elsewhere", Path("/elsewhere")),
        ("~/alice", Path.home() / "alice"),
    ],
)
def test_a_user_data_dir_starts_at_the_root_and_means_its_own_context(given_: Any, path: Path) -> None:
    spec = build_spec({"user_data_dir": given_}, CONFIG)
    assert spec.browser.user_data_dir == path
    assert spec.browser.persistent
    assert spec.isolation is Isolation.PROFILE
    assert (
        build_spec({"user_data_dir": given_, "isolation": "browser"}, CONFIG).isolation is Isolation.BROWSER
    )


# What is wrong


@pytest.mark.parametrize(
    ("argument", "suggestion"),
    [
        ("viewprt", "viewport"),
        ("isolaton", "isolation"),
        ("userDataDir", "user_data_dir"),
        ("user_datadir", "user_data_dir"),
        ("local", "locale"),
        ("timezone", "timezone_id"),
        ("base_urls", "base_url"),
        ("brwser", "browser"),
    ],
)
def test_an_unknown_argument_is_named_with_the_one_that_was_meant(argument: str, suggestion: str) -> None:
    error = refused(**{argument: "x"})
    assert error.message == f"unknown argument {argument!r}"
    assert error.hint == f"did you mean {suggestion!r}?"


def test_an_argument_like_none_is_answered_with_what_there_is() -> None:
    error = refused(zzz=1)
    assert "zzz" in error.message
    for name in OWN_ARGUMENTS:
        assert name in error.hint
    assert "Browser.new_context" in error.hint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"isolation": "fres"}, ["'fres'", "fresh, recycled, profile, browser"]),
        ({"isolation": True}, ["True", "fresh, recycled, profile, browser"]),
        ({"isolation": ""}, ["''", "fresh, recycled, profile, browser"]),
        ({"browser": "opera"}, ["'opera'", "chromium, chrome, msedge, firefox, webkit"]),
        ({"browser": ["chromium"]}, ["['chromium']", "chromium, chrome, msedge"]),
        ({"url": ""}, ["url is ''"]),
        ({"url": 5}, ["url is 5"]),
        ({"url": Path("/login")}, ["url is"]),
        ({"user_data_dir": ""}, ["user_data_dir is ''"]),
        ({"user_data_dir": 5}, ["user_data_dir is 5"]),
        ({"user_data_dir": "~no-such-user-of-this-machine/x"}, ["user_data_dir", "no-such-user"]),
        ({"doors": ("opera",)}, ["'opera' is not a door", "mcp"]),
        ({"doors": 5}, ["doors is 5"]),
        ({"doors": [5]}, ["doors is [5]"]),
        ({"mcp_caps": [None]}, ["mcp_caps is [None]"]),
        ({"mcp_args": {"a": 1}}, ["mcp_args is {'a': 1}"]),
        ({"doors": "mcp", "browser": "firefox"}, ["doors=mcp", "Chromium"]),
        ({"viewport": {"width": 1, "height": 1}, "no_viewport": True}, ["viewport and no_viewport"]),
        ({"user_data_dir": "x", "isolation": "fresh"}, ["isolation='fresh'", "user_data_dir", "contradict"]),
        ({"isolation": "profile", "locale": "de", "viewport": None}, ["locale, viewport", "context options"]),
        ({"user_data_dir": "x", "locale": "de"}, ["locale", "context options"]),
        ({"user_data_dir": "x", "isolation": "browser", "offline": True}, ["offline", "context options"]),
    ],
)
def test_a_wrong_or_contradictory_argument_is_named(arguments: dict[str, Any], words: list[str]) -> None:
    error = refused(**arguments)
    for word in words:
        assert word in f"{error.message} {error.hint}"


def test_context_options_contradict_a_profile_that_the_configuration_chose() -> None:
    error = refused(config=configured(isolation=Isolation.PROFILE), locale="de")
    assert "locale" in error.message
    assert build_spec({"locale": "de", "isolation": "fresh"}, configured(isolation=Isolation.PROFILE))


@pytest.mark.parametrize("name", ["", "..", "Admin", "a/b", 5, "x" * 41])
def test_a_name_that_is_none_is_refused(name: object) -> None:
    with pytest.raises(InvalidNameError, match="name"):
        build_spec({"name": name}, CONFIG)


def test_no_viewport_goes_with_no_viewport() -> None:
    assert build_spec({"viewport": None, "no_viewport": True}, CONFIG)
    assert build_spec({"viewport": {"width": 1, "height": 1}, "no_viewport": False}, CONFIG)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
likely = st.sampled_from(
    [
        *(
            "admin",
            "fresh",
            "profile",
            "browser",
            "chromium",
            "firefox",
            "mcp",
            "~",
            "~x/y",
            "/",
            "a\0b",
            "/login",
        ),
        *(True, None, ("mcp",)),
    ]
)
arguments = st.dictionaries(
    st.sampled_from([*OWN_ARGUMENTS, "viewport", "no_viewport", "locale", "isolaton"]) | st.text(max_size=12),
    likely | values,
    max_size=5,
)


@settings(quick, max_examples=600)
@given(arguments, st.sampled_from(Isolation))
@example({"user_data_dir": "~no-such-user-of-this-machine"}, Isolation.FRESH)
@example({"user_data_dir": "a\0b"}, Isolation.FRESH)
@example({"": 1}, Isolation.FRESH)
def test_arbitrary_arguments_make_a_session_or_one_of_two_errors(
    given_: dict[str, Any], isolation: Isolation
) -> None:
    try:
        spec = build_spec(merge([((), given_)]), configured(isolation=isolation))
    except (InvalidOptionError, InvalidNameError):
        return
    assert set(given_) <= set(OWN_ARGUMENTS) | CONTEXT_OPTIONS
    assert set(spec.context_options) == set(given_) & CONTEXT_OPTIONS
    assert not (spec.context_options and spec.browser.persistent)
    assert spec.browser.user_data_dir is None or spec.browser.user_data_dir.is_absolute()


# What Playwright takes


def test_the_context_options_are_those_of_the_installed_playwright() -> None:
    from playwright.sync_api import Browser

    installed = set(inspect.signature(Browser.new_context).parameters) - {"self"}
    # What came after the oldest Playwright that may be installed.
    later = {"record_video_fps"}
    assert installed | later == set(CONTEXT_OPTIONS)
    assert not set(CONTEXT_OPTIONS) & set(OWN_ARGUMENTS)


def test_the_marker_is_registered_with_a_sentence_that_names_its_arguments(pytester: pytest.Pytester) -> None:
    for argument in OWN_ARGUMENTS:
        assert argument in DESCRIPTION
    result = pytester.runpytest_subprocess("--markers", "-p", "no:cacheprovider")
    assert DESCRIPTION in result.stdout.str()


# On the outside


def test_a_wrong_argument_ends_the_collection_and_names_the_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.peaks_session(viewprt={"width": 1})
        def test_wrong(): pass
        """
    )
    result = project.runpytest_subprocess("--collect-only")
    text = result.stdout.str() + result.stderr.str()
    assert result.ret != 0
    assert "test_it.py::test_wrong: @pytest.mark.peaks_session: unknown argument 'viewprt'" in text
    assert "did you mean 'viewport'?" in text
    assert "Traceback" not in text


def test_the_closest_marker_wins_in_a_real_collection(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from pytest_peaks import state

        pytestmark = pytest.mark.peaks_session("module", locale="de-DE", timezone_id="Europe/Berlin")

        def spec(request):
            return state.spec_of(request.node)

        def test_module(request):
            assert spec(request).name == "module"
            assert dict(spec(request).context_options) == {"locale": "de-DE", "timezone_id": "Europe/Berlin"}

        @pytest.mark.peaks_session("class", locale="fr-FR")
        class TestClass:
            def test_class(self, request):
                assert spec(request).name == "class"
                assert dict(spec(request).context_options) == {"locale": "fr-FR", "timezone_id": "Europe/Berlin"}

            @pytest.mark.peaks_session(isolation="browser", locale="it-IT")
            def test_function(self, request):
                assert spec(request).name == "class"
                assert spec(request).isolation == "browser"
                assert dict(spec(request).context_options) == {"locale": "it-IT", "timezone_id": "Europe/Berlin"}
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)


# Devices


def test_the_markers_device_wins_over_the_configured_one_which_profiles_and_desks_leave_aside() -> None:
    phone = dataclasses.replace(CONFIG, device="iPhone 15")
    assert build_spec({}, phone).device == "iPhone 15"
    assert build_spec({"device": "Pixel 5"}, phone).device == "Pixel 5"
    assert build_spec({"device": None}, phone).device == ""
    for arguments in ({"isolation": "profile"}, {"user_data_dir": "here"}, {"desk": "gmail"}):
        assert build_spec(arguments, phone).device == ""


def test_a_device_has_the_driver_launch_a_browser_that_doors_lead_into() -> None:
    for spec in (
        build_spec({"doors": "mcp"}, dataclasses.replace(CONFIG, device="iPhone 15")),
        build_spec({"doors": "mcp", "device": "iPhone 15"}, CONFIG),
    ):
        assert spec.browser.by_driver
        assert spec.isolation is Isolation.BROWSER
    assert not build_spec({"doors": "mcp"}, CONFIG).browser.by_driver


@pytest.mark.parametrize("device", ["", 15, {"name": "iPhone 15"}])
def test_a_device_is_a_name(device: object) -> None:
    assert repr(device) in refused(device=device).message


@pytest.mark.parametrize("other", [{"isolation": "profile"}, {"user_data_dir": "here"}, {"desk": "gmail"}])
def test_what_has_its_context_already_takes_no_device(other: dict[str, object]) -> None:
    assert "device" in refused(device="iPhone 15", **other).message
