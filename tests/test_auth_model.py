"""What a saved login is, where it is kept, and when it is over: without a browser."""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_peaks.auth import crypto, login, store
from pytest_peaks.auth.describe import contents, described, row
from pytest_peaks.auth.freshness import ago, earliest_expiry, has_live_login, stale_reason, that_matter
from pytest_peaks.auth.login import Ticket, once
from pytest_peaks.auth.model import Account, State, check_state, cookie_key, parse_state
from pytest_peaks.auth.profile import Noted, keeps_its_own
from pytest_peaks.auth.settings import AuthSettings, read_auth_settings
from pytest_peaks.auth.source import Login
from pytest_peaks.auth.store import Store, account_label, keyed_accounts, variable_of
from pytest_peaks.errors import (
    InvalidNameError,
    InvalidOptionError,
    InvalidStateError,
    LoginFailedError,
    NotWritableError,
    PeaksError,
    StateKeyError,
    StateLockedError,
    StateNotFoundError,
)
from pytest_peaks.session import spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs

SECRET = "canary-2b1f"
NOW = 1_800_000_000.0


def cookie(name: str = "sid", **more: Any) -> dict[str, Any]:
    return {"name": name, "value": SECRET, "domain": "shop.example", "path": "/", "expires": -1, **more}


def state(*cookies: dict[str, Any], **extras: Any) -> State:
    data: dict[str, Any] = {"cookies": list(cookies) or [cookie()], "origins": []}
    return check_state({**data, "peaks": {"v": 1, **extras}} if extras else data, "it")


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    (tmp_path / "project").mkdir()
    return Store(ProjectDirs.locate(tmp_path / "project"))


# Reading

WHOLE = {
    "cookies": [
        cookie(httpOnly=True, secure=False, sameSite="Lax", partitionKey="https://top.example"),
        {"name": "by-url", "value": "", "url": "https://shop.example/"},
    ],
    "origins": [
        {
            "origin": "https://shop.example",
            "localStorage": [{"name": "k", "value": SECRET}],
            "indexedDB": [{"name": "db", "version": 1, "stores": []}],
            "opfs": [{"path": "/a", "data": ""}],
        }
    ],
    "credentials": [{"rpId": "shop.example", "privateKey": SECRET}],
    "peaks": {
        "v": 1, "savedAt": "2027-01-15T08:00:00Z", "name": "admin", "url": f"https://shop.example/?t={SECRET}#{SECRET}",
        "important": [["sid", "shop.example", "/"]], "lost": ["Cache API: c (https://shop.example)"],
        "sessionStorage": {"https://shop.example": {"token": SECRET}},
        "later": "fields are kept",
    },
    "unknown": {"deep": [1, None, SECRET]},
}  # fmt: skip

BAD: list[tuple[object, str]] = [
    ("", "is empty"),
    (" \n", "is empty"),
    ('{"cookies": [', "is no JSON, or is cut off (at line 1 column 14)"),
    (f'{{"cookies": "{SECRET}', "is no JSON, or is cut off (at line 1 column 13)"),
    ("[" * 100_000, "is nested too deeply"),
    ('{"cookies": ' + "9" * 5000 + "}", "is no JSON, or is cut off (at somewhere)"),
    (f"# Netscape HTTP Cookie File\nshop\t{SECRET}", "is no JSON"),
    ([cookie()], "it is a list, such as other tools export"),
    (None, "it is no object"),
    ({}, "cookies is missing, not a list"),
    ({"cookies": []}, "origins is missing, not a list"),
    ({"cookies": {}, "origins": []}, "cookies is an object, not a list"),
    ({"cookies": [SECRET], "origins": []}, "cookies[0] is text, not an object"),
    ({"cookies": [cookie(), {**cookie(), "domain": ""}], "origins": []}, "cookies[1] has no domain"),
    ({"cookies": [{"name": "n", "value": "v", "domain": "d"}], "origins": []}, "cookies[0] has no path"),
    ({"cookies": [{**cookie(), "value": 7}], "origins": []}, "cookies[0].value is a number, not text"),
    ({"cookies": [{"value": ""}], "origins": []}, "cookies[0].name is missing, not text"),
    ({"cookies": [cookie(domain=7)], "origins": []}, "cookies[0].domain is a number, not text"),
    ({"cookies": [cookie(url=f"http://[{SECRET}")], "origins": []}, "cookies[0].url is no http or https address"),
    ({"cookies": [cookie(expires="soon")], "origins": []}, "cookies[0].expires is text, not a number"),
    ({"cookies": [cookie(expires=NOW * 1000)], "origins": []}, "no Unix time in seconds (milliseconds?)"),
    ({"cookies": [cookie(expires=-2)], "origins": []}, "cookies[0].expires is no Unix time in seconds"),
    ({"cookies": [cookie(expires=float("nan"))], "origins": []}, "cookies[0].expires is no Unix time"),
    ({"cookies": [cookie(expires=True)], "origins": []}, "cookies[0].expires is a boolean"),
    ({"cookies": [cookie(sameSite="no_restriction")], "origins": []}, "sameSite is none of Strict, Lax, None"),
    ({"cookies": [cookie(httpOnly="yes")], "origins": []}, "httpOnly is text, not true or false"),
    ({"cookies": [], "origins": [{"origin": SECRET, "localStorage": []}]}, "origins[0].origin is no http or"),
    ({"cookies": [], "origins": [{"origin": f"http://[{SECRET}", "localStorage": []}]}, "origins[0].origin is no"),
    ({"cookies": [], "origins": [{"origin": "file:///etc", "localStorage": []}]}, "origins[0].origin is no http"),
    ({"cookies": [], "origins": [{"origin": "http://a"}]}, "origins[0].localStorage is missing, not a list"),
    (
        {"cookies": [], "origins": [{"origin": "http://a", "localStorage": [{"name": SECRET}]}]},
        "origins[0].localStorage[0] has no name and value that are text",
    ),
    ({"cookies": [], "origins": [{"origin": "http://a", "localStorage": [], "opfs": [1]}]}, ".opfs is no list"),
    ({"cookies": [], "origins": [], "credentials": 7}, "credentials is no list of passkeys"),
    ({"cookies": [], "origins": [], "peaks": []}, "peaks is a list, not an object"),
    ({"cookies": [], "origins": [], "peaks": {}}, "peaks.v is not 1"),
    ({"cookies": [], "origins": [], "peaks": {"v": 2}}, "a later pytest-peaks wrote it (v 2)"),
    ({"cookies": [], "origins": [], "peaks": {"v": 1, "sessionStorage": {"http://a": {"k": 1}}}}, "sessionStorage"),
    ({"cookies": [], "origins": [], "peaks": {"v": 1, "sessionStorage": {SECRET: {}}}}, "sessionStorage"),
    ({"cookies": [], "origins": [], "peaks": {"v": 1, "important": [["sid"]]}}, "peaks.important is no list"),
    ({"cookies": [], "origins": [], "peaks": {"v": 1, "lost": 5}}, "peaks.lost is no list of texts"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), BAD, ids=range(len(BAD)))
def test_what_is_no_state_is_refused_with_its_place_and_reason_and_without_its_values(
    content: object, reason: str
) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(InvalidStateError) as seen:
        parse_state(text, "/the/file.json")
    assert seen.value.message.startswith("/the/file.json ")
    assert reason in seen.value.message
    assert (
        SECRET not in f"{seen.value} {seen.value!r} {seen.value.__cause__} {seen.value.__suppress_context__}"
    )
    assert seen.value.__suppress_context__ or seen.value.__context__ is None


def test_a_state_of_another_tool_and_one_of_a_later_playwright_are_taken_whole() -> None:
    read = parse_state("\ufeff" + json.dumps(WHOLE), "it")
    assert read == WHOLE
    assert parse_state(json.dumps(WHOLE).encode("utf-8-sig"), "it") == WHOLE
    assert "peaks" not in read.plain
    assert read.plain["unknown"] == WHOLE["unknown"]
    assert parse_state('{"cookies": [], "origins": []}', "it").saved_at is None


def test_origins_with_nothing_in_them_are_not_replayed_since_each_costs_a_navigation() -> None:
    full = {"origin": "http://a", "localStorage": [{"name": "k", "value": "v"}]}
    read = check_state({"cookies": [], "origins": [{"origin": "http://b", "localStorage": []}, full]}, "it")
    assert read.plain.origins == [full]
    assert len(read.origins) == 2


def test_no_value_is_in_what_python_shows_of_a_state_or_an_account() -> None:
    whole = parse_state(json.dumps(WHOLE), "it")
    account = Account({"name": "alice", "password": SECRET})
    held = Login("admin", whole, AuthSettings(), account, "")
    for shown in (
        repr(whole),
        str(whole),
        f"{whole}",
        f"{[whole]}",
        repr(whole.plain),
        repr(held),
        repr(account),
    ):
        assert SECRET not in shown
    assert repr(whole) == "<State 2 cookies, 1 origins>"
    assert account["password"] == SECRET


def test_describing_a_state_names_everything_and_shows_no_value() -> None:
    whole = parse_state(json.dumps(WHOLE), "it")
    shown = described(whole)
    assert SECRET not in json.dumps(shown) + contents(whole)
    assert shown["url"] == "https://shop.example/"
    assert shown["origins"][0] == {
        "origin": "https://shop.example", "localStorage": ["k"], "indexedDB": ["db"], "opfs": ["/a"],
        "sessionStorage": ["token"],
    }  # fmt: skip
    assert contents(whole) == (
        "2 cookies, localStorage of 1 origin, IndexedDB of 1 origin, OPFS of 1 origin, sessionStorage of 1 origin, "
        "1 passkey"
    )
    assert contents(check_state({"cookies": [], "origins": []}, "it")) == "0 cookies"


KEYS = st.sampled_from(
    """cookies origins peaks credentials name value domain path url
    expires sameSite httpOnly origin localStorage indexedDB opfs v savedAt
    sessionStorage important lost account stores""".split()  # noqa: SIM905 - shorter
)
# Whatever is secret has the mark; numbers and short texts are in any message.
LEAVES = (
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8).map(lambda t: SECRET + t)
)
URLS = st.sampled_from(
    ["http://a", "https://b.example:99", f"http://[{SECRET}", f"ftp://{SECRET}", "http://a:x"]
)
ANY_JSON = st.recursive(
    LEAVES | URLS | st.sampled_from(["Lax", "/", "2027-01-01", "http://a:0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | LEAVES.map(str), inner, max_size=6),
    max_leaves=40,
)
STATES = st.fixed_dictionaries(
    {
        "cookies": ANY_JSON | st.lists(st.dictionaries(KEYS, LEAVES | URLS, max_size=7), max_size=3),
        "origins": ANY_JSON | st.lists(st.dictionaries(KEYS, ANY_JSON, max_size=5), max_size=3),
    },
    optional={"peaks": ANY_JSON | st.dictionaries(KEYS, ANY_JSON), "credentials": ANY_JSON},
)
FAST = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def use(read: State) -> None:
    """All that is done with a state; whatever was let in has to bear it."""
    assert isinstance(read.version, str)
    stale_reason(read, "it", max_age=1.0, now=NOW)
    earliest_expiry(read)
    has_live_login(read, [cookie()], NOW)
    contents(read)
    json.dumps(described(read))
    row(store.Entry("it", "", Path("it"), False, read), NOW)
    [cookie_key(entry) for entry in read.plain.cookies]


@FAST
@given(ANY_JSON | STATES)
def test_any_json_is_a_state_that_can_be_used_or_an_error_that_quotes_nothing(data: object) -> None:
    text = json.dumps(data)
    try:
        read = parse_state(text, "it")
    except InvalidStateError as error:
        said = f"{error}{error.hint}"
    else:
        said, _ = "", use(read)
    assert SECRET not in said


@FAST
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_a_state_or_an_error(data: bytes | str) -> None:
    with pytest.raises(InvalidStateError):
        parse_state(data, "it")


# Freshness


def test_a_login_ends_with_the_first_of_the_cookies_that_matter() -> None:
    ended = cookie("sid", expires=NOW - 3 * 3600, httpOnly=True)
    later = cookie("refresh", expires=NOW + 9999, httpOnly=True)
    visits = cookie("_ga", expires=NOW - 60)
    reason = "auth 'admin' expired 3 h ago: cookie sid of shop.example"
    assert stale_reason(state(ended, later), "admin", max_age=None, now=NOW) == reason
    dotted = {**ended, "domain": ".shop.example"}
    assert stale_reason(state(dotted), "admin", max_age=None, now=NOW) == reason
    assert stale_reason(state(later, visits), "admin", max_age=None, now=NOW) is None, "a visitor counter"
    assert stale_reason(state(visits), "admin", max_age=None, now=NOW) is not None, (
        "where there is nothing else"
    )
    noted = [["refresh", "shop.example", "/"]]
    assert stale_reason(state(ended, later, important=noted), "admin", max_age=None, now=NOW) is None
    assert [entry["name"] for entry in that_matter(state(ended, later, important=noted))] == ["refresh"]
    soon = cookie("sid", expires=NOW + 2)
    assert (
        stale_reason(state(soon), "x", max_age=None, now=NOW)
        == "auth 'x' is about to expire: cookie sid of shop.example"
    )
    assert stale_reason(state(cookie("sid")), "x", max_age=None, now=NOW) is None, "of the browser's session"
    assert earliest_expiry(state(later, cookie("sid", expires=NOW + 5, httpOnly=True))) == NOW + 5
    assert earliest_expiry(state(cookie())) is None


def test_a_login_is_older_than_its_max_age_by_its_own_word_or_its_files() -> None:
    saved = state(cookie(), savedAt="2027-01-15T08:00:00Z")
    when = saved.saved_at.timestamp() if saved.saved_at else 0
    assert stale_reason(saved, "a", max_age=3600, now=when + 3599) is None
    assert (
        stale_reason(saved, "a", max_age=3600, now=when + 7300)
        == "auth 'a' is 2 h old, older than its max_age of 1 h"
    )
    plain = state(cookie())
    assert stale_reason(plain, "a", max_age=1, now=NOW) is None, "nothing says how old it is"
    plain.modified = NOW - 100
    assert "is 1 min old" in str(stale_reason(plain, "a", max_age=1, now=NOW))


@given(st.floats(0, 1e9))
def test_time_spans_are_said_in_one_unit(seconds: float) -> None:
    number, unit = ago(seconds).split()
    length = {"s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
    assert int(number) * length <= seconds < (int(number) + 1) * length


def test_a_profile_keeps_its_login_unless_it_is_anothers_or_older_than_the_file() -> None:
    wanted, no = state(cookie(), savedAt="2027-01-15T08:00:00Z"), lambda: False
    mine = Noted("admin@", wanted.version, 100.0, ())
    there = [cookie(value="of the browser")]
    assert keeps_its_own(wanted, mine, None, there, no), "nobody knows whose: it is kept"
    assert keeps_its_own(wanted, mine, mine, there, no)
    assert not keeps_its_own(wanted, mine, mine, [], no), "logged out"
    assert not keeps_its_own(wanted, mine, mine, [cookie(expires=5)], no), "over"
    assert not keeps_its_own(wanted, mine, None, [cookie("other")], no)
    assert keeps_its_own(wanted, mine, None, [], lambda: True), "the project's own check says yes"
    assert not keeps_its_own(wanted, mine, Noted("bob@", "v", 1.0, ()), there, lambda: True), "another's"
    assert not keeps_its_own(wanted, mine, Noted("admin@", "v", 99.0, ()), there, no), "the file is newer"
    assert keeps_its_own(wanted, mine, Noted("admin@", "v", 101.0, ()), there, no), "the file is older"
    assert not keeps_its_own(wanted, mine, Noted("admin@", "", 100.0, ()), there, no), "half of one"


# Settings


def test_settings_come_from_the_projects_file_and_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    assert read_auth_settings(tmp_path, "admin") == AuthSettings()
    file.write_text(
        "[tool.peaks.auth.admin]\nmax_age = '8h'\nper_slot = true\nwrite_back = true\naccounts = 'wait'\nwait = 90\n"
        "overwrite = true\nurl = 'http://a'\n"
    )
    assert read_auth_settings(tmp_path, "admin") == AuthSettings(
        max_age=8 * 3600.0,
        per_slot=True,
        write_back=True,
        accounts="wait",
        wait=90.0,
        overwrite=True,
        url="http://a",
    )
    assert read_auth_settings(tmp_path, "other") == AuthSettings()
    for bad, reason in (
        ("[tool.peaks]\nauth = 3", "auth is not a table"),
        ("[tool.peaks.auth]\nadmin = 3", "auth.admin is not a table"),
        ("[tool.peaks.auth.admin]\nmaxage = 3", "admin.maxage is not known; there are max_age"),
        ("[tool.peaks.auth.admin]\nper_slot = 1", "admin.per_slot is not true or false"),
        ("[tool.peaks.auth.admin]\nurl = 1", "admin.url is not text"),
        ("[tool.peaks.auth.admin]\naccounts = 'share'", "admin.accounts is none of error, wait"),
        ("[tool.peaks.auth.admin]\nwrite_back = true", "admin.write_back needs per_slot"),
        ("[tool.peaks.auth.admin", "is not TOML"),
    ):
        file.write_text(bad)
        with pytest.raises(InvalidOptionError, match=r"pyproject\.toml") as seen:
            read_auth_settings(tmp_path, "admin")
        assert reason in seen.value.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("8h", 28800),
        ("30min", 1800),
        ("30m", 1800),
        ("90", 90),
        ("90s", 90),
        ("1.5h", 5400),
        (" 2 d ", 172800),
        (7, 7),
    ],
)
def test_durations(value: object, seconds: float) -> None:
    assert AuthSettings().with_({"max_age": value}, "it").max_age == seconds


@pytest.mark.parametrize(
    "value", ["", "h", "-1h", "0", 0, -3, True, None, [], "1 week", "1e3", "٣h", float("nan")]
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"it\.max_age is .*, not a time span such as 8h"):
        AuthSettings().with_({"max_age": value}, "it")


# The store


def test_files_are_private_whatever_the_umask(kept: Store) -> None:
    before = os.umask(0)
    try:
        file = kept.save("admin", state())
        kept.save("admin", state(), "bob-1")
    finally:
        os.umask(before)
    modes = {
        path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in [kept.folder, *kept.folder.iterdir()]
    }
    assert modes == {"auth": "0o700", "admin.json": "0o600", "admin@bob-1.json": "0o600"}
    assert stat.S_IMODE(kept.folder.parent.stat().st_mode) & 0o022 == 0, (
        "nobody else can put another folder there"
    )
    assert "*" in (kept.folder.parent / ".gitignore").read_text().splitlines()
    assert kept.load("admin") == state()
    assert file == kept.folder / "admin.json"
    kept.folder.chmod(0o755)
    kept.save("admin", state())
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700, "and made so again"


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/b", "A", "x" * 41, "nul", "a@b", ".x", "-x", "x\n", 5, None]
)
def test_a_name_never_becomes_another_path(kept: Store, name: Any) -> None:
    for use in (kept.path, kept.load, kept.remove, lambda name: kept.save(name, state())):
        with pytest.raises(InvalidNameError):
            use(name)


def in_the_way(kind: str, path: Path, elsewhere: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        elsewhere.write_text("theirs")
        path.symlink_to(elsewhere)
    elif kind == "dangling":
        path.symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text(json.dumps(state()))
        os.chown(path, 12345, 12345)


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory", "foreign"])
def test_nothing_is_read_from_or_written_through_what_is_no_file_of_ours(
    kept: Store, tmp_path: Path, kind: str
) -> None:
    if kind == "foreign" and os.getuid() != 0:
        pytest.skip("only root can make a file somebody else's")
    path, elsewhere = kept.path("admin"), tmp_path / "elsewhere"
    in_the_way(kind, path, elsewhere)
    with pytest.raises(InvalidStateError, match=str(path)):  # and returns: a FIFO would hang
        kept.load("admin")
    [entry] = kept.entries()
    assert entry.problem
    assert entry.state is None
    if kind != "foreign":
        with pytest.raises(InvalidStateError, match="is there already and is no regular file"):
            kept.save("admin", state())
    if kind == "link":
        assert elsewhere.read_text() == "theirs"
    assert kind != "dangling" or not elsewhere.exists()
    if kind == "directory":
        with pytest.raises(InvalidStateError, match="is a directory"):
            kept.remove("admin")
    else:
        kept.remove("admin")
        assert not os.path.lexists(path)
    assert kind != "link" or elsewhere.read_text() == "theirs"


def test_the_folder_itself_is_no_link(kept: Store, tmp_path: Path) -> None:
    kept.folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    kept.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotWritableError, match="is not a directory of yours"):
        kept.save("admin", state())
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_is_too_large_is_not_read(kept: Store) -> None:
    path = kept.save("admin", state())
    with path.open("r+b") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(InvalidStateError, match="has 50 MB; a login has at most 32 MB"):
        kept.load("admin")


def test_what_is_saved_is_listed_and_removed(kept: Store) -> None:
    assert kept.entries() == []
    kept.save("bob", state())
    kept.save("admin", state(), "slot0")
    (kept.folder / "bad.json").write_text("{")
    (kept.folder / ".tmp-1.part").write_text("")
    (kept.folder / "notes.txt").write_text("")
    found = [
        (entry.name, entry.account, entry.state is None, bool(entry.problem)) for entry in kept.entries()
    ]
    assert found == [("admin", "slot0", False, False), ("bad", "", True, True), ("bob", "", False, False)]
    kept.remove("bob")
    with pytest.raises(StateNotFoundError, match="there is no saved login 'bob'; looked for"):
        kept.remove("bob")
    with pytest.raises(StateNotFoundError):
        kept.load("bob")


WRITER = """
import sys
from pathlib import Path
from pytest_peaks.auth.model import State
from pytest_peaks.auth.store import Store
from pytest_peaks.session.paths import ProjectDirs
store = Store(ProjectDirs.locate(Path(sys.argv[1])))
mark = sys.argv[2] * 200_000
for turn in range(int(sys.argv[3])):
    store.save("admin", State({"cookies": [], "origins": [], "mark": mark}))
    read = store.load("admin")
    assert len(set(read["mark"])) == 1 and len(read["mark"]) == 200_000, "torn"
"""


def test_two_hundred_writes_and_reads_at_once_never_give_a_torn_file(kept: Store) -> None:
    root = kept.folder.parents[1]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), mark, "25"], stderr=subprocess.PIPE, text=True
        )
        for mark in "abcdefgh"
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=120)
        assert writer.returncode == 0, said
    assert [path.name for path in kept.folder.iterdir()] == ["admin.json"], "and no part of one is left"


def test_a_write_that_fails_keeps_what_was_there(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save("admin", state())

    def no(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no)
    with pytest.raises(NotWritableError, match="No space left on device"):
        kept.save("admin", state(cookie("other")))
    assert kept.load("admin") == state()
    assert [path.name for path in kept.folder.iterdir()] == ["admin.json"]


# From the environment


def test_a_login_comes_from_the_environment_as_json_or_in_base64(
    kept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.save("the-admin", state(cookie("of-the-file")))
    text = json.dumps(state())
    assert variable_of("the-admin") == "PEAKS_AUTH_THE_ADMIN"
    for given_text in (
        text,
        f"\n {text}\n",
        base64.b64encode(text.encode()).decode(),
        base64.encodebytes(text.encode()).decode(),
    ):
        monkeypatch.setenv("PEAKS_AUTH_THE_ADMIN", given_text)
        assert kept.load("the-admin") == state()
    assert kept.kept("the-admin").cookies[0]["name"] == "of-the-file"
    with pytest.raises(StateNotFoundError):
        kept.load("the-admin", "slot0")
    monkeypatch.setenv("PEAKS_AUTH_THE_ADMIN", "")
    assert kept.load("the-admin").cookies[0]["name"] == "of-the-file"
    for bad in (SECRET, "{" + SECRET, base64.b64encode(SECRET.encode()).decode(), "[]", "bm8=", '"x"'):
        monkeypatch.setenv("PEAKS_AUTH_THE_ADMIN", bad)
        with pytest.raises(InvalidStateError, match="INVALID_STATE: PEAKS_AUTH_THE_ADMIN ") as seen:
            kept.load("the-admin")
        assert SECRET not in str(seen.value)


# Encryption


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    def put(value: str | None) -> None:
        if value is None:
            monkeypatch.delenv(crypto.KEY_ENV, raising=False)
        else:
            monkeypatch.setenv(crypto.KEY_ENV, value)

    put("a passphrase")
    yield put
    crypto.receive({})
    crypto._from_descriptor.cache_clear()


KEYS_OF_EACH_KIND = ["a passphrase", "x", "00" * 32, base64.b64encode(bytes(range(32))).decode()]


@pytest.mark.parametrize("secret", [*KEYS_OF_EACH_KIND, base64.urlsafe_b64encode(b"\xff" * 32).decode()])
def test_what_is_saved_with_a_key_is_opened_by_it_alone(
    kept: Store, key: Callable[[str | None], None], secret: str
) -> None:
    key(secret)
    path = kept.save("admin", state())
    written = path.read_bytes()
    assert SECRET.encode() not in written
    assert b"shop.example" not in written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept.load("admin") == state()
    key(secret + "\n")
    assert kept.load("admin") == state(), "as `export KEY=$(cat file)` would have it"
    [entry] = kept.entries()
    assert entry.encrypted
    assert entry.state == state()
    for other in (*KEYS_OF_EACH_KIND, None):
        if other == secret:
            continue
        key(other)
        with pytest.raises(StateLockedError, match=str(path)) as seen:
            kept.load("admin")
        assert ("no key is set" in seen.value.message) == (other is None)
        [entry] = kept.entries()
        assert entry.encrypted
        assert entry.problem == seen.value.message
    assert path.read_bytes() == written


def test_a_cut_changed_or_swapped_file_is_an_error_and_is_kept(
    kept: Store, key: Callable[[str | None], None]
) -> None:
    path = kept.save("admin", state())
    whole = path.read_bytes()
    other = kept.save("bob", state(cookie("other"))).read_bytes()
    assert other != whole
    assert kept.save("admin", state()).read_bytes() != whole, "a nonce of its own each time"
    for damaged in (
        *(whole[:length] for length in range(0, len(whole), 7)),
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 5)),
        other,
    ):
        if damaged.strip() == whole.strip():
            continue
        path.write_bytes(damaged)
        try:
            read = kept.load("admin")
        except (StateLockedError, InvalidStateError) as error:
            said = error.message
        else:  # a bit of base64 that means nothing, or of the envelope's spaces
            said = str(path)
            assert read == state()
        assert str(path) in said
        assert path.read_bytes() == damaged


def test_no_byte_of_the_ciphertext_can_be_changed(key: Callable[[str | None], None]) -> None:
    envelope = json.loads(crypto.encrypt(json.dumps(state()), "admin"))
    for part in ("salt", "nonce", "data"):
        raw = base64.b64decode(envelope[part])
        for at in range(0, len(raw), 3):
            changed = base64.b64encode(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]).decode()
            with pytest.raises(StateLockedError):
                crypto.decrypt(json.dumps({**envelope, part: changed}), "admin", "it")
            if part == "salt":
                break  # each costs a derivation
    for bad in (
        {"nonce": ""},
        {"data": ""},
        {"data": 5},
        {"salt": "%"},
        {crypto.MARK: 2},
        {crypto.MARK: None},
    ):
        with pytest.raises(StateLockedError):
            crypto.decrypt(json.dumps({**envelope, **bad}), "admin", "it")
    with pytest.raises(StateLockedError, match="the file was changed or renamed"):
        crypto.decrypt(json.dumps(envelope), "bob", "it")
    assert parse_state(crypto.decrypt(json.dumps(envelope), "admin", "it"), "it") == state()


READER = """
import sys
from pathlib import Path
from pytest_peaks.auth.store import Store
from pytest_peaks.errors import PeaksError
from pytest_peaks.session.paths import ProjectDirs
try:
    store = Store(ProjectDirs.locate(Path(sys.argv[1])))
    print(store.load("admin").cookies[0]["name"], store.load("admin").cookies[0]["name"])
except PeaksError as error:
    print(error)
"""


def test_the_key_is_read_from_an_open_descriptor_once(
    kept: Store, key: Callable[[str | None], None], tmp_path: Path
) -> None:
    kept.save("admin", state())
    key(None)
    (tmp_path / "key").write_text("a passphrase\n")
    (tmp_path / "empty").write_text("\n")

    def read(redirect: str, number: str = "9") -> str:
        command = f'exec "$0" -c "$1" "$2" {redirect}'
        done = subprocess.run(
            ["bash", "-c", command, sys.executable, READER, str(kept.folder.parents[1])],
            env={**os.environ, crypto.KEY_FD_ENV: number}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    assert read(f"9<{tmp_path / 'key'}") == "sid sid\n"
    assert read("9< <(printf 'a passphrase')") == "sid sid\n", "a pipe is there but once"
    assert "STATE_KEY: PEAKS_STATE_KEY_FD=9 is no open file descriptor" in read("")
    assert "STATE_KEY: PEAKS_STATE_KEY_FD=nine is no open file descriptor" in read("", "nine")
    assert "STATE_KEY: nothing was to be read from PEAKS_STATE_KEY_FD=9" in read(f"9<{tmp_path / 'empty'}")


def test_a_worker_takes_what_the_controller_read_and_never_a_descriptor_of_its_own(
    kept: Store, key: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.save("admin", state())
    assert crypto.hand_over() == {}, "a variable is inherited"
    key(None)
    assert crypto.hand_over() == {}
    read, write = os.pipe()
    os.write(write, b"a passphrase")
    os.close(write)
    monkeypatch.setenv(crypto.KEY_FD_ENV, str(read))
    given = crypto.hand_over()
    os.close(read)
    assert given == {"secret": "a passphrase"}
    crypto._from_descriptor.cache_clear()
    crypto.receive(given)
    assert kept.load("admin") == state()
    crypto.receive({})
    broken = crypto.hand_over()
    crypto.receive(broken)
    with pytest.raises(StateKeyError, match="is no open file descriptor"):
        kept.load("admin")


def test_without_the_library_or_a_keyring_that_is_said(
    kept: Store, key: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept.save("admin", state())
    with monkeypatch.context() as patch:
        for module in ("cryptography.hazmat.primitives.ciphers.aead", "cryptography.exceptions"):
            patch.setitem(sys.modules, module, None)
        with pytest.raises(StateKeyError, match="cryptography is not installed") as seen:
            kept.save("admin", state(cookie("other")))
        assert "pip install 'pytest-peaks[encrypt]'" in seen.value.hint
        with pytest.raises(StateKeyError):
            kept.load("admin")
    assert kept.load("admin") == state(), f"{path} is kept"
    key(None)
    monkeypatch.setenv(crypto.KEYRING_ENV, "me")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(StateKeyError, match="the package keyring is not installed"):
        kept.load("admin")


def test_the_key_is_taken_from_the_keyring_if_so_configured(
    kept: Store, key: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.save("admin", state())
    key(None)
    keyring, errors = types.ModuleType("keyring"), types.ModuleType("keyring.errors")
    entries: dict[tuple[str, str], str] = {(crypto.KEYRING_SERVICE, "me"): "a passphrase"}

    def get_password(service: str, user: str) -> str | None:
        if user == "locked":
            raise RuntimeError(SECRET)
        return entries.get((service, user))

    keyring.get_password = get_password  # type: ignore[attr-defined]
    errors.KeyringError = OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    monkeypatch.setenv(crypto.KEYRING_ENV, "me")
    assert kept.load("admin") == state()
    monkeypatch.setenv(crypto.KEYRING_ENV, "you")
    with pytest.raises(StateKeyError, match="the keyring has no key for 'you'"):
        kept.load("admin")
    monkeypatch.setenv(crypto.KEYRING_ENV, "locked")
    with pytest.raises(StateKeyError, match="the keyring does not answer: RuntimeError") as seen:
        kept.load("admin")
    assert SECRET not in str(seen.value)


def test_secrets_are_kept_from_children_and_are_back_also_after_a_start_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"PEAKS_AUTH_ADMIN": SECRET, "PEAKS_STATE_KEY": SECRET, "PEAKS_STATE_KEY_FD": "3"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    def secret() -> dict[str, str]:
        return {
            name: value for name, value in os.environ.items() if name.startswith(spawning.SECRET_VARIABLES)
        }

    def start() -> None:
        assert secret() == {}
        assert os.environ["PATH"]
        raise OSError

    with pytest.raises(OSError), spawning.secrets_aside():
        start()
    assert secret() == given
    assert not set(given) & set(spawning.without_secrets())


# Accounts


def test_accounts_have_readable_and_distinct_files_and_none_is_offered_twice() -> None:
    accounts = [
        "Bob", "bob", "bob", {"name": "bob", "at": 1}, {"name": "bob", "at": 2}, {"name": "bob", "at": 1},
        {"email": "ö@example.org"}, {"email": "ü@example.org"}, {}, "../../x", "x" * 300, "\udcff", 7, ("t",),
    ]  # fmt: skip
    keyed = keyed_accounts(accounts)
    assert [account for account, _ in keyed] == [
        entry for number, entry in enumerate(accounts) if entry not in accounts[:number]
    ]
    keys = [key for _, key in keyed]
    assert len(set(keys)) == len(keys)
    assert all(len(key) < 60 and not set("/\\@\0") & set(key) and key != ".." for key in keys)
    assert keys[1].startswith("bob-")
    assert keyed_accounts([*accounts])[3] == keyed[3], "the same in every worker"


@given(
    st.lists(
        st.text() | st.dictionaries(st.sampled_from(["name", "user", "pw"]), st.text() | st.integers()),
        max_size=8,
    )
)
def test_keys_of_any_accounts_are_distinct_parts_of_file_names(accounts: list[object]) -> None:
    keys = [key for _, key in keyed_accounts(accounts)]
    assert len(set(keys)) == len(keys)
    for name in keys:
        assert name == Path(name).name
        assert name.isascii()


def test_an_account_is_called_by_its_name_and_never_by_its_password() -> None:
    class Person:
        username = "carol"
        password = SECRET

    labels = [
        account_label(account, number)
        for number, account in enumerate(
            [
                {"password": SECRET, "user": "bob"},
                {"password": SECRET},
                Person(),
                object(),
                {"id": 7},
                {"name": ""},
            ]
        )
    ]
    assert labels == ["bob", "account 2", "carol", "account 4", "7", "account 6"]


# Single flight

ME = ProcessIdentity.of_self()


def ticket(folder: Path, run: str = "r1", worker: str = "gw0") -> Ticket:
    return Ticket("'admin'", folder / "admin.json", run, ME, worker)


def nothing() -> None:
    return None


def test_a_failure_is_noted_for_its_run_with_its_kind_and_not_for_another(tmp_path: Path) -> None:
    calls: list[str] = []

    def fail() -> State:
        calls.append("")
        raise StateKeyError("no key", hint="set one")

    for worker in ("gw0", "gw1"):
        with pytest.raises(StateKeyError) as seen:
            once(tmp_path, ticket(tmp_path, worker=worker), nothing, fail, calls.append)
    assert str(seen.value) == "STATE_KEY: no key (in gw0; not tried again in this run)\nhint: set one"
    assert len(calls) == 1
    with pytest.raises(StateKeyError):
        once(tmp_path, ticket(tmp_path, "r2"), nothing, fail, calls.append)
    assert len(calls) == 2
    files = [path for path in (tmp_path / "logins").iterdir() if path.suffix == ".json"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


def test_an_interrupt_is_no_verdict_and_whoever_comes_next_logs_in(tmp_path: Path) -> None:
    def interrupted() -> State:
        raise KeyboardInterrupt

    for _ in range(login.HOLDERS + 2):
        with pytest.raises(KeyboardInterrupt):
            once(tmp_path, ticket(tmp_path), nothing, interrupted, print)
    assert once(tmp_path, ticket(tmp_path), nothing, state, print) == state()
    assert not list((tmp_path / "logins").glob("*.json"))


def test_those_who_wait_say_so_take_what_came_of_it_and_do_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "FIRST_WORD", 0.05)
    monkeypatch.setattr(login, "NEXT_WORD", 0.1)
    inside, go_on, said = threading.Event(), threading.Event(), list[str]()
    saved: list[State] = []

    def slow() -> State:
        inside.set()
        go_on.wait(60)
        saved.append(state())
        return saved[0]

    holder = threading.Thread(
        target=once, args=(tmp_path, ticket(tmp_path), lambda: saved[0] if saved else None, slow, print)
    )
    holder.start()
    assert inside.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(login, "PATIENCE", 0.3)
        with pytest.raises(LoginFailedError, match="the login of gw0 takes more than 0 s"):
            once(tmp_path, ticket(tmp_path, worker="gw1"), nothing, state, said.append)
    assert said[0].startswith("gw1 waits for the login 'admin' of gw0: ")
    assert len(said) >= 2, "and again"

    def release(text: str) -> None:
        go_on.set()

    def never() -> State:
        raise AssertionError("it is there")

    got = once(tmp_path, ticket(tmp_path, worker="gw2"), lambda: saved[0] if saved else None, never, release)
    holder.join()
    assert got is saved[0]


def _die_at_it(folder: str) -> None:
    def die() -> State:
        os._exit(9)

    once(Path(folder), ticket(Path(folder)), nothing, die, print)


def test_after_three_that_died_at_it_nobody_tries_again(tmp_path: Path) -> None:
    for _ in range(login.HOLDERS):
        child = multiprocessing.get_context("spawn").Process(target=_die_at_it, args=(str(tmp_path),))
        child.start()
        child.join(60)
        assert child.exitcode == 9
    start = time.monotonic()
    with pytest.raises(LoginFailedError, match="3 workers died while they were logging in"):
        once(tmp_path, ticket(tmp_path), nothing, state, print)
    assert time.monotonic() - start < 30, "the lock died with its holder"


def test_every_failure_has_a_sentence_a_code_and_a_hint(
    kept: Store, key: Callable[[str | None], None]
) -> None:
    failures: list[PeaksError] = []
    for use in (
        lambda: kept.load("none"),
        lambda: parse_state("", "it"),
        lambda: crypto.decrypt("{}", "a", "it"),
        lambda: AuthSettings().with_({"x": 1}, "it"),
    ):
        with pytest.raises(PeaksError) as seen:
            use()
        failures.append(seen.value)
    for error in failures:
        assert error.message
        assert error.hint
        assert error.code.isupper()
