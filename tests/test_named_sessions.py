"""`peaks cli -s=NAME …`: sessions that can't meet each other, on a real browser and real sites."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest
from leaks import Surroundings
from named_cli import PEAKS, Project, at_once, failed, finished, wait_until
from webserver import serve

from pytest_peaks.session.paths import ProjectDirs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, modes and links")


@pytest.fixture
def project(tmp_path: Path, surroundings: Surroundings) -> Iterator[Project]:
    """A project of the test's own, checked for leaks at the end."""
    made = Project.make(tmp_path / "project")
    yield made
    surroundings.assert_clean(made.folder)


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# Isolation


def test_four_sessions_opened_at_once_share_nothing(project: Project) -> None:
    names = [f"probe-{word}" for word in ("one", "two", "three", "four")]
    with ExitStack() as stack:
        sites = [stack.enter_context(serve(f"<title>{name}</title><h1>{name}</h1>")) for name in names]
        site_of = dict(zip(names, sites, strict=True))
        opened = at_once([partial(project.open, name, f"{site_of[name]}/first") for name in names])
        assert [answer["session"] for answer in opened] == names
        assert len({answer["pid"] for answer in opened}) == 4

        def put(name: str) -> None:
            # One host: were it one browser, the cookie of whoever comes last would be everybody's.
            project.text(f"-s={name}", "cookie-set", "who", name)
            project.text(f"-s={name}", "localstorage-set", "who", name)
            project.text(f"-s={name}", "sessionstorage-set", "who", name)

        def see(name: str) -> tuple[dict[str, object], str]:
            return project.me(name), project.text(f"-s={name}", "--raw", "snapshot")

        at_once([partial(put, name) for name in names])
        for name, (me, snapshot) in zip(names, at_once([partial(see, name) for name in names]), strict=True):
            assert me == {
                "href": f"{site_of[name]}/first",
                "cookie": f"who={name}",
                "local": {"who": name},
                "session": {"who": name},
            }
            assert re.search(rf'heading "{name}" .*\[ref=e\d+\]', snapshot)
            assert not any(other in snapshot for other in names if other != name)

        def visit(name: str) -> dict[str, object]:
            """At a sibling's site a session is a stranger, and known by its own cookie alone."""
            sibling = names[names.index(name) - 1]
            project.text(f"-s={name}", "goto", f"{site_of[sibling]}/visit")
            return project.me(name)

        for name, me in zip(names, at_once([partial(visit, name) for name in names]), strict=True):
            assert (me["cookie"], me["local"], me["session"]) == (f"who={name}", {}, {})

        parts = {name: project.parts(name) for name in names}
        # The cap: a fifth is refused, and is told who has the others.
        refused = project.fails("TOO_MANY_SESSIONS", 3, "-s=probe-five", "open")
        assert all(f"{name} (process {parts[name]['cli'].pid}, " in refused["message"] for name in names)
        assert "cli_max_sessions" in refused["hint"]

        # Closing one leaves three.
        assert project.ok("-s=probe-two", "close") == {"session": "probe-two", "status": "closed"}
        assert not any(part.is_alive() for part in parts.pop("probe-two").values())
        assert project.states() == dict.fromkeys(sorted(parts), "open")
        assert {name: project.parts(name) for name in parts} == parts
        assert all(at_once([partial(project.works, name, number) for number, name in enumerate(parts)]))
        assert project.me("probe-one")["cookie"] == "who=probe-one"
        project.fails("NOT_OPEN", 2, "-s=probe-two", "eval", "() => 1")

        closed = project.ok("close-all")
        assert closed == {"closed": sorted(parts)}
        assert not any(part.is_alive() for each in parts.values() for part in each.values())
        assert project.text("list").strip() == "(no browsers)"
        assert project.text("close-all") == "No browsers open.\n"


def test_two_projects_with_a_session_of_one_name_do_not_meet(
    project: Project, tmp_path: Path, surroundings: Surroundings
) -> None:
    other = Project.make(tmp_path / "other")
    with serve("<h1>ours</h1>") as site, serve("<h1>theirs</h1>") as their_site:
        at_once([partial(project.open, "probe-same", site), partial(other.open, "probe-same", their_site)])
        project.text("-s=probe-same", "cookie-set", "who", "ours")
        other.text("-s=probe-same", "localstorage-set", "who", "theirs")
        for whose, where, cookie, local in (
            (project, site, "who=ours", {}),
            (other, their_site, "", {"who": "theirs"}),
        ):
            me = whose.me("probe-same")
            assert (me["href"], me["cookie"], me["local"]) == (f"{where}/", cookie, local)
            assert [row["workspace"] for row in whose.listed().values()] == [str(whose.folder)]
        everywhere = project.ok("list", "--all")["browsers"]
        assert {row["workspace"] for row in everywhere} == {str(project.folder), str(other.folder)}
        text = project.text("list", "--all")
        assert f"  - project: {other.folder}\n" in text

        theirs = other.parts("probe-same")
        assert project.ok("close-all") == {"closed": ["probe-same"]}
        assert other.parts("probe-same") == theirs
        project.text("-s=probe-same", "open")
        assert project.ok("kill-all")["killed"] == 1
        assert project.ok("-s=probe-same", "delete-data")["deleted"] is False
        assert other.parts("probe-same") == theirs
        assert other.me("probe-same")["local"] == {"who": "theirs"}
    surroundings_left = [line for line in surroundings.leftovers(project.folder) if "reservation" in line]
    assert len(surroundings_left) == 1  # the other's name
    # By --project a session is reached from anywhere.
    done = project.cli("-s=probe-same", "close", f"--project={other.folder}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Browser 'probe-same' closed\n\n")
    surroundings.assert_clean(other.folder)


# Driving


def test_a_session_is_driven_from_any_process_and_sub_directory(project: Project, tmp_path: Path) -> None:
    with serve("<h1>here</h1><button onclick='document.title=\"clicked\"'>go</button>") as site:
        opened = project.open("probe-drive", site)
        assert opened["pid"] == project.parts("probe-drive")["cli"].pid
        assert (project.folder / opened["result"]["snapshot"]["file"]).is_file()
        below = project.folder / "a" / "b"
        below.mkdir(parents=True)
        # Output as the original's, its bare value, and its object.
        plain = project.text("-s=probe-drive", "eval", "() => location.href", cwd=below)
        assert plain.startswith(f'### Result\n"{site}/"\n')
        raw = project.text("-s=probe-drive", "--raw", "eval", "() => location.href", cwd=below)
        assert raw == f'"{site}/"\n'
        assert project.raw("probe-drive", "eval", "() => ({a: [1, null, 'ü'], b: true})") == {
            "a": [1, None, "ü"],
            "b": True,
        }
        assert json.loads(project.ok("-s=probe-drive", "eval", "() => location.href")["result"]) == f"{site}/"
        assert isinstance(project.ok("-s=probe-drive", "snapshot")["snapshot"], list)
        # Refs, and what the page makes of a click.
        snapshot = project.text("-s=probe-drive", "--raw", "snapshot")
        ref = re.search(r'button "go" \[ref=(e\d+)\]', snapshot)
        assert ref is not None, snapshot
        project.text("-s", "probe-drive", "click", ref[1])
        assert project.raw("probe-drive", "eval", "() => document.title") == "clicked"
        # The name may come from the environment, the project from an option.
        assert project.text("--raw", "eval", "() => 1", PLAYWRIGHT_CLI_SESSION="probe-drive") == "1\n"
        elsewhere = project.text(
            "-s=probe-drive", "--raw", "eval", "() => 2", f"--project={below}", cwd=tmp_path
        )
        assert elsewhere == "2\n"
        project.fails("NOT_OPEN", 2, "-s=probe-drive", "eval", "() => 1", cwd=tmp_path)

        # A live name can't be had again, by whatever the new one would be.
        for arguments in (["open"], ["open", "--persistent"], ["attach", "--cdp=http://127.0.0.1:1"]):
            refused = project.fails("SESSION_EXISTS", 2, "-s=probe-drive", *arguments)
            assert f"process {opened['pid']}" in refused["message"]
            assert f"opened in {project.folder}" in refused["message"]
        assert project.raw("probe-drive", "eval", "() => document.title") == "clicked"

        # Many may drive it at once; each gets its own answer.
        assert all(at_once([partial(project.works, "probe-drive", number) for number in range(6)]))

        # What fails in the page is the daemon's to say.
        done = project.cli("-s=probe-drive", "--json", "eval", "() => { throw new Error('oh') }")
        assert done.returncode == 1
        assert (json.loads(done.stdout)["isError"], "oh" in json.loads(done.stdout)["error"]) == (True, True)
        done = project.cli("-s=probe-drive", "click", "e999")
        assert (done.returncode, "### Error" in done.stdout) == (1, True)
        refused = project.fails("CLI_USAGE", 2, "-s=probe-drive", "mousemove", "left", "right")
        assert "mousemove" in refused["message"]
        assert project.works("probe-drive")
        assert project.text("-s=probe-drive", "close") == "Browser 'probe-drive' closed\n\n"
        assert project.text("-s=probe-drive", "close") == "Browser 'probe-drive' is not open.\n"
        assert project.ok("-s=probe-drive", "close") == {"session": "probe-drive", "status": "not-open"}


def test_list_says_what_is_open_as_text_and_as_json(project: Project) -> None:
    assert project.ok("list") == {"browsers": []}
    assert not (project.folder / ".peaks").exists()
    project.open("probe-list")
    project.text("-s=probe-kept", "open", "--persistent")
    rows = project.listed()
    plain = rows["probe-list"]
    assert {
        "name": "probe-list",
        "workspace": str(project.folder),
        "status": "open",
        "browserType": "chromium",
        "userDataDir": None,
        "headed": False,
        "persistent": False,
        "attached": False,
        "compatible": True,
    }.items() <= plain.items()
    assert re.fullmatch(r"1\.\d+\.\S+", plain["version"])
    parts = project.parts("probe-list")
    assert (plain["pid"], plain["browserPid"]) == (parts["cli"].pid, parts["browser"].pid)
    kept = rows["probe-kept"]
    profile = project.dirs.profiles / "cli-probe-kept"
    assert (kept["persistent"], kept["userDataDir"]) == (True, str(profile))
    text = project.text("list")
    assert text.startswith("### Browsers\n- probe-kept:\n  - status: open\n  - browser-type: chromium\n")
    assert f"  - user-data-dir: {profile}\n" in text
    assert "- probe-list:\n" in text
    assert "  - user-data-dir: <in-memory>\n  - headed: false\n" in text
    project.text("close-all")
    assert project.ok("-s=probe-kept", "delete-data")["deleted"] is True


def test_help_and_version_need_no_session(project: Project) -> None:
    helped = project.text("--help")
    assert helped == project.text()
    assert {"Browser sessions:", "--auth=<name>", "peaks cli -s=<session>"} <= {
        part
        for part in ("Browser sessions:", "--auth=<name>", "peaks cli -s=<session>", "playwright-cli <")
        if part in helped
    }
    assert "playwright-cli <command>" not in helped
    click = project.text("--help", "click")
    assert click == project.text("click", "--help")
    assert "peaks cli click <target>" in click
    assert "--auth" not in click
    assert "--auth=<name>" in project.text("open", "--help")
    assert re.fullmatch(r"(Version )?1\.\d+\.\S+\n", project.text("--version"))
    assert not (project.folder / ".peaks").exists()


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("CLI_USAGE", ["-s=probe-x1", "opne"]),
        ("CLI_USAGE", ["-s=probe-x1", "open", "--in-memory"]),
        ("CLI_USAGE", ["-s=probe-x1", "open", "http://127.0.0.1:1", "more"]),
        ("CLI_USAGE", ["-s=probe-x1", "open", "--idle-timeout=soon"]),
        ("CLI_USAGE", ["-s=probe-x1", "close", "--auth=admin"]),
        ("CLI_USAGE", ["-s=probe-x1", "attach"]),
        ("CLI_USAGE", ["-s=probe-x1", "attach", "title", "--cdp=http://127.0.0.1:1"]),
        ("INVALID_OPTION", ["-s=probe-x1", "open", "--browser=netscape"]),
        ("INVALID_OPTION", ["-s=probe-x1", "open", "--config=nowhere.json"]),
        ("INVALID_OPTION", ["list", "--project=nowhere"]),
        ("NO_DISPLAY", ["-s=probe-x1", "open", "--headed"]),
        ("BROWSER_NOT_FOUND", ["-s=probe-x1", "open", "--executable=nowhere"]),
        ("NAME_MISSING", ["open"]),
        ("NAME_MISSING", ["snapshot"]),
        ("CLI_USAGE", ["-s=", "close"]),
        ("NAME_RESERVED", ["-s=default", "open"]),
        ("NAME_PREFIX", ["-s=checkout-1", "open"]),
        ("NAME_TOO_SHORT", ["-s=fd-1", "open"]),
        ("NAME_TOO_LONG", ["-s=probe-" + "x" * 23, "open"]),
        ("INVALID_NAME", ["-s=probe-A", "open"]),
        ("INVALID_NAME", ["-s=../probe-x", "open"]),
        ("INVALID_NAME", ["-s=../probe-x", "close"]),
        ("INVALID_NAME", ["-s=probe/../../x", "delete-data"]),
        ("INVALID_NAME", ["-s=a/b", "state-save"]),
        ("INVALID_NAME", ["-s=a/b", "attach", "--cdp=http://127.0.0.1:1"]),
        ("INVALID_NAME", ["-s=/etc/passwd", "snapshot"]),
        ("NOT_OPEN", ["-s=probe-x1", "snapshot"]),
        ("NOT_OPEN", ["-s=probe-x1", "state-save", "admin"]),
        ("STATE_NOT_FOUND", ["-s=probe-x1", "open", "--auth=nobody"]),
        ("INVALID_NAME", ["-s=probe-x1", "open", "--auth=../../nobody"]),
    ],
)
def test_what_is_refused_starts_nothing_and_writes_nothing(
    project: Project, tmp_path: Path, code: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    before = everything_below(tmp_path)
    statuses = {"NO_DISPLAY": 1, "BROWSER_NOT_FOUND": 1}
    refused = project.fails(code, statuses.get(code, 2), *arguments)
    assert refused["message"]
    assert "--peaks-" not in refused["hint"]
    assert everything_below(tmp_path) - before <= {"runtime"}
    # As text it is the same, on stderr, and nothing else is said.
    if code in ("NAME_MISSING", "NOT_OPEN"):
        done = project.cli(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{code}: {refused['message']}\nhint: {refused['hint']}\n"


def test_a_browser_that_does_not_start_leaves_nothing(project: Project) -> None:
    broken = project.folder / "chrome"
    broken.write_text("#!/bin/sh\necho it has no wheels >&2\nexit 3\n")
    broken.chmod(0o755)
    refused = project.fails("START_FAILED", 5, "-s=probe-x1", "open", f"--executable={broken}")
    assert "probe-x1" in refused["message"]
    refused = project.fails("START_FAILED", 5, "-s=probe-x1", "attach", "--cdp=http://127.0.0.1:1")
    assert "is the browser still there" in refused["hint"]
    refused = project.fails(
        "START_FAILED", 5, "-s=probe-x1", "attach", "--extension=msedge", HOME=str(project.folder)
    )
    assert "microsoft-edge" in refused["message"]
    assert project.states() == {}
    assert list(project.dirs.artifacts.iterdir()) in ([], [project.dirs.artifacts / "probe-x1"])


def test_a_page_that_cannot_be_reached_is_no_reason_to_end_the_session(project: Project) -> None:
    done = project.cli("-s=probe-x1", "open", "http://127.0.0.1:1/")
    assert done.returncode == 1
    assert "ERR_" in done.stdout
    assert project.works("probe-x1")
    project.text("-s=probe-x1", "close")


# Races


@pytest.mark.parametrize("left", ["nothing", "a dead session"])
def test_of_eight_that_open_one_name_at_once_one_wins(project: Project, left: str) -> None:
    if left != "nothing":
        # All eight clear it away, and one of them has opened it anew before the others are done.
        project.open("probe-race")
        psutil.Process(project.record("probe-race").owner.pid).kill()
        wait_until(lambda: project.states() == {"probe-race": "dead"}, "its end")
    opens = [project.spawn("cli", "--json", "-s=probe-race", "open") for _ in range(8)]
    done = [finished(each) for each in opens]
    [winner] = [each for each in done if each.returncode == 0]
    for loser in done:
        if loser is not winner:
            assert "probe-race" in failed(loser, "SESSION_EXISTS", 2)["message"]
    assert json.loads(winner.stdout)["pid"] == project.parts("probe-race")["cli"].pid
    assert project.states() == {"probe-race": "open"}
    assert project.works("probe-race")
    project.text("close-all")


def test_of_eight_names_opened_at_once_as_many_win_as_are_allowed(project: Project) -> None:
    names = [f"probe-{number}" for number in range(8)]
    opens = [project.spawn("cli", "--json", f"-s={name}", "open") for name in names]
    done = [finished(each) for each in opens]
    winners = {json.loads(each.stdout)["session"] for each in done if each.returncode == 0}
    assert len(winners) == 4
    for loser in done:
        if loser.returncode:
            message = failed(loser, "TOO_MANY_SESSIONS", 3)["message"]
            assert message.startswith("4 of 4 sessions are open: ")
            assert all(f"{name} (process " in message for name in winners)
    assert project.states() == dict.fromkeys(winners, "open")
    assert all(at_once([partial(project.works, name) for name in winners]))
    assert project.ok("kill-all")["killed"] == 4


def test_the_cap_is_the_projects_own(project: Project) -> None:
    (project.folder / "pyproject.toml").write_text("[tool.peaks]\ncli_max_sessions = 1\n")
    project.open("probe-one")
    project.fails("TOO_MANY_SESSIONS", 3, "-s=probe-two", "open")
    project.open("probe-two", PEAKS_CLI_MAX_SESSIONS="2")
    project.text("close-all")


# Profiles


@pytest.mark.slow
def test_a_profile_is_kept_only_where_that_was_asked_for(project: Project) -> None:
    with serve() as site:

        def kept(*options: str, end: str = "close") -> object:
            project.open("probe-keep", site, *options)
            me = project.me("probe-keep")["local"]
            project.text("-s=probe-keep", "localstorage-set", "who", "me")
            project.text("-s=probe-keep", end)
            return me

        assert kept() == {}
        assert kept() == {}
        assert kept("--persistent") == {}
        assert kept("--persistent") == {"who": "me"}
        profile = project.dirs.profiles / "cli-probe-keep"
        assert profile.stat().st_mode & 0o777 == 0o700
        # A sweep takes it for the user's, as it is.
        assert project.peaks("reap").returncode == 0
        assert profile.is_dir()
        # delete-data ends the session that is at it, and says what it did.
        assert kept("--persistent", end="delete-data") == {"who": "me"}
        assert not profile.exists()
        assert not (project.dirs.artifacts / "probe-keep").exists()
        again = project.ok("-s=probe-keep", "delete-data")
        assert again == {"session": "probe-keep", "deleted": False}
        assert project.text("-s=probe-keep", "delete-data").startswith("No user data found for browser")


def test_a_users_own_profile_is_the_users(project: Project) -> None:
    profile = project.folder / "mine"
    with serve() as site:
        project.open("probe-mine", site, "--profile=mine")
        project.text("-s=probe-mine", "localstorage-set", "who", "me")
        assert project.listed()["probe-mine"]["userDataDir"] == str(profile)
        # Nobody else may have it meanwhile, by whatever name.
        link = project.folder / "link"
        link.symlink_to(profile)
        for path in (profile, link, project.folder / "x" / ".." / "mine"):
            refused = project.fails("PROFILE_IN_USE", 2, "-s=probe-more", "open", f"--profile={path}")
            assert "cli-probe-mine" in refused["message"]
        assert project.states() == {"probe-mine": "open"}
        assert project.works("probe-mine")
        assert project.ok("-s=probe-mine", "delete-data")["deleted"] is False
        assert profile.is_dir()
        project.open("probe-mine", site, f"--profile={profile}")
        assert project.me("probe-mine")["local"] == {"who": "me"}
        project.text("-s=probe-mine", "close")
    for nonsense in (project.folder, Path.home()):
        project.fails("INVALID_USER_DATA_DIR", 2, "-s=probe-mine", "open", f"--profile={nonsense}")
    assert profile.is_dir()


# Saved logins


def test_a_login_is_saved_privately_and_whole(project: Project) -> None:
    with serve() as site:
        project.open("probe-save", site)
        project.text("-s=probe-save", "cookie-set", "token", "s3cret-value", "--httpOnly")
        below = project.folder / "below"
        below.mkdir()
        saved = {
            "admin": project.folder / ".peaks" / "auth" / "admin.json",
            "new/er/state.json": below / "new" / "er" / "state.json",
            str(project.folder / "state.json"): project.folder / "state.json",
        }
        # What is there already is replaced, with its mode.
        (project.folder / "state.json").write_text("old")
        (project.folder / "state.json").chmod(0o644)
        for wanted, path in saved.items():
            answer = project.ok("-s=probe-save", "state-save", wanted, cwd=below)
            assert answer["file"] == str(path)
            assert path.stat().st_mode & 0o777 == 0o600
            state = json.loads(path.read_text())
            assert [(cookie["name"], cookie["value"]) for cookie in state["cookies"]] == [
                ("token", "s3cret-value")
            ]
            assert [each.name for each in path.parent.iterdir() if each.name.startswith(".tmp")] == []
        unnamed = Path(project.ok("-s=probe-save", "state-save")["file"])
        assert unnamed.parent == project.dirs.artifacts / "probe-save"
        assert unnamed.stat().st_mode & 0o777 == 0o600

        # No link is followed and no folder replaced, and what a link leads to stays as it is.
        target = project.folder / "target.json"
        target.write_text("untouched")
        (project.folder / "link.json").symlink_to(target)
        (project.folder / "dangling.json").symlink_to(project.folder / "nowhere.json")
        (project.folder / "folder.json").mkdir()
        for path in ("link.json", "dangling.json", "folder.json"):
            project.fails("INVALID_STATE", 2, "-s=probe-save", "state-save", f"./{path}")
        project.fails("NOT_WRITABLE", 4, "-s=probe-save", "state-save", "target.json/state.json")
        project.fails("INVALID_NAME", 2, "-s=probe-save", "state-save", "A b")
        assert target.read_text() == "untouched"
        assert (project.folder / "link.json").is_symlink()
        assert not (project.folder / "nowhere.json").exists()
        # Nothing of it is left where it was handed over.
        temp = Path(project.record("probe-save").temp_dir)
        assert not list(temp.glob("*.json.part")) + list(temp.glob("state-*"))
        project.text("-s=probe-save", "close")


MARK = "s3cret-content"


def test_a_login_is_loaded_by_name_and_by_path_and_what_is_none_is_never_quoted(project: Project) -> None:
    auth = project.folder / ".peaks" / "auth"
    auth.mkdir(parents=True)
    with serve() as site:
        state = {
            "cookies": [
                {
                    "name": "who",
                    "value": MARK,
                    "domain": "127.0.0.1",
                    "path": "/",
                    "expires": -1,
                    "httpOnly": False,
                    "secure": False,
                    "sameSite": "Lax",
                }
            ],
            "origins": [{"origin": site, "localStorage": [{"name": "who", "value": MARK}]}],
        }
        (auth / "admin.json").write_text(json.dumps(state))
        wrong = json.loads(json.dumps(state))
        wrong["cookies"][0]["sameSite"] = MARK
        bad = {
            "torn.json": json.dumps(state)[:-9],
            "list.json": f'["{MARK}"]',
            "other.json": json.dumps({"cookies": MARK, "origins": []}),
            "wrong.json": json.dumps(wrong),
            "name.json": json.dumps({"cookies": [{"name": MARK}], "origins": []}),
            "binary.json": f"\xff{MARK}",
            "null.json": "null",
        }
        for name, content in bad.items():
            (project.folder / name).write_bytes(content.encode("latin-1"))
        (project.folder / "link.json").symlink_to(auth / "admin.json")
        (project.folder / "folder.json").mkdir()
        os.mkfifo(project.folder / "fifo.json")

        project.open("probe-load", site)
        for name in (*bad, "link.json", "folder.json", "fifo.json"):
            done = project.cli("--json", "-s=probe-load", "state-load", name)
            assert MARK not in done.stdout + done.stderr, name
            refused = failed(done, "INVALID_STATE", 2)
            assert name in refused["message"]
        for name in ("nowhere.json", "nobody"):
            project.fails("STATE_NOT_FOUND", 2, "-s=probe-load", "state-load", name)
        project.fails("CLI_USAGE", 2, "-s=probe-load", "state-load")
        assert project.me("probe-load")["cookie"] == ""

        assert project.ok("-s=probe-load", "state-load", "admin") == {"session": "probe-load", "loaded": True}
        me = project.me("probe-load")
        assert (me["cookie"], me["local"]) == (f"who={MARK}", {"who": MARK})
        # It replaces what was there.
        project.text("-s=probe-load", "cookie-set", "more", "1")
        assert project.text("-s=probe-load", "state-load", ".peaks/auth/admin.json") == ""
        assert project.me("probe-load")["cookie"] == f"who={MARK}"
        project.text("-s=probe-load", "close")


def test_with_auth_the_very_first_request_is_logged_in(project: Project) -> None:
    seen: list[tuple[str, str]] = []
    with serve(seen=seen) as site:
        project.open("probe-login", site)
        project.text("-s=probe-login", "cookie-set", "who", "admin")
        project.text("-s=probe-login", "localstorage-set", "who", "admin")
        # Words that the code by which it is replayed has places for; they are none in a value.
        tab = "WANTED BODY BLANK SEED \" '"
        project.text("-s=probe-login", "sessionstorage-set", "who", tab)
        project.text("-s=probe-login", "state-save", "admin")
        project.text("-s=probe-login", "close")
        seen.clear()

        at_once(
            [
                partial(project.open, name, f"{site}/{name}", "--auth=admin")
                for name in ("probe-first", "probe-second")
            ]
        )
        assert sorted(seen) == [("/probe-first", "who=admin"), ("/probe-second", "who=admin")]
        assert project.me("probe-first")["local"] == {"who": "admin"}
        assert json.loads(project.text("-s=probe-first", "--raw", "eval", "sessionStorage.who")) == tab
        # One that can't be had is refused before anything is started; nobody is asked for a page.
        (project.folder / ".peaks" / "auth" / "broken.json").write_text('{"cookies": "s3cret"}')
        project.fails("STATE_NOT_FOUND", 2, "-s=probe-third", "open", f"{site}/third", "--auth=nobody")
        project.fails("INVALID_STATE", 2, "-s=probe-third", "open", f"{site}/third", "--auth=broken")
        assert not (project.dirs.artifacts / "probe-third").exists()
        # One that the browser itself refuses ends the session that was to have it.
        cookie = {"name": "who", "value": "s3cret", "domain": "127.0.0.1", "path": "/", "sameSite": 7}
        (project.folder / ".peaks" / "auth" / "broken.json").write_text(
            json.dumps({"cookies": [cookie], "origins": []})
        )
        refused = project.fails(
            "INVALID_STATE", 2, "-s=probe-third", "open", f"{site}/third", "--auth=broken"
        )
        assert "s3cret" not in str(refused)
        assert len(seen) == 2
        assert sorted(project.states()) == ["probe-first", "probe-second"]
        project.text("close-all")


def test_no_secret_is_written_to_a_log(project: Project) -> None:
    with serve("<input type=password><script>console.log('s3cret-log')</script>") as site:
        # Nor with what a shell may have set to debug something else.
        project.open("probe-quiet", site, DEBUG="pw:*", PWDEBUG="1")
        project.text("-s=probe-quiet", "fill", "input", "s3cret-typed")
        project.text("-s=probe-quiet", "cookie-set", "who", "s3cret-cookie")
        assert project.raw("probe-quiet", "eval", "() => document.querySelector('input').value")
        project.text("-s=probe-quiet", "state-save", "admin")
        project.text("-s=probe-quiet", "state-load", "admin")
        logs = list(project.dirs.logs.iterdir())
        assert [log.name for log in logs] == ["cli-probe-quiet.log"]
        assert "s3cret" not in logs[0].read_text(errors="replace")
        assert "s3cret" not in (project.dirs.records / "cli-probe-quiet.json").read_text()
        project.text("-s=probe-quiet", "close")


# Artifacts


def test_artifacts_go_to_the_sessions_own_folder(project: Project) -> None:
    shutil.rmtree(project.folder / ".git")
    subprocess.run(["git", "init", "-q", str(project.folder)], check=True)
    below = project.folder / "below"
    below.mkdir()
    with serve("<a download href='/file.txt'>get</a>") as site:
        project.text("-s=probe-files", "open", site, cwd=below)
        for arguments in (["snapshot"], ["screenshot"], ["pdf"], ["click", "a"]):
            project.text("-s=probe-files", *arguments, cwd=below)
        folder = project.dirs.artifacts / "probe-files"
        wait_until((folder / "file.txt").exists, "the download")
        endings = {path.suffix for path in folder.iterdir()}
        assert {".yml", ".png", ".pdf", ".txt"} <= endings
        assert folder.stat().st_mode & 0o777 == 0o700
        status = ["git", "-C", str(project.folder), "status", "--porcelain", "--untracked-files=all"]
        assert subprocess.run(status, check=True, capture_output=True, text=True).stdout == ""
        assert {path.name for path in project.folder.iterdir()} == {".git", ".peaks", "below"}
        assert list(below.iterdir()) == []
        # A name that is given is the caller's.
        project.text("-s=probe-files", "screenshot", "--filename=shot.png", cwd=below)
        assert (below / "shot.png").read_bytes().startswith(b"\x89PNG")
        assert [path.name for path in below.iterdir()] == ["shot.png"]
        project.text("-s=probe-files", "close")
    # They are there to be looked at after the session; the name's next one begins without.
    assert {".yml", ".png", ".pdf", ".txt"} <= {path.suffix for path in folder.iterdir()}
    project.open("probe-files")
    assert {path.suffix for path in folder.iterdir()} <= {".yml"}
    # Those of sessions of long ago go, but for a live one's; nothing goes that a link leads to.
    old, link = folder.parent / "probe-old", folder.parent / "probe-link"
    (old / "below").mkdir(parents=True)
    (old / "out").symlink_to(below)
    link.symlink_to(below)
    for path in (old, link, folder):
        os.utime(path, (1, 1), follow_symlinks=False)
    project.open("probe-other")
    assert {path.name for path in folder.parent.iterdir()} == {"probe-files", "probe-link", "probe-other"}
    assert [path.name for path in below.iterdir()] == ["shot.png"]
    project.text("close-all")


def test_a_configuration_file_does_not_move_artifacts_or_share_a_browser(
    project: Project, tmp_path: Path
) -> None:
    config = project.folder / ".playwright" / "cli.config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"outputDir": "here", "browser": {"contextOptions": {"locale": "de-DE"}}}))
    project.open("probe-config")
    assert project.raw("probe-config", "eval", "() => navigator.language") == "de-DE"
    project.text("-s=probe-config", "screenshot")
    assert {path.name for path in project.folder.iterdir()} == {".git", ".peaks", ".playwright"}
    assert list(config.parent.iterdir()) == [config]
    # One from which all sessions would get one profile or one browser is refused, wherever it is.
    home = tmp_path / "home" / ".playwright"
    home.mkdir(parents=True)
    ini = project.folder / "cli.ini"
    shared = {
        "userDataDir": str(project.folder / "shared"),
        "cdpEndpoint": "http://127.0.0.1:1",
        "remoteEndpoint": "ws://127.0.0.1:1",
    }
    for key, value in shared.items():
        ini.write_text(f"browser.browserName = chromium\nbrowser.{key} = {value}\n")
        config.write_text(json.dumps({"browser": {key: value}}))
        for arguments in ([], [f"--config={ini}"], ["--config=cli.ini"]):
            refused = project.fails("INVALID_OPTION", 2, "-s=probe-shared", "open", *arguments)
            assert key in refused["message"]
        config.rename(home / config.name)
        refused = project.fails("INVALID_OPTION", 2, "-s=probe-shared", "open", HOME=str(home.parent))
        assert str(home) in refused["message"]
    assert not (project.folder / "shared").exists()
    project.text("-s=probe-config", "close")


# Surroundings


def test_settings_in_the_environment_are_honoured_but_for_what_would_be_shared(
    project: Project, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    project.open(
        "probe-env",
        PLAYWRIGHT_MCP_VIEWPORT_SIZE="700x500",
        PLAYWRIGHT_MCP_CDP_ENDPOINT="http://127.0.0.1:1",
        PLAYWRIGHT_MCP_USER_DATA_DIR=str(shared),
        PLAYWRIGHT_MCP_ISOLATED="false",
        PLAYWRIGHT_MCP_OUTPUT_DIR=str(shared),
        PLAYWRIGHT_MCP_CONFIG=str(tmp_path / "nowhere.json"),
        PLAYWRIGHT_MCP_PORT="1",
        PLAYWRIGHT_MCP_EXTENSION="true",
    )
    assert project.raw("probe-env", "eval", "() => [innerWidth, innerHeight]") == [700, 500]
    assert project.listed()["probe-env"]["persistent"] is False
    project.text("-s=probe-env", "screenshot", PLAYWRIGHT_MCP_OUTPUT_DIR=str(shared))
    assert not shared.exists()
    project.text("-s=probe-env", "close")


def test_long_paths_are_no_obstacle(tmp_path: Path, surroundings: Surroundings) -> None:
    # A socket's name has to fit, and Chromium would abort.
    long = tmp_path / ("x" * 150)
    long.mkdir()
    project = Project.make(tmp_path / ("p" * 120) / ("q" * 100))
    name = "probe-" + "x" * 22
    project.open(name, TMPDIR=str(long))
    temp = Path(project.record(name).temp_dir)
    assert long not in temp.parents
    # From another TMPDIR it is the same session.
    assert project.works(name)
    project.fails("SESSION_EXISTS", 2, f"-s={name}", "open", TMPDIR=str(long))
    project.text(f"-s={name}", "close", TMPDIR=str(long))
    assert not temp.exists()
    assert list(long.iterdir()) == []
    surroundings.assert_clean(project.folder)


def test_a_project_that_cannot_hold_files_has_its_folder_in_the_users_state(
    tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = Project.make(tmp_path / "project")
    (project.folder / ".peaks").write_text("root may write anywhere, but not below a file")
    before = everything_below(project.folder)
    project.open("probe-away")
    project.text("-s=probe-away", "screenshot")
    assert project.works("probe-away")
    dirs = ProjectDirs.locate(project.folder)
    assert tmp_path / "state" in dirs.base.parents
    assert (dirs.records / "cli-probe-away.json").exists()
    assert [path.suffix for path in (dirs.artifacts / "probe-away").glob("*.png")] == [".png"]
    [row] = project.ok("list", "--all")["browsers"]
    assert row["workspace"] == str(project.folder)
    project.text("close-all")
    assert everything_below(project.folder) == before
    assert list(dirs.records.iterdir()) == []
    surroundings.assert_clean(project.folder)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("xvfb-run") is None, reason="needs a virtual display")
def test_a_session_with_a_window(project: Project) -> None:
    opening = f"{shlex.join([*PEAKS, 'cli', '-s=probe-window', 'open', '--headed'])} && cat"
    with subprocess.Popen(
        ["xvfb-run", "-a", "sh", "-c", opening],
        cwd=project.folder,
        env={**os.environ, **project.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as display:
        wait_until(
            lambda: project.states() == {"probe-window": "open"} or display.poll() is not None, "a window"
        )
        assert project.listed()["probe-window"]["headed"] is True
        assert project.works("probe-window")
        assert "Headless" not in project.raw("probe-window", "eval", "() => navigator.userAgent")
        project.text("-s=probe-window", "close")
        assert display.stdin is not None
        display.stdin.close()


def test_another_browser_can_be_asked_for(project: Project) -> None:
    # Whether it is there or not, the answer is a session or a coded failure, and nothing is left.
    done = project.cli("--json", "-s=probe-other", "open", "--browser=firefox")
    if done.returncode == 0:
        assert project.listed()["probe-other"]["browserType"] == "firefox"
        project.text("-s=probe-other", "close")
    else:
        assert json.loads(done.stdout)["error"] in ("BROWSER_NOT_FOUND", "START_FAILED")
    assert project.states() == {}
