"""Which terminal this is: the first design's rule to the letter, and where ids that look alike are told apart."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_peaks.errors import InvalidNameError
from pytest_peaks.hosting import sessions, terminals
from pytest_peaks.hosting.sessions import Hosted
from pytest_peaks.hosting.terminals import Terminal, check_terminal_id, clean, current, hashed
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record, now_iso

RULE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")


def of(**environ: str) -> Terminal:
    return current(None, environ, lambda: 4711)


def session(terminal: Terminal, name: str, port: int) -> Hosted:
    """A live session of `terminal`."""
    record = Record(
        name,
        port,
        "chromium",
        "",
        now_iso(),
        ProcessIdentity.of_self(),
        kind="hosted",
        terminal=terminal.mark,
    )
    dirs = ProjectDirs(Path("/nowhere"), Path("/nowhere/.peaks"))
    return Hosted(dirs, record, "alive")


# The rule


@pytest.mark.parametrize(
    ("pid", "tty", "expected"),
    [
        (12345, "/dev/pts/0", "tty-234d0dc18df172f1"),
        (99999, None, "tty-c5532ca7722793a7"),
        (12345, "", "tty-52830578e342d2f0"),  # empty is not the same as none
    ],
)
def test_the_hash_of_the_first_design(pid: int, tty: str | None, expected: str) -> None:
    assert hashed(pid, tty) == expected
    environ = {} if tty is None else {"SSH_TTY": tty}
    assert current(None, environ, lambda: pid).id == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w0t0p0:AB-CD", "w0t0p0_AB-CD"),
        (r"a/b\c d@e", "a_b_c_d_e"),
        ("é/ü", "___"),
        ("1.2-3_4", "1.2-3_4"),
        # Beyond the first design: a directory, its parent, a hidden file.
        (".", "_"),
        ("..", "_."),
        (".x", "_x"),
        ("../../etc/passwd", "_._.._etc_passwd"),
        # A character outside of the basic plane is two UTF-16 units.
        ("😀", "__"),
        ("x" * 63 + "😀", "x" * 63 + "_"),
        ("x" * 65, "x" * 64),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    assert clean(text) == expected


@settings(deadline=None)
@given(st.text(min_size=1))
def test_a_cleaned_text_is_a_plain_file_name_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert RULE.fullmatch(cleaned)
    assert clean(cleaned) == cleaned
    assert len(cleaned) == min(64, len(text.encode("utf-16-le", "surrogatepass")) // 2)
    assert check_terminal_id(cleaned) == cleaned


@settings(deadline=None)
@given(st.text(alphabet="abcXYZ019_-", min_size=1, max_size=64))
def test_a_clean_text_is_not_changed(text: str) -> None:
    assert clean(text) == text


# The order of the sources

SOURCES = {
    "PEAKS_TERMINAL_ID": "chosen",
    "TERM_SESSION_ID": "w0t0p0:AB",
    "WT_SESSION": "a b",
    "SSH_TTY": "/dev/pts/0",
}


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        ([], "chosen"),
        (["PEAKS_TERMINAL_ID"], "w0t0p0_AB"),
        (["PEAKS_TERMINAL_ID", "TERM_SESSION_ID"], "wt-a_b"),
        (["PEAKS_TERMINAL_ID", "TERM_SESSION_ID", "WT_SESSION"], hashed(4711, "/dev/pts/0")),
        (list(SOURCES), hashed(4711, None)),
    ],
)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_the_first_source_that_says_something_is_taken(without: list[str], expected: str, how: str) -> None:
    environ = {name: "" if name in without else value for name, value in SOURCES.items()}
    if how == "missing" or "SSH_TTY" in without:
        environ = {name: value for name, value in environ.items() if value}
    assert of(**environ).id == expected
    assert of(**environ).typed is (expected == "chosen")


def test_what_is_typed_wins_over_everything() -> None:
    terminal = current("typed", SOURCES, lambda: 4711)
    assert (terminal.id, terminal.typed, terminal.certain) == ("typed", True, True)


def test_without_a_terminal_the_parent_stands_in_and_the_id_is_uncertain() -> None:
    terminal = current(None, {}, lambda: None)
    assert terminal.id == hashed(os.getppid(), None)
    assert not terminal.certain
    assert of().certain
    assert current(None, {"TERM_SESSION_ID": "x"}, lambda: None).certain


def test_a_process_outside_of_any_terminal_has_no_session_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError

    with monkeypatch.context() as patched:  # nothing else may find os.open like that
        patched.setattr(terminals.os, "open", refuse)
        assert terminals.session_leader() is None


# What a user may type


REFUSED = (
    *("", ".", "..", ".x", "a/b", "../../x", "a b", "a\\b", "x\n", "\0", "é", "x" * 65),
    *("x@y", "x@", "@8940", "x@8940@8941", "x@894000", "x@٨٩٤٠"),
)


@pytest.mark.parametrize("text", REFUSED)
def test_an_id_that_could_be_a_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError) as refused:
        current(text, {})
    assert refused.value.code == "INVALID_NAME"
    assert "peaks playwright ls" in refused.value.hint
    if text:
        with pytest.raises(InvalidNameError):
            current(None, {"PEAKS_TERMINAL_ID": text})


@pytest.mark.parametrize(
    "text", ["x", "a.b", "_", "-", "x" * 64, "tty-234d0dc18df172f1", "x@8940", "x@65535"]
)
def test_an_id_that_ls_shows_is_taken_as_it_is(text: str) -> None:
    assert current(text, {}).id == text


@settings(deadline=None)
@given(st.text())
def test_whatever_is_typed_is_refused_or_a_plain_file_name(text: str) -> None:
    try:
        terminal = current(text, {})
    except InvalidNameError:
        return
    assert RULE.fullmatch(terminal.id.partition("@")[0])
    assert Path("/folder", f"{terminal.id}.json").parent == Path("/folder")


# Ids that only cleaning made equal


def test_terminals_whose_names_look_alike_have_sessions_of_their_own() -> None:
    slash, space = of(TERM_SESSION_ID="a/b"), of(TERM_SESSION_ID="a b")
    assert slash.id == space.id == "a_b"
    found: list[Hosted] = []

    first = sessions.first_name(found, slash)
    assert first == "a_b"
    found.append(session(slash, first, 8931))

    second = sessions.first_name(found, space)
    assert second == space.distinct_id
    assert second != first
    found.append(session(space, second, 8932))

    assert sessions.of_terminal(found, slash) == [found[0]]
    assert sessions.of_terminal(found, space) == [found[1]]
    assert sessions.choose(found, slash, None) is found[0]
    assert sessions.choose(found, space, None) is found[1]
    # Typed as ls shows them, from a third terminal.
    assert sessions.choose(found, current("a_b", {}), None) is found[0]
    assert sessions.choose(found, current(second, {}), None) is found[1]

    # The first one's end takes nothing from the second.
    del found[0]
    assert sessions.of_terminal(found, space) == found
    assert sessions.of_terminal(found, slash) == []


def test_a_name_that_needed_no_cleaning_is_told_apart_as_well() -> None:
    plain, cleaned = of(TERM_SESSION_ID="a_b"), of(TERM_SESSION_ID="a/b")
    found = [session(cleaned, "a_b", 8931)]
    assert sessions.of_terminal(found, plain) == []
    assert sessions.first_name(found, plain) == plain.distinct_id


def test_equal_beginnings_of_long_ids_are_told_apart() -> None:
    one, other = of(TERM_SESSION_ID="x" * 64 + "1"), of(TERM_SESSION_ID="x" * 64 + "2")
    assert one.id == other.id
    found = [session(one, one.id, 8931)]
    assert sessions.of_terminal(found, other) == []
    assert sessions.first_name(found, other) == other.distinct_id
    assert len(other.distinct_id) <= 64


@settings(deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_any_two_terminals_have_two_names(one: str, other: str) -> None:
    first, second = of(TERM_SESSION_ID=one), of(TERM_SESSION_ID=other)
    found = [session(first, sessions.first_name([], first), 8931)]
    name = sessions.first_name(found, second)
    assert check_terminal_id(name) == name
    assert (name == found[0].name) == (one == other)
    found.append(session(second, name, 8932))
    if one != other:
        assert sessions.of_terminal(found, second) == [found[1]]


def test_the_mark_does_not_tell_what_it_was_made_from() -> None:
    terminal = of(TERM_SESSION_ID="secret")
    assert terminal.mark == hashlib.sha256(b"secret").hexdigest()[:16]


# Further sessions of one terminal


def test_further_sessions_of_a_terminal_are_found_by_its_id_and_by_their_own() -> None:
    mine = of(TERM_SESSION_ID="mine")
    found = [session(mine, "mine", 8931), session(mine, "mine@8940", 8940)]
    assert sessions.of_terminal(found, mine) == found
    assert sessions.choose(found, current("mine@8940", {}), None) is found[1]
    assert sessions.choose(found, mine, 8940) is found[1]
    with pytest.raises(sessions.NoSessionError, match=r"mine on port 8931, mine@8940 on port 8940"):
        sessions.choose(found, mine, None)


def test_a_port_of_another_terminal_is_taken_only_if_no_terminal_was_named() -> None:
    mine, theirs = current("mine", {}), current("theirs", {})
    found = [session(mine, "mine", 8931), session(theirs, "theirs", 8932)]
    assert sessions.choose(found, mine, 8932, of_any=True) is found[1]
    with pytest.raises(sessions.NoSessionError, match="there are: mine on port 8931"):
        sessions.choose(found, mine, 8932)


def test_without_a_terminal_the_only_live_session_is_meant() -> None:
    nowhere = current(None, {}, lambda: None)
    mine = session(of(TERM_SESSION_ID="mine"), "mine", 8931)
    assert sessions.choose([mine], nowhere, None) is mine
    with pytest.raises(sessions.NoSessionError, match="no playwright session of terminal tty-"):
        sessions.choose([], nowhere, None)
    with pytest.raises(sessions.NoSessionError, match="more than one session: mine on port 8931, other on"):
        sessions.choose([mine, session(of(TERM_SESSION_ID="other"), "other", 8932)], nowhere, None)
    # A terminal that has none does not get another one's.
    with pytest.raises(sessions.NoSessionError, match="there are: mine on port 8931"):
        sessions.choose([mine], of(), None)
