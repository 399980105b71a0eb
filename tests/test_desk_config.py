"""The pool's configuration: what it may say, how a wrong value is named, and a pool that grows and shrinks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from leaks import Surroundings
from seatings import DESKS, Desks, title

from pytest_peaks.cli import run
from pytest_peaks.desks.settings import DESK_KEYS, PoolSettings, read_settings
from pytest_peaks.desks.table import TOP_KEYS
from pytest_peaks.errors import PeaksError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links")
Told = Callable[..., dict[str, Any]]


@pytest.fixture
def desks(tmp_path: Path, surroundings: Surroundings) -> Iterator[Desks]:
    """A project of its own; nothing of it may be left."""
    made = Desks.at(tmp_path, surroundings)
    yield made
    surroundings.assert_clean(made.folder)


@pytest.fixture
def told(desks: Desks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What `peaks session pool --json` says, in this process; its exit code as ``code``."""
    monkeypatch.chdir(desks.folder)
    for name, value in desks.env().items():
        monkeypatch.setenv(name, value)

    def tell(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = run(["session", *(arguments or ("pool",)), "--json"])
        said = capsys.readouterr()
        assert not said.err
        found: dict[str, Any] = json.loads(said.out)
        return {**found, "code": code}

    return tell


def refused(
    told: Told, desks: Desks, content: object, *named: str, slug: str = "bad_config"
) -> dict[str, Any]:
    """The refusal of a configuration, which names the file, what is wrong there, and is no traceback."""
    text = content if isinstance(content, str) else json.dumps(content)
    desks.config.parent.mkdir(exist_ok=True)
    desks.config.write_text(text)
    found = told()
    assert (found["ok"], found["error"], found["code"]) == (False, slug, 1), found
    for part in (str(desks.config), *named):
        assert part in found["message"] + " " + found["hint"], found
    assert desks.config.read_text() == text
    assert not desks.ledger.exists()
    return found


def desk(**values: object) -> dict[str, object]:
    return {"desks": [{"name": "d", **values}]}


WRONG: list[tuple[object, tuple[str, ...]]] = [
    # Desks
    ({"desks": []}, ("desks", "at least one")),
    ({"desks": "d"}, ("desks", '"d"')),
    ({"desks": {}}, ("desks", "{}")),
    ({"desks": None}, ("desks", "null")),
    ({"desks": [1, 2]}, ("desks[0]", "1", "a name or an object")),
    ({"desks": ["a", None]}, ("desks[1]", "null")),
    ({"desks": ["a", ["b"]]}, ("desks[1]", '["b"]')),
    ({"desks": ["a", "b", "a"]}, ("desks[2]", "a second 'a'")),
    ({"desks": ["a", {"name": "a"}]}, ("desks[1]", "a second 'a'")),
    ({"desks": [""]}, ("desks[0]", "''")),
    ({"desks": ["a/b"]}, ("desks[0]", "'a/b'")),
    ({"desks": [".."]}, ("desks[0]", "'..'")),
    ({"desks": [{}]}, ("desks[0]", "no name")),
    ({"desks": [{"name": 1}]}, ("desks[0].name", "1")),
    ({"desks": [{"name": "x y"}]}, ("desks[0].name", "'x y'")),
    ({"desks": [{"name": "a", "prot": 9001}]}, ("desks[0].prot", "unknown", "did you mean 'port'?")),
    ({"desks": [{"name": "a", "zzz": 1}]}, ("desks[0].zzz", "known are name, port")),
    # Ports
    (desk(port=0), ("desks[0].port", "0")),
    (desk(port=80), ("desks[0].port", "80", "1024-65535")),
    (desk(port=65536), ("desks[0].port", "65536")),
    (desk(port="9001"), ("desks[0].port", '"9001"')),
    (desk(port=True), ("desks[0].port", "true")),
    (desk(port=9001.0), ("desks[0].port", "9001.0")),
    ({"desks": [{"name": "a", "port": 9001}, {"name": "b", "port": 9001}]}, ("desks", "9001")),
    ({"desks": [f"d{number}" for number in range(21)]}, ("desks", "PEAKS_DESK_PORTS")),
    # Browsers
    (desk(browser="firefox"), ("desks[0].browser", "'firefox'", "chromium")),
    (desk(browser="nonsense"), ("desks[0].browser", "'nonsense'")),
    (desk(browser=1), ("desks[0].browser", "1")),
    (desk(headed="yes"), ("desks[0].headed", '"yes"')),
    (desk(headed=1), ("desks[0].headed", "1")),
    (desk(executable=1), ("desks[0].executable", "1")),
    (desk(executable=""), ("desks[0].executable", '""')),
    (desk(executable="a\0b"), ("desks[0].executable",)),
    # Addresses
    (desk(endpoint=""), ("desks[0].endpoint", '""')),
    (desk(endpoint="nowhere"), ("desks[0].endpoint", "ws")),
    (desk(endpoint="ftp://h/"), ("desks[0].endpoint", "ws")),
    (desk(endpoint="ws://"), ("desks[0].endpoint",)),
    (desk(endpoint="ws://h:0/"), ("desks[0].endpoint",)),
    (desk(endpoint="ws://h:99999/"), ("desks[0].endpoint",)),
    (desk(endpoint="ws://[::1"), ("desks[0].endpoint",)),
    (desk(endpoint=1), ("desks[0].endpoint", "1")),
    (desk(mcp_url="ws://h/"), ("desks[0].mcp_url", "http")),
    (desk(mcp_url=None), ("desks[0].mcp_url", "null")),
    (desk(external="yes"), ("desks[0].external", '"yes"')),
    # What goes not together
    (desk(endpoint="ws://h/", port=9001), ("desks[0].port", "an endpoint")),
    (desk(mcp_url="http://h/mcp", port=9001), ("desks[0].port", "an mcp_url")),
    (desk(external=True, port=9001), ("desks[0].port", "external")),
    (desk(external=True, headed=True), ("desks[0].headed", "external")),
    (desk(endpoint="ws://h/", browser="chrome"), ("desks[0].browser", "an endpoint")),
    (desk(endpoint="ws://h/", executable="/x"), ("desks[0].executable", "an endpoint")),
    (desk(endpoint="ws://h/", external=True), ("desks[0].external", "contradict")),
    (desk(mcp_url="http://h/mcp", external=False), ("desks[0].external", "contradict")),
    # Numbers
    *(
        ({key: value}, (key, json.dumps(value)))
        for key in ("idle_timeout_seconds", "max_uses", "max_errors")
        for value in (0, -1, True, False, "60", None, [])
    ),
    ({"max_uses": 1.5}, ("max_uses", "1.5")),
    # The rest
    ({"state_dir": 1}, ("state_dir", "1")),
    ({"state_dir": ""}, ("state_dir", '""')),
    ({"state_dir": " "}, ("state_dir", '" "')),
    ({"state_dir": "~nobody-of-that-name/x"}, ("~nobody-of-that-name/x",)),
    ({"version": "1"}, ("version", '"1"')),
    ({"version": True}, ("version", "true")),
    ({"version": 0}, ("version", "0")),
    ({"desk": ["a"]}, ("desk", "unknown", "did you mean 'desks'?")),
    ({"idle_timeout": 5}, ("idle_timeout", "did you mean 'idle_timeout_seconds'?")),
]


@pytest.mark.parametrize(("content", "named"), WRONG, ids=lambda value: json.dumps(value)[:50])
def test_a_wrong_value_is_refused_naming_file_key_and_reason(
    desks: Desks, told: Told, content: object, named: tuple[str, ...]
) -> None:
    refused(told, desks, content, *named)


@pytest.mark.parametrize("content", ["", "{", "[]", "1", "null", '{"desks": ["a"],}', "\x00", "[" * 50_000])
def test_what_is_no_json_object_is_refused_as_such(desks: Desks, told: Told, content: str) -> None:
    refused(told, desks, content, slug="bad_json")


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_a_number_that_is_none_is_refused(desks: Desks, told: Told, number: str) -> None:
    refused(told, desks, f'{{"idle_timeout_seconds": {number}}}', "idle_timeout_seconds")


def test_a_later_version_is_not_read(desks: Desks, told: Told) -> None:
    refused(told, desks, {"version": 2, "what": "ever"}, "version 2", slug="schema_too_new")


@pytest.mark.parametrize("below", ["", "below"])
def test_states_may_not_lie_among_saved_logins(desks: Desks, told: Told, below: str) -> None:
    refused(told, desks, {"state_dir": f".peaks/auth/{below}"}, "state_dir", "saved logins")
    (desks.folder / "link").symlink_to(desks.dirs.base / "auth")
    refused(told, desks, {"state_dir": f"link/{below}"}, "state_dir", "saved logins")
    desks.config.unlink()
    found = told("pool", "--state-dir", str(desks.dirs.base / "auth" / below))
    assert found["error"] == "bad_config"
    assert "state_dir" in found["message"]
    assert not (desks.dirs.base / "auth").exists()


def test_a_configuration_that_was_asked_for_has_to_be_there(desks: Desks, told: Told) -> None:
    found = told("pool", "--pool-config", "nowhere.json")
    assert (found["error"], found["code"]) == ("bad_config", 1)
    assert str(desks.folder / "nowhere.json") in found["message"]
    found = told("pool", "--root", "nowhere")
    assert found["error"] == "bad_config"
    assert "nowhere" in found["message"]


@pytest.mark.parametrize("ports", ["x", "0", "70000-70001", "9-8", "auto"])
def test_ports_that_are_none_are_refused(
    desks: Desks, told: Told, monkeypatch: pytest.MonkeyPatch, ports: str
) -> None:
    monkeypatch.setenv("PEAKS_DESK_PORTS", ports)
    found = told()
    assert found["error"] == "bad_config", found
    assert "PEAKS_DESK_PORTS" in found["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ONE_DESK = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]) | JSON},
    optional={
        key: st.sampled_from(["http://h/", "ws://h:1/", "chromium", "/x", 9001, True]) | JSON
        for key in DESK_KEYS
        if key != "name"
    },
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=JSON
    | st.fixed_dictionaries(
        {},
        optional={
            **{key: JSON for key in TOP_KEYS if key != "desks"},
            "desks": st.lists(ONE_DESK | st.sampled_from(["c", "d"]) | JSON, max_size=4) | JSON,
        },
    )
)
@example(content={"desks": [{"name": "a", "endpoint": "http://\udcff/"}]})
@example(content={"state_dir": "a" * 5000})
@example(content={"state_dir": "\ud800"})
@example(content={"desks": ["\ud800"]})
@example(content={"idle_timeout_seconds": 10**400})
@example(content={"desks": [{"name": "a", "endpoint": "http://h/\n"}]})
def test_whatever_the_file_says_it_is_used_or_refused(tmp_path: Path, content: object) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True, exist_ok=True)
    file = tmp_path / "pool.json"
    file.write_text(json.dumps(content))
    try:
        found = read_settings(root=project, config=file, environ={})
    except PeaksError as refused:
        known = refused.code in ("bad_config", "bad_json", "schema_too_new")
        if not known or str(file) not in refused.message:
            pytest.fail(f"{refused.code}: {refused.message}")
    else:
        assert isinstance(found, PoolSettings)
        assert found.desks
        assert found.idle_timeout > 0
        assert len({one.name for one in found.desks}) == len(found.desks)


def test_every_kind_of_desk_can_be_configured(desks: Desks, told: Told) -> None:
    desks.configure(
        "a",
        {"name": "b", "port": desks.port(0), "browser": "chromium", "headed": False},
        {"name": "c", "endpoint": "ws://127.0.0.1:9/devtools"},
        {"name": "e", "endpoint": "http://127.0.0.1:9", "mcp_url": "http://127.0.0.1:8/mcp"},
        {"name": "f", "mcp_url": "http://127.0.0.1:8/mcp"},
        {"name": "g", "external": True},
        version=1,
        idle_timeout_seconds=0.5,
        max_uses=2,
        max_errors=1,
    )
    found = told()
    assert [(row["desk"], row["kind"], row["mcp_url"]) for row in found["desk_details"]] == [
        ("a", "hosted", f"http://localhost:{desks.port(1)}/mcp"),
        ("b", "hosted", f"http://localhost:{desks.port(0)}/mcp"),
        ("c", "endpoint", None),
        ("e", "endpoint", "http://127.0.0.1:8/mcp"),
        ("f", "external", "http://127.0.0.1:8/mcp"),
        ("g", "external", None),
    ]
    assert found["idle_timeout_seconds"] == 0.5


def test_the_number_in_a_desks_name_is_that_of_its_port_whoever_else_comes_and_goes(
    desks: Desks, told: Told
) -> None:
    def ports(*listed: object) -> list[str]:
        desks.configure(*listed)
        return [row["mcp_url"].split(":")[2].split("/")[0] for row in told()["desk_details"]]

    first, second, third, fourth = (str(desks.port(number)) for number in range(4))
    assert ports(*DESKS) == [first, second, third]
    assert ports(DESKS[1], DESKS[2]) == [second, third]
    assert ports(DESKS[2], "x", DESKS[0]) == [third, second, first]
    assert ports("a-1", "b-1", "c-99", "d-0") == [first, second, third, fourth]
    assert ports({"name": "x", "port": desks.port(0)}, DESKS[0], DESKS[1]) == [first, third, second]


# --- A pool that grows and shrinks


def test_a_desk_that_is_added_is_leased_at_once(desks: Desks) -> None:
    desks.configure("a")
    desks.lease("alice")
    desks.fails("no_free_desk", 3, "create", "bob", "--no-browser")
    desks.configure("a", "b")
    assert desks.lease("bob")["desk"] == "b"
    assert desks.rows()["alice"]["desk"] == "a"


def test_a_desk_that_was_removed_drains_and_one_that_returns_is_leased_on(desks: Desks) -> None:
    desks.configure("a", "b")
    desks.lease("alice")
    desks.configure("b")
    shown = desks.ok("pool")
    assert shown["desks"] == ["b"]
    assert shown["leased"] == {"a": "alice"}, "it is not forgotten while somebody sits there"
    assert desks.desk_states() == {"a": "draining", "b": "free"}
    assert desks.ok("save", "alice", "--from", str(desks.storage_state()))["saved"] is True
    assert desks.ok("resume", "alice", "--no-browser")["desk"] == "a"
    assert desks.lease("bob")["desk"] == "b"
    desks.fails("no_free_desk", 3, "create", "carol", "--no-browser")

    # It returns while alice still sits there.
    desks.configure("a", "b")
    assert desks.desk_states() == {"a": "leased", "b": "leased"}
    desks.configure("b")
    assert desks.ok("close", "alice")["freed_desk"] == "a"
    assert desks.desk_states() == {"b": "leased"}
    desks.fails("no_free_desk", 3, "create", "carol", "--no-browser")
    desks.configure("a", "b")
    again = desks.lease("carol")
    assert (again["desk"], again["epoch"] > 1) == ("a", True), "an old lease is never good again"
    desks.ok("close", "carol")
    desks.ok("close", "bob")


def test_the_browser_of_a_removed_desk_serves_its_session_and_ends_with_it(desks: Desks, site: str) -> None:
    desks.configure("a", "b")
    made = desks.ok("create", "alice")
    with desks.client(made) as client:
        assert title(client, site) == "page"
        desks.configure("b")
        assert title(client, site) == "page", "it works on"
        client.call("browser_evaluate", function="() => localStorage.setItem('k', 'v')")
        assert desks.ok("save", "alice")["saved"] is True
        assert desks.state("alice").exists()
        assert desks.runs("a")
        closed = desks.ok("close", "alice")
    assert closed["freed_desk"] == "a"
    assert not desks.runs("a")
    assert desks.desk_states() == {"b": "free"}
    assert not desks.runs("b"), "it was never needed"
    desks.down()


def test_pool_down_ends_a_removed_desk_that_nobody_sits_at(desks: Desks) -> None:
    desks.configure("a", "b")
    desks.ok("pool", "--up")
    assert desks.runs("a")
    assert desks.runs("b")
    desks.configure("b")
    desks.ok("pool", "--down")
    assert not desks.runs("b")
    assert not desks.runs("a")
    assert DESKS[0] not in desks.ok("pool")["desks"]
