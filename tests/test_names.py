"""Names of sessions: which are refused and why, how one is made, and what a project may set."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_peaks.errors import InvalidNameError, InvalidOptionError, NamePrefixError, PeaksError
from pytest_peaks.named.names import build_name, check_session_name, suggest_name
from pytest_peaks.named.settings import (
    DEFAULT_PREFIXES,
    DEFAULT_RESERVED,
    LONGEST_NAME,
    CliSettings,
    NameRules,
    read_settings,
)

quick = settings(deadline=None, max_examples=300, database=None)
RULES = NameRules(DEFAULT_PREFIXES, DEFAULT_RESERVED)


def project_with(folder: Path, toml: str) -> Path:
    (folder / "pyproject.toml").write_text(toml)
    return folder


# Checking


@pytest.mark.parametrize(
    "name",
    ["phase1-root", "composer-j-cart-3-c1", "probe-j-cart", "fd-abc", "stage2-auth-cap", "probe-" + "a" * 22],
)
def test_a_name_of_the_convention_passes(name: str) -> None:
    assert check_session_name(name, RULES) == name


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("", "NAME_MISSING: "),
        ("default", "NAME_RESERVED: "),
        ("x", "NAME_RESERVED: "),
        ("pass5", "NAME_RESERVED: "),
        ("stage1", "NAME_RESERVED: "),
        ("probe-" + "a" * 35, "NAME_TOO_LONG: 41 > 28"),
        ("a" * 29, "NAME_TOO_LONG: 29 > 28"),
        ("fd-ab", "NAME_TOO_SHORT: 5 < 6"),
        ("j-checkout-3", "NAME_PREFIX: "),
        ("probe", "NAME_TOO_SHORT: 5 < 6"),
        ("composer", "NAME_PREFIX: "),
        ("process-validator-x", "NAME_PREFIX: "),
        ("probe-a/b", "INVALID_NAME: "),
        ("../probe-a", "INVALID_NAME: "),
        ("probe-..", "INVALID_NAME: "),
        ("probe-cart-", "INVALID_NAME: "),
        ("probe--cart", "INVALID_NAME: "),
        ("-probe-cart", "INVALID_NAME: "),
        ("Probe-cart", "INVALID_NAME: "),
        ("probe_cart", "INVALID_NAME: "),
        ("probe-cärt", "INVALID_NAME: "),
        ("probe-cart\n", "INVALID_NAME: "),
        ("probe-\uff11\uff12", "INVALID_NAME: "),
    ],
)
def test_a_name_that_is_refused_says_why_and_what_would_do(name: str, begins: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        check_session_name(name, RULES)
    assert str(caught.value).startswith(begins)
    assert caught.value.exit_code == 2
    if (
        name
        and (example := caught.value.hint.removeprefix("for example ").split(";")[0]) != caught.value.hint
    ):
        assert check_session_name(example, RULES) == example
    assert "peaks name" in caught.value.hint


def test_a_suggestion_keeps_what_was_given() -> None:
    assert suggest_name("j-checkout-3", RULES) == "probe-j-checkout-3"
    assert suggest_name("composer_cart", RULES) == "composer-cart"
    assert suggest_name("Probe/Cart", RULES) == "probe-cart"
    assert suggest_name("…", RULES) is None


# Making


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("composer", "checkout", 3, 1), "composer-checkout-3-c1"),
        (("probe", "checkout", 4), "probe-checkout-4"),
        (("phase1", "root"), "phase1-root"),
        (("probe", "J: Cart & Coupons!"), "probe-j-cart-coupons"),
        (("probe", "Café Straße".replace("ß", "ss")), "probe-cafe-strasse"),
        (("probe", "a", 0, 0), "probe-a-0-c0"),
    ],
)
def test_a_name_is_made_of_prefix_slug_pass_and_cycle(
    arguments: tuple[str, str, *tuple[int, ...]], name: str
) -> None:
    assert build_name(RULES, *arguments) == name


def test_long_slugs_stay_distinct() -> None:
    slugs = [f"a-journey-through-the-whole-shop-with-coupon-{number}" for number in range(50)]
    names = {build_name(RULES, "composer", slug, 3, 1) for slug in slugs}
    assert len(names) == 50
    assert {len(name) <= RULES.max_length for name in names} == {True}
    assert all(name.startswith("composer-a-jour") and name.endswith("-3-c1") for name in names)


def test_slugs_of_which_letters_are_lost_stay_distinct() -> None:
    assert build_name(RULES, "probe", "日本 shop") != build_name(RULES, "probe", "中国 shop")


def test_a_short_name_is_lengthened_always_in_the_same_way() -> None:
    name = build_name(RULES, "fd", "1")
    assert check_session_name(name, RULES) == name
    assert name == build_name(RULES, "fd", "1")
    assert name != build_name(RULES, "fd", "2")


def test_what_no_name_can_be_made_of_is_refused() -> None:
    with pytest.raises(NamePrefixError, match="not a prefix") as caught:
        build_name(RULES, "j", "checkout")
    assert ", ".join(DEFAULT_PREFIXES) in caught.value.hint
    with pytest.raises(InvalidNameError, match="no letter and no digit"):
        build_name(RULES, "probe", "/// …")
    with pytest.raises(InvalidOptionError, match="pass"):
        build_name(RULES, "probe", "cart", -1)
    with pytest.raises(InvalidOptionError, match="cycle"):
        build_name(RULES, "probe", "cart", 1, True)
    tight = NameRules(("companion",), frozenset(), 6, 12)
    with pytest.raises(PeaksError, match="15 > 12"):
        build_name(tight, "companion", "cart", 123)


@quick
@given(
    prefixes=st.lists(st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True), min_size=1, max_size=4),
    lengths=st.tuples(st.integers(1, LONGEST_NAME), st.integers(1, LONGEST_NAME)).map(sorted),
    prefix=st.one_of(st.none(), st.text(max_size=8)),
    slug=st.one_of(st.text(max_size=80), st.text("abc-1", max_size=60)),
    pass_=st.one_of(st.none(), st.integers(-1, 10**12)),
    cycle=st.one_of(st.none(), st.integers(0, 99)),
)
@example(prefixes=["probe"], lengths=[6, 6], prefix=None, slug="a" * 50, pass_=None, cycle=None)
@example(prefixes=["fd"], lengths=[36, 36], prefix=None, slug="a", pass_=None, cycle=None)
@example(prefixes=["fd"], lengths=[6, 28], prefix=None, slug="\ud800", pass_=None, cycle=None)
def test_a_name_that_is_made_passes_or_there_is_an_error(
    prefixes: list[str],
    lengths: list[int],
    prefix: str | None,
    slug: str,
    pass_: int | None,
    cycle: int | None,
) -> None:
    rules = NameRules(tuple(prefixes), frozenset(["fd-abc"]), *lengths)
    try:
        name = build_name(rules, prefixes[0] if prefix is None else prefix, slug, pass_, cycle)
    except PeaksError:
        return
    assert check_session_name(name, rules) == name


@quick
@given(st.text(max_size=60))
def test_any_text_is_a_name_or_an_error(text: str) -> None:
    with contextlib.suppress(InvalidNameError):
        assert check_session_name(text, RULES) == text


# What a project sets


def test_a_project_that_sets_nothing_has_the_defaults(tmp_path: Path) -> None:
    expected = CliSettings(4, RULES)
    assert read_settings(tmp_path) == expected
    assert read_settings(tmp_path / "missing") == expected
    assert read_settings(project_with(tmp_path, '[project]\ndependencies = ["pytest-peaks"]\n')) == expected
    assert read_settings(project_with(tmp_path, "[tool.peaks]\nother = 1\n")) == expected


@pytest.mark.parametrize(
    "header",
    ["[tool.peaks.names]", '[tool."peaks".names]', "[ tool . peaks . names ]", "[tool]\npeaks.names."],
)
def test_a_project_sets_its_own_rules(tmp_path: Path, header: str) -> None:
    values = ['prefixes = ["bd", "tc"]', 'reserved = ["bd-shop"]', "min_length = 4", "max_length = 12"]
    if header.endswith("."):
        toml = "[tool]\n" + "\n".join(header.split("\n")[1] + value for value in values)
    else:
        toml = header + "\n" + "\n".join(values)
    rules = read_settings(project_with(tmp_path, toml)).names
    assert rules == NameRules(("bd", "tc"), frozenset(["bd-shop"]), 4, 12)
    assert check_session_name("bd-cart", rules) == "bd-cart"
    with pytest.raises(NamePrefixError):
        check_session_name("probe-cart", rules)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project_with(tmp_path, "[tool.peaks]\ncli_max_sessions = 7\n")
    assert read_settings(tmp_path).max_sessions == 7
    monkeypatch.setenv("PEAKS_CLI_MAX_SESSIONS", "2")
    assert read_settings(tmp_path).max_sessions == 2
    for wrong in ("0", "-1", "two", "1.5", "9" * 5000, "²"):
        monkeypatch.setenv("PEAKS_CLI_MAX_SESSIONS", wrong)
        with pytest.raises(InvalidOptionError, match="PEAKS_CLI_MAX_SESSIONS"):
            read_settings(tmp_path)


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[tool.peaks]\ncli_max_sessions = 0", "cli_max_sessions is 0"),
        ("[tool.peaks]\ncli_max_sessions = true", "cli_max_sessions is True"),
        ("[tool.peaks]\ncli_max_sessions = '3'", "cli_max_sessions is '3'"),
        ("[tool]\npeaks = 3", "tool.peaks is not a table"),
        ("[tool.peaks]\nnames = 3", "tool.peaks.names is not a table"),
        ("[tool.peaks.names]\nprefix = []", "names.prefix is not known; there are prefixes, reserved"),
        ("[tool.peaks.names]\nprefixes = []", "prefixes is empty"),
        ("[tool.peaks.names]\nprefixes = 'probe'", "prefixes is not a list"),
        ("[tool.peaks.names]\nprefixes = [1]", "prefixes is not a list of strings"),
        ("[tool.peaks.names]\nprefixes = ['Probe']", "'Probe' is not a-z"),
        ("[tool.peaks.names]\nprefixes = ['a-b']", "'a-b' is not a-z"),
        ("[tool.peaks.names]\nreserved = [true]", "reserved is not a list of strings"),
        ("[tool.peaks.names]\nmax_length = 37", "max_length is 37; at most 36"),
        ("[tool.peaks.names]\nmax_length = 5", "less than min_length = 6"),
        ("[tool.peaks.names]\nmin_length = 0", "min_length is 0"),
        ("[tool.peaks.names\n", "is not TOML"),
    ],
)
def test_a_wrong_setting_names_file_and_key(tmp_path: Path, toml: str, says: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        read_settings(project_with(tmp_path, toml))
    assert says in caught.value.message
    assert "pyproject.toml" in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_no_text_or_no_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.peaks]\nx = '\xff'")
    with pytest.raises(InvalidOptionError, match="is not TOML"):
        read_settings(tmp_path)
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(InvalidOptionError, match="cannot be read"):
        read_settings(tmp_path)


# The verb


def test_the_verb_prints_the_name(
    peaks: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert peaks("name", "composer", "checkout", "3", "1", cwd=tmp_path).stdout == "composer-checkout-3-c1\n"
    project_with(tmp_path, '[tool.peaks.names]\nprefixes = ["bd"]\n')
    answer = peaks("name", "bd", "cart", "--project", str(tmp_path), "--json")
    assert json.loads(answer.stdout)["name"] == "bd-cart"
    refused = peaks("name", "probe", "cart", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("NAME_PREFIX: ")
    assert peaks("name", "bd", "cart", "-1", cwd=tmp_path).returncode == 2
