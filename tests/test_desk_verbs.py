"""The verbs of `peaks session` without a browser: who gets which desk, what is answered, how it fails."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import Surroundings
from seatings import DESKS, PEAKS, Desks, ended, failed, one_object, succeeded, wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links")
ONE, TWO, THREE = DESKS


@pytest.fixture
def desks(tmp_path: Path, surroundings: Surroundings) -> Iterator[Desks]:
    """A project of its own; nothing runs, so nothing may be left."""
    made = Desks.at(tmp_path, surroundings)
    yield made
    surroundings.assert_clean(made.folder)


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def age(desks: Desks, seconds: float) -> None:
    """Let all sessions have been used so long ago."""
    ledger = json.loads(desks.ledger.read_text())
    for session in ledger["sessions"].values():
        for key in ("wall", "machine"):
            session["used"][key] -= seconds
    desks.ledger.write_text(json.dumps(ledger))


# --- The pool


def test_without_any_configuration_there_are_three_desks_idle_after_half_an_hour(desks: Desks) -> None:
    found = desks.ok("pool")
    assert found["desks"] == list(DESKS)
    assert found["free"] == list(DESKS)
    assert found["leased"] == {}
    assert found["idle_timeout_seconds"] == 1800
    assert found["state_dir"] == str(desks.state("x").parent)
    assert found["pool_config"] == str(desks.config)
    assert found["pool_config_exists"] is False
    assert found["ledger"] == str(desks.ledger)


def test_the_pools_file_sets_desks_idle_timeout_and_state_dir(desks: Desks) -> None:
    desks.configure("b", "a", idle_timeout_seconds=60, state_dir="states")
    found = desks.ok("pool")
    assert found["desks"] == ["b", "a"]
    assert found["idle_timeout_seconds"] == 60
    assert found["state_dir"] == str(desks.folder / "states")
    assert found["pool_config_exists"] is True
    made = desks.lease("alice")
    assert made["state_file"] == str(desks.folder / "states" / "alice.json")
    assert made["desk"] == "b", "the first of the file, not of the alphabet"


def test_looking_creates_no_file(desks: Desks) -> None:
    before = files_of(desks.folder.parent)
    for verb in ("pool", "list"):
        desks.ok(verb)
        assert desks.run(verb).returncode == 0
    desks.ok("pool", "--config")
    assert files_of(desks.folder.parent) == before


PLACES = {
    "root": "PEAKS_PLAYWRIGHT_ROOT",
    "pool-config": "PEAKS_PLAYWRIGHT_POOL_CONFIG",
    "ledger": "PEAKS_PLAYWRIGHT_LEDGER",
    "state-dir": "PEAKS_PLAYWRIGHT_STATE_DIR",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_flag_beats_the_environment_which_beats_the_configuration(desks: Desks, place: str) -> None:
    def told(done: subprocess.CompletedProcess[str]) -> Any:
        found = succeeded(done)
        key = {"root": "ledger", "pool-config": "desks", "ledger": "ledger", "state-dir": "state_dir"}[place]
        return found[key]

    values = {}
    for name in ("flag", "env"):
        other = desks.folder.parent / name
        (other / ".git").mkdir(parents=True)
        (other / "pool.json").write_text(json.dumps({"desks": [name]}))
        values[name] = {
            "root": (str(other), str(other / ".peaks" / "playwright-sessions.json")),
            "pool-config": (str(other / "pool.json"), [name]),
            "ledger": (str(other / "ledger.json"), str(other / "ledger.json")),
            "state-dir": (str(other / "states"), str(other / "states")),
        }[place]
    flag, env = values["flag"], values["env"]
    desks.configure("configured", state_dir="configured")
    plain = {
        "root": str(desks.ledger),
        "pool-config": ["configured"],
        "ledger": str(desks.ledger),
        "state-dir": str(desks.folder / "configured"),
    }[place]
    variable = {PLACES[place]: env[0]}
    assert told(desks.run("pool", "--json")) == plain
    assert told(desks.run("pool", "--json", **variable)) == env[1]
    assert told(desks.run(f"--{place}", flag[0], "pool", "--json", **variable)) == flag[1]
    assert told(desks.run("--json", "pool", f"--{place}", flag[0], **variable)) == flag[1]


def test_relative_places_start_where_they_are_said_to(desks: Desks) -> None:
    below = desks.folder / "below"
    below.mkdir()
    (below / "mine.json").write_text('{"desks": ["d"]}')
    found = succeeded(
        desks.run(
            "pool",
            "--json",
            "--pool-config",
            "mine.json",
            "--ledger",
            "l.json",
            "--state-dir",
            "s",
            cwd=below,
        )
    )
    assert found["desks"] == ["d"]
    assert found["ledger"] == str(below / "l.json")
    assert found["state_dir"] == str(desks.folder / "s"), "a state dir starts at the project"


@pytest.mark.parametrize("order", [("--json", "pool"), ("pool", "--json")], ids=["before", "after"])
def test_json_may_stand_before_the_verb_and_after_it(desks: Desks, order: tuple[str, str]) -> None:
    assert succeeded(desks.run(*order))["action"] == "pool"


def test_json_may_stand_before_the_group(desks: Desks) -> None:
    done = subprocess.run(
        [*PEAKS, "--json", "session", "list"],
        check=False,
        cwd=desks.folder,
        env=desks.env(),
        capture_output=True,
        text=True,
    )
    assert succeeded(done)["sessions"] == []


# --- create


def test_create_leases_the_first_free_desk_and_says_all_about_it(desks: Desks) -> None:
    made = desks.lease("alice")
    assert (made["action"], made["session"], made["status"]) == ("create", "alice", "active")
    assert made["message"] == f"session 'alice' is seated at {ONE}; 2/3 desks free"
    assert made["desk"] == ONE
    assert made["mcp_prefix"] == f"mcp__{ONE}__"
    assert made["mcp_url"] == f"http://localhost:{desks.port(0)}/mcp"
    assert made["mcpServers"] == {ONE: {"type": "http", "url": made["mcp_url"]}}
    assert made["state_file"] == str(desks.state("alice"))
    assert made["state_exists"] is False
    assert made["restore"] is False
    assert made["free_desks_remaining"] == 2
    assert made["epoch"] == 1
    assert made["lease_id"]
    row = desks.rows()["alice"]
    assert (row["status"], row["desk"]) == ("active", ONE)


def test_a_desk_that_became_free_is_the_first_again(desks: Desks) -> None:
    assert [desks.lease(name)["desk"] for name in ("a", "b")] == [ONE, TWO]
    desks.ok("close", "a")
    assert desks.lease("c")["desk"] == ONE
    assert desks.lease("d")["desk"] == THREE


def test_a_name_is_created_once(desks: Desks) -> None:
    desks.lease("alice")
    assert "peaks session resume alice" in desks.fails("session_exists", 2, "create", "alice")["hint"]
    desks.ok("close", "alice")
    desks.fails("session_exists", 2, "create", "alice", "--no-browser")


def test_creates_at_the_same_time_never_share_a_desk(desks: Desks) -> None:
    desks.configure(*(f"d{number}" for number in range(6)))
    names = [f"s{number}" for number in range(7)]
    done = [ended(p) for p in [desks.spawn("create", n, "--no-browser", "--json") for n in names]]
    seats = [one_object(one)["desk"] for one in done if one.returncode == 0]
    assert sorted(seats) == [f"d{number}" for number in range(6)]
    [late] = [one for one in done if one.returncode]
    failed(late, "no_free_desk", 3)
    rows = desks.rows()
    assert sorted(row["desk"] for row in rows.values()) == sorted(seats)


def test_a_full_pool_says_who_sits_where(desks: Desks) -> None:
    for name in ("a", "b", "c"):
        desks.lease(name)
    refused = desks.fails("no_free_desk", 3, "create", "d", "--no-browser")
    assert refused["message"] == f"no free desk: {ONE} -> a, {TWO} -> b, {THREE} -> c"
    assert "peaks session cleanup" in refused["hint"]
    assert "d" not in desks.rows()
    desks.ok("close", "a")
    desks.lease("d")
    desks.fails("no_free_desk", 3, "resume", "a", "--no-browser")


@pytest.mark.parametrize("name", ["", "../evil", "x y", "..", "é", "a" * 200])
def test_a_name_that_can_not_become_a_path_is_refused(desks: Desks, name: str) -> None:
    found = one_object(desks.run("create", "--no-browser", "--json", "--", name))
    assert (found["ok"], found["error"]) == (False, "invalid_name")
    assert not desks.ledger.exists()


def test_no_verb_takes_a_name_for_a_path(desks: Desks) -> None:
    victim = desks.dirs.base / "victim.json"
    desks.lease("alice")
    desks.ok("save", "alice")
    assert desks.state("alice").parent.is_dir()
    victim.write_text("{}")
    for verb in (("resume",), ("save",), ("close", "--discard")):
        found = one_object(desks.run(*verb, "--json", "--", "../victim"))
        assert (found["ok"], found["error"]) == (False, "invalid_name")
    assert victim.exists()


def test_a_state_that_no_session_has_is_neither_overwritten_nor_taken_over_silently(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    desks.ok("close", "alice")
    kept = desks.state("alice").read_bytes()
    desks.ledger.unlink()
    refused = desks.fails("state_exists", 2, "create", "alice", "--no-browser")
    assert str(desks.state("alice")) in refused["message"]
    assert "alice" not in desks.rows()
    made = desks.lease("alice", "--restore")
    assert (made["restore"], made["state_exists"]) == (True, True)
    assert desks.state("alice").read_bytes() == kept
    desks.ok("close", "alice")
    desks.ledger.unlink()
    made = desks.lease("alice", "--discard")
    assert (made["restore"], made["state_exists"]) == (False, False)
    assert not desks.state("alice").exists()


def test_options_that_contradict_each_other_are_refused(desks: Desks) -> None:
    assert failed(desks.run("--json", "create", "a", "--restore", "--discard"), "usage", 2)
    for more in ("--restore", "--no-browser"):
        desks.fails("invalid_option", 2, "create", "a", "--auth", "x", more)
    desks.fails("usage", 2, "pool", "--up", "--down")
    assert not desks.ledger.exists()


@pytest.mark.parametrize(
    "url", ["", "nowhere", "http://", "javascript:alert(1)", "http://[::1", "chrome://x"]
)
def test_what_is_no_address_is_refused_before_a_desk_is_leased(desks: Desks, url: str) -> None:
    desks.lease("bob")
    for arguments in (("create", "alice", url), ("resume", "bob", url)):
        desks.fails("invalid_option", 2, *arguments, "--no-browser")
    assert desks.ok("pool")["leased"] == {ONE: "bob"}


# --- resume


def test_resume_of_a_detached_session_takes_any_free_desk(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("close", "alice")
    desks.lease("bob")
    found = desks.ok("resume", "alice", "--no-browser")
    assert (found["desk"], found["status"], found["already_seated"]) == (TWO, "active", False)


def test_resume_says_restore_if_and_only_if_there_is_a_state(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("close", "alice")
    found = desks.ok("resume", "alice", "--no-browser")
    assert (found["restore"], found["state_exists"]) == (False, False)
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    desks.ok("close", "alice")
    found = desks.ok("resume", "alice", "--no-browser")
    assert (found["restore"], found["state_exists"]) == (True, True)
    assert [step["tool"].removeprefix(found["mcp_prefix"]) for step in found["next"]] == [
        "browser_close",
        "browser_set_storage_state",
    ]


def test_resume_of_a_seated_session_changes_nothing_and_restores_nothing(desks: Desks) -> None:
    made = desks.lease("alice")
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    found = desks.ok("resume", "alice", "--no-browser")
    assert (found["desk"], found["lease_id"], found["epoch"]) == (ONE, made["lease_id"], made["epoch"])
    assert found["already_seated"] is True
    assert found["restore"] is False, "an older file is no reason to overwrite a live login"
    assert found["next"] == []
    assert desks.ok("pool")["leased"] == {ONE: "alice"}


def test_an_unknown_session_is_unknown_to_every_verb(desks: Desks) -> None:
    desks.lease("alice")
    for verb in ("resume", "save", "close"):
        refused = desks.fails("unknown_session", 2, verb, "bob")
        assert "alice" in refused["message"]
        assert "peaks session create bob" in refused["hint"]
    desks.fails("unknown_session", 2, "close", "bob", "--discard")


def test_a_session_moves_on_when_its_old_desk_has_left_the_pool(desks: Desks) -> None:
    desks.configure("a", "b")
    desks.lease("alice")
    desks.ok("close", "alice")
    desks.configure("b")
    assert desks.ok("resume", "alice", "--no-browser")["desk"] == "b"


# --- save


def test_save_needs_a_seat(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("close", "alice")
    assert "resume alice" in desks.fails("not_seated", 2, "save", "alice")["hint"]
    assert not desks.state("alice").exists()


def test_save_says_where_the_state_goes_and_is_a_use(desks: Desks) -> None:
    desks.lease("alice")
    age(desks, 500)
    assert desks.rows()["alice"]["idle_seconds"] >= 500
    found = desks.ok("save", "alice")
    assert found["state_file"] == str(desks.state("alice"))
    assert found["saved"] is False, "nothing was written, and it is not said that it was"
    assert found["state_exists"] is False
    assert desks.rows()["alice"]["idle_seconds"] < 400


def test_what_a_tool_wrote_is_kept_private_and_the_tools_file_goes(desks: Desks) -> None:
    desks.lease("alice")
    given = desks.storage_state(value="hush")
    given.chmod(0o644)
    found = desks.run("save", "alice", "--from", str(given), "--json")
    assert "hush" not in found.stdout + found.stderr
    assert succeeded(found)["saved"] is True
    assert not given.exists()
    kept = desks.state("alice")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert json.loads(kept.read_text())["cookies"][0]["value"] == "hush"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"cookies": 1}', '{"cookies": [{"value": "hush"}]}', None]
)
def test_what_is_no_state_is_not_saved_and_not_quoted(desks: Desks, content: str | None) -> None:
    desks.lease("alice")
    given = desks.folder / "given.json"
    if content is not None:
        given.write_text(content)
    done = desks.run("save", "alice", "--from", str(given), "--json")
    found = one_object(done)
    assert found["ok"] is False
    assert found["error"] in ("invalid_state", "state_not_found", "auth_invalid", "auth_not_found"), found
    assert str(given) in found["message"]
    assert "hush" not in done.stdout + done.stderr
    assert not desks.state("alice").exists()
    assert given.exists() == (content is not None)


def test_an_old_lease_saves_nothing(desks: Desks) -> None:
    old = desks.lease("alice")["lease_id"]
    desks.ok("close", "alice", "--lease", old)
    new = desks.ok("resume", "alice", "--no-browser")["lease_id"]
    given = desks.storage_state()
    desks.fails("lease_lost", 2, "save", "alice", "--lease", old, "--from", str(given))
    desks.fails("lease_lost", 2, "close", "alice", "--lease", old)
    desks.fails("lease_lost", 2, "close", "alice", "--lease", old, "--discard")
    assert not desks.state("alice").exists()
    assert given.exists()
    assert desks.ok("save", "alice", "--lease", new, "--from", str(given))["saved"] is True
    desks.ok("close", "alice", "--lease", new)
    desks.fails("lease_lost", 2, "close", "alice", "--lease", new, "--discard")
    assert desks.state("alice").exists()


# --- close


def test_close_frees_the_desk_and_keeps_record_and_state(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    found = desks.ok("close", "alice")
    assert found["freed_desk"] == ONE
    assert (found["discarded"], found["state_retained"], found["state_removed"]) == (False, True, False)
    assert found["state_file"] == str(desks.state("alice"))
    assert found["free_desks_remaining"] == 3
    assert found["message"] == (
        f"closed 'alice': {ONE} is free, its state stays in {desks.state('alice')}; 3/3 desks free"
    )
    row = desks.rows()["alice"]
    assert (row["status"], row["desk"], row["state_exists"]) == ("detached", None, True)
    assert desks.state("alice").exists()


def test_messages_are_true_of_what_was_not_there(desks: Desks) -> None:
    desks.lease("alice")
    assert desks.ok("close", "alice")["message"].startswith(f"closed 'alice': {ONE} is free, it has no saved")
    again = desks.ok("close", "alice")
    assert again["freed_desk"] is None
    assert "had no desk" in again["message"]
    assert "None" not in again["message"]
    gone = desks.ok("close", "alice", "--discard")
    assert (gone["discarded"], gone["state_removed"], gone["state_retained"]) == (True, False, False)
    assert "it had no saved state" in gone["message"]


def test_sessions_may_outnumber_desks(desks: Desks) -> None:
    desks.configure("d")
    for name in ("a", "b", "c"):
        desks.lease(name)
        desks.ok("close", name)
    assert {name: row["status"] for name, row in desks.rows().items()} == dict.fromkeys("abc", "detached")
    assert desks.ok("resume", "a", "--no-browser")["desk"] == "d"


@pytest.mark.parametrize("seated", [True, False])
def test_discard_forgets_the_session_and_its_state_and_the_name_is_free(desks: Desks, seated: bool) -> None:
    desks.lease("alice")
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    if not seated:
        desks.ok("close", "alice")
    found = desks.ok("close", "alice", "--discard")
    assert (found["discarded"], found["state_removed"], found["state_retained"]) == (True, True, False)
    assert found["freed_desk"] == (ONE if seated else None)
    assert "its saved state is removed" in found["message"]
    assert not desks.state("alice").exists()
    assert desks.rows() == {}
    assert desks.lease("alice")["restore"] is False


def test_discard_takes_away_a_link_and_never_what_it_leads_to(desks: Desks) -> None:
    desks.lease("alice")
    auth = desks.dirs.base / "auth"
    auth.mkdir(mode=0o700)
    login = auth / "alice.json"
    login.write_text("{}")
    desks.state("alice").parent.mkdir(mode=0o700)
    desks.state("alice").symlink_to(login)
    found = desks.ok("close", "alice", "--discard")
    assert found["state_removed"] is True
    assert not os.path.lexists(desks.state("alice"))
    assert login.read_text() == "{}"


@pytest.mark.parametrize("seated", [True, False])
def test_a_state_that_can_not_be_removed_keeps_its_session(desks: Desks, seated: bool) -> None:
    made = desks.lease("alice")
    if not seated:
        desks.ok("close", "alice")
    desks.state("alice").mkdir(parents=True)
    (desks.state("alice") / "mine").touch()
    refused = desks.fails("unlink_failed", 1, "close", "alice", "--discard")
    assert str(desks.state("alice")) in refused["message"]
    assert (desks.state("alice") / "mine").exists()
    row = desks.rows()["alice"]
    assert (row["status"], row["desk"]) == (("active", ONE) if seated else ("detached", None))
    if seated:
        assert desks.ok("resume", "alice", "--no-browser")["already_seated"] is True
        assert made["desk"] == ONE


# --- list, cleanup


def test_list_is_sorted_and_says_who_sits_where(desks: Desks) -> None:
    for name in ("carol", "alice", "bob"):
        desks.lease(name)
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    desks.ok("close", "bob")
    age(desks, 100)
    found = desks.ok("list")
    assert [row["session"] for row in found["sessions"]] == ["alice", "bob", "carol"]
    alice, bob, carol = found["sessions"]
    assert (alice["status"], alice["desk"], alice["state_exists"]) == ("active", TWO, True)
    assert (bob["status"], bob["desk"], bob["state_exists"]) == ("detached", None, False)
    assert carol["desk"] == ONE
    assert all(100 <= row["idle_seconds"] < 200 for row in found["sessions"])
    assert alice["state_file"] == str(desks.state("alice"))
    assert found["pool"] == {
        "desks": list(DESKS),
        "free": [THREE],
        "leased": {ONE: "carol", TWO: "alice"},
        "idle_timeout_seconds": 1800,
    }
    lines = desks.text("list").splitlines()
    assert lines[0] == "Pool: 1/3 desks free (idle timeout 1800s)"
    assert [line.split()[0] for line in lines[1:]] == ["alice", "bob", "carol"]


def test_a_clock_that_was_set_back_makes_no_idle_time_negative(desks: Desks) -> None:
    desks.lease("alice")
    age(desks, -5000)
    assert desks.rows()["alice"]["idle_seconds"] == 0


def test_cleanup_frees_what_is_idle_and_nothing_else(desks: Desks) -> None:
    desks.lease("alice")
    desks.ok("save", "alice", "--from", str(desks.storage_state()))
    age(desks, 2000)
    desks.lease("bob")
    found = desks.ok("cleanup")
    assert found["idle_timeout_seconds"] == 1800
    [released] = found["released"]
    assert (released["session"], released["desk"]) == ("alice", ONE)
    assert released["idle_seconds"] >= 2000
    assert found["free_desks_remaining"] == 2
    assert desks.state("alice").exists()
    assert desks.rows()["bob"]["desk"] == TWO
    assert desks.ok("cleanup", "--idle-seconds", "3600")["released"] == []
    assert [row["session"] for row in desks.ok("cleanup", "--idle-seconds", "0")["released"]] == ["bob"]
    for wrong in ("-1", "nan", "inf", "soon"):
        desks.fails("usage", 2, "cleanup", "--idle-seconds", wrong)


def test_a_tired_pools_own_idle_timeout_counts(desks: Desks) -> None:
    desks.configure("d", idle_timeout_seconds=50)
    desks.lease("alice")
    age(desks, 60)
    assert [row["session"] for row in desks.ok("cleanup")["released"]] == ["alice"]


# --- Files and failures


def test_the_ledger_is_private_and_carries_what_was_there_through_restarts(desks: Desks) -> None:
    desks.lease("alice")
    desks.lease("bob")
    desks.ok("close", "bob")
    assert stat.S_IMODE(desks.ledger.stat().st_mode) == 0o600
    before = desks.home / "before"
    before.hardlink_to(desks.ledger)  # so that its inode is not given out again
    content = before.read_bytes()
    desks.lease("carol")
    assert not desks.ledger.samefile(before), "replaced, never written in place"
    assert before.read_bytes() == content
    assert {name: row["status"] for name, row in desks.rows().items()} == {
        "alice": "active",
        "bob": "detached",
        "carol": "active",
    }
    assert not [path for path in desks.ledger.parent.iterdir() if path.name.startswith(".tmp")]


@pytest.mark.parametrize("which", ["ledger", "config"])
@pytest.mark.parametrize("content", ["{", "[]", "null", '"text"', "\x00", "[" * 100_000])
def test_a_ledger_or_pool_that_is_none_is_left_alone(desks: Desks, which: str, content: str) -> None:
    path: Path = getattr(desks, which)
    path.parent.mkdir()
    path.write_text(content)
    for arguments in (("create", "a", "--no-browser"), ("list",), ("pool",), ("cleanup",)):
        refused = desks.fails("bad_json", 1, *arguments)
        assert str(path) in refused["message"]
        if len(content) > 1000:
            break
    assert path.read_text() == content
    assert {p.name for p in path.parent.iterdir()} <= {
        path.name,
        ".gitignore",
        f"{path.name}.lock",
        "_runtime",
    } | {"playwright-sessions.json.lock"}


RECORD = {"desk": "d", "status": "active", "created_at": 1, "last_used_at": 1}


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        ({"version": 1, "sessions": []}, "bad_json"),  # the first design wiped it
        ({"version": 1, "sessions": {"a": 1}}, "bad_json"),  # and ended with a traceback
        ({"version": 1, "sessions": {"a": {**RECORD, "last_used_at": "1"}}}, "bad_json"),
        ({"version": 99, "sessions": {}}, "schema_too_new"),  # and took any version for its own
        ({"version": True, "sessions": {}}, "bad_json"),
    ],
    ids=["sessions", "record", "time", "version", "bool"],
)
def test_a_ledger_that_is_wrong_within_is_told_and_left_alone(
    desks: Desks, content: object, slug: str
) -> None:
    desks.ledger.parent.mkdir()
    desks.ledger.write_text(json.dumps(content))
    for arguments in (("list",), ("create", "b", "--no-browser")):
        assert str(desks.ledger) in desks.fails(slug, 1, *arguments)["message"]
    assert json.loads(desks.ledger.read_text()) == content


def test_what_can_not_be_written_is_a_failure_with_a_code(desks: Desks) -> None:
    desks.lease("alice")
    blocked = desks.folder / "blocked"
    blocked.write_text("")
    nowhere = Path("/proc/peaks/l.json")
    refused = desks.fails("write_failed", 1, "create", "a", "--no-browser", "--ledger", str(nowhere))
    assert str(nowhere) in refused["message"]
    given = desks.storage_state()
    refused = desks.fails(
        "write_failed", 1, "save", "alice", "--from", str(given), "--state-dir", str(blocked / "states")
    )
    assert given.exists(), "what was not saved is still where it was"
    assert desks.rows()["alice"]["status"] == "active"


def test_text_is_for_people_and_failures_go_to_the_error_stream(desks: Desks) -> None:
    done = desks.run("create", "alice", "--no-browser")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Seated at: {ONE}  (mcp__{ONE}__browser_*)\n")
    assert "Pool:      2/3 desks free\n" in done.stdout
    assert done.stdout.rstrip().endswith("`peaks session close alice` when done.")
    refused = desks.run("create", "alice", "--no-browser")
    assert (refused.stdout, refused.returncode) == ("", 2)
    assert refused.stderr.startswith("session_exists: there is a session 'alice' already, at ")
    assert "hint: " in refused.stderr
    assert desks.run("nonsense").returncode == 2
    assert failed(desks.run("nonsense", "--json"), "usage", 2)
    assert failed(desks.run("create", "--json"), "usage", 2)


def test_every_exit_code_means_one_thing(desks: Desks) -> None:
    desks.configure("d")
    assert desks.run("create", "a", "--no-browser").returncode == 0
    assert desks.run("create", "a", "--no-browser").returncode == 2
    assert desks.run("create", "b", "--no-browser").returncode == 3
    desks.ledger.write_text("{")
    assert desks.run("list").returncode == 1


# --- Clients


def test_a_pool_that_nobody_has_registered_is_explained(desks: Desks) -> None:
    made = desks.lease("alice")
    [warning] = made["warnings"]
    assert f"nothing listens at {made['mcp_url']}" in warning
    assert "peaks session pool --config" in warning
    assert "start the client anew" in warning
    shown = desks.ok("pool")
    assert [row["registered_in"] for row in shown["desk_details"]] == [[], [], []]
    assert "peaks session pool --config" in shown["warnings"][0]
    # An exact name, not one that begins with it.
    (desks.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {f"{ONE}0": {"url": "http://x/"}}}))
    assert desks.ok("pool")["desk_details"][0]["registered_in"] == []
    entries = desks.ok("pool", "--config")["mcpServers"]
    (desks.folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    shown = desks.ok("pool")
    assert [row["registered_in"] for row in shown["desk_details"]] == [[str(desks.folder / ".mcp.json")]] * 3
    assert shown["warnings"] == []
    assert desks.lease("bob")["warnings"] == []


def test_config_has_the_urls_that_create_gives(desks: Desks) -> None:
    desks.configure("a", {"name": "b", "port": desks.port(5)}, "c", {"name": "e", "external": True})
    entries = desks.ok("pool", "--config")
    assert {name: entry["url"] for name, entry in entries["mcpServers"].items()} == {
        "a": f"http://localhost:{desks.port(0)}/mcp",
        "b": f"http://localhost:{desks.port(5)}/mcp",
        "c": f"http://localhost:{desks.port(1)}/mcp",
    }
    for name in ("alice", "bob", "carol"):
        made = desks.lease(name)
        assert made["mcpServers"][made["desk"]] == entries["mcpServers"][made["desk"]]
    assert "e" in entries["note"]


# --- Waiting


def waiting(desks: Desks) -> list[str]:
    names: list[str] = desks.ok("pool")["waiting"]
    return names


def test_those_who_wait_get_a_desk_in_the_order_in_which_they_came(desks: Desks) -> None:
    desks.configure("d")
    desks.lease("alice")
    processes = []
    for number in range(3):
        processes.append(desks.spawn("create", f"w{number}", "--no-browser", "--wait", "100", "--json"))
        wait_until(lambda: len(waiting(desks)) == len(processes), "it waits")
    assert waiting(desks) == ["w0", "w1", "w2"]
    refused = desks.fails("no_free_desk", 3, "create", "late", "--no-browser")
    assert "3 wait before" in refused["message"]
    before = "alice"
    for number, process in enumerate(processes):
        desks.ok("close", before)
        # Whoever does not wait does not come before those who do.
        if number < 2:
            desks.fails("no_free_desk", 3, "create", "late", "--no-browser")
        done = ended(process)
        assert succeeded(done)["desk"] == "d"
        assert "waiting: no free desk: d -> " in done.stderr
        assert waiting(desks) == [f"w{later}" for later in range(number + 1, 3)]
        before = f"w{number}"
    assert desks.rows()["w2"]["desk"] == "d"


def test_whoever_does_not_wait_never_comes_before_one_who_does(desks: Desks) -> None:
    desks.configure("d")
    desks.lease("alice")
    process = desks.spawn("create", "first", "--no-browser", "--wait", "100", "--json")
    wait_until(lambda: waiting(desks) == ["first"], "it waits")
    process.send_signal(signal.SIGSTOP)
    try:
        desks.ok("close", "alice")
        assert desks.ok("pool")["free"] == ["d"]
        refused = desks.fails("no_free_desk", 3, "create", "late", "--no-browser")
        assert "1 wait before" in refused["message"]
    finally:
        process.send_signal(signal.SIGCONT)
    assert succeeded(ended(process))["desk"] == "d"


def test_whoever_gives_up_waiting_names_the_holders_and_waits_no_more(desks: Desks) -> None:
    desks.configure("d", "e")
    for name in ("alice", "bob"):
        desks.lease(name)
    done = desks.run("create", "carol", "--no-browser", "--wait", "0.3", "--json")
    assert "d -> alice, e -> bob" in failed(done, "no_free_desk", 3)["message"]
    assert "waiting: no free desk: d -> alice, e -> bob" in done.stderr
    assert waiting(desks) == []
    for wrong in ("-1", "nan", "soon"):
        desks.fails("usage", 2, "create", "carol", "--no-browser", "--wait", wrong)


def test_whoever_died_waiting_holds_nobody_up(desks: Desks) -> None:
    desks.configure("d")
    desks.lease("alice")
    process = desks.spawn("create", "dies", "--no-browser", "--wait", "100")
    wait_until(lambda: waiting(desks) == ["dies"], "it waits")
    process.kill()
    process.communicate()
    desks.ok("close", "alice")
    assert desks.lease("bob")["desk"] == "d"
    assert waiting(desks) == []
