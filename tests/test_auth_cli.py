"""`peaks auth`: saving, looking at, checking and moving logins by hand, and that no verb prints a value."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from authapp import App, serve
from leaks import Surroundings
from test_auth_login import HOOK, cookie, make, save, state_file
from test_auth_replay import BAD_FILES, write_bad

from pytest_peaks.auth.by_hand import in_a_window
from pytest_peaks.errors import LoginFailedError, PeaksError
from pytest_peaks.session.paths import ProjectDirs

CANARY = "canary"


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


class Auth:
    """`peaks auth` in one project.

    :ivar said: all that it ever printed.
    """

    def __init__(self, peaks: Callable[..., subprocess.CompletedProcess[str]], folder: Path) -> None:
        self._peaks = peaks
        self.folder = folder
        self.said = ""

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        done = self._peaks("auth", *arguments, cwd=self.folder, env=env)
        self.said += done.stdout + done.stderr
        return done

    def answer(self, *arguments: str, **env: str) -> dict[str, Any]:
        done = self(*arguments, "--json", **env)
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["ok"] == (done.returncode == 0)
        return found


@pytest.fixture
def auth(project: pytest.Pytester, peaks: Callable[..., subprocess.CompletedProcess[str]]) -> Iterator[Auth]:
    made = Auth(peaks, project.path)
    yield made
    assert CANARY not in made.said, "no verb prints a value"


def entering(app: App) -> str:
    """The URL of a page that logs in by itself, and keeps a cookie and tokens in its storage."""
    html = (
        "<script>fetch('/login',{method:'POST',body:'user=admin'}).then(()=>{sessionStorage.token='canary1';"
        "localStorage.token='canary2';location.href='/me?code=canary3%23canary4'})</script>"
    )
    return f"{app.url}/page?html={html.replace('+', '%2B').replace('&', '%26')}"


def test_a_login_is_saved_looked_at_checked_moved_and_removed(
    auth: Auth, app: App, project: pytest.Pytester, tmp_path: Path
) -> None:
    assert auth("ls").stdout == "0 saved logins\n"
    done = auth("save", "admin", "--url", entering(app), "--headless", "--until", "**/me*")
    assert done.returncode == 0, done.stderr
    assert "saved admin: 2 cookies, localStorage of 1 origin, sessionStorage of 1 origin" in done.stdout
    file = state_file(project)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["peaks"]["sessionStorage"] == {app.url: {"token": "canary1"}}

    [row] = auth.answer("ls")["logins"]
    assert (row["name"], row["account"], row["encrypted"], row["expired"]) == ("admin", "", False, False)
    assert row["origins"] == [app.url]
    assert row["age"].endswith(" s")
    line = auth("ls").stdout
    assert line.startswith("admin  age=")
    assert f"origins={app.url}  ends=20" in line
    assert line.endswith("plain\n")

    shown = auth.answer("show", "admin")
    assert {entry["name"]: entry["value"] for entry in shown["cookies"]} == {"sid": "***", "seen": "***"}
    assert shown["url"] == f"{app.url}/me"
    assert auth("show", "admin").stdout.splitlines()[-1] == (
        f"  {app.url}  localStorage: token, sessionStorage: token"
    )

    assert auth("check", "admin").stdout == "auth 'admin' is good by its dates; --url tries it\n"
    assert auth("check", "admin", "--url", f"{app.url}/me").returncode == 0
    (project.path / "pyproject.toml").write_text(f"[tool.peaks.auth.admin]\nurl = '{app.url}/me'\n")
    app.end_all()
    refused = auth("check", "admin")
    assert refused.returncode == 2
    assert refused.stderr == (
        f"AUTH_EXPIRED: auth 'admin' is not taken: {app.url}/me leads to {app.url}/login\n"
        "hint: `peaks auth save admin` renews it\n"
    )

    target = tmp_path / "out" / "plain.json"
    assert "it holds secrets in plain text" in auth("export", "admin", str(target)).stdout
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert auth.answer("import", str(target))["name"] == "plain"
    assert json.loads(state_file(project, "plain").read_text()) == json.loads(file.read_text())
    assert auth("rm", "plain").stdout == f"removed {state_file(project, 'plain')}\n"
    assert not state_file(project, "plain").exists()
    assert auth("rm", "plain").returncode == 2
    assert len(app.logins) == 1


def test_a_check_tries_what_only_a_pages_script_can_tell(
    auth: Auth, app: App, project: pytest.Pytester
) -> None:
    url = f"{app.url}/enter/indexed?user=admin"
    # The title says when it is done; the URL stays.
    html = (
        f"<script>onload=()=>{{const f=document.createElement('iframe');f.src='{url}';"
        "f.onload=()=>setTimeout(()=>location.hash='done',1000);document.body.append(f)}</script><body>"
    )
    done = auth("save", "admin", "--url", f"{app.url}/page?html={html}", "--headless", "--until", "*#done")
    assert done.returncode == 0, done.stderr
    assert "IndexedDB of 1 origin" in done.stdout
    assert auth("check", "admin", "--url", f"{app.url}/app/indexed").returncode == 0
    app.end_all()
    refused = auth("check", "admin", "--url", f"{app.url}/app/indexed")
    assert refused.returncode == 2
    assert f"{app.url}/app/indexed leads to {app.url}/login" in refused.stderr
    assert "answers 401" in auth("check", "admin", "--url", f"{app.url}/rotate").stderr
    closed = auth("check", "admin", "--url", "http://127.0.0.1:9/")
    assert closed.returncode == 1
    assert closed.stderr.startswith("LOGIN_FAILED: auth 'admin' could not be tried: ")


def test_a_login_is_taken_from_a_hosted_session_whose_tabs_stay(
    auth: Auth,
    app: App,
    peaks: Callable[..., subprocess.CompletedProcess[str]],
    project: pytest.Pytester,
    surroundings: Surroundings,
) -> None:
    from pytest_peaks.doors.mcp import McpClient

    port = str(surroundings.ports[-1])
    started = peaks("playwright", "start", "--terminal", "t1", "--port", port, "--json", cwd=project.path)
    try:
        url = json.loads(started.stdout)["mcpUrl"]
        with McpClient(url) as client:
            client.call("browser_navigate", url=entering(app))
            client.call("browser_wait_for", text="admin")
            done = auth("save", "admin", "--from", "t1")
            assert done.returncode == 0, done.stderr
            tabs = client.call("browser_tabs", action="list").text
            assert tabs.count("/me?code") == 1
            assert "__peaks" not in tabs
            assert "admin" in client.call("browser_evaluate", function="() => document.title").text
    finally:
        peaks("playwright", "stop", "--terminal", "t1", cwd=project.path)
    kept = json.loads(state_file(project).read_text())
    assert {entry["name"] for entry in kept["cookies"]} >= {"sid"}
    assert kept["origins"][0]["localStorage"] == [{"name": "token", "value": "canary2"}]
    assert kept["peaks"]["sessionStorage"] == {app.url: {"token": "canary1"}}
    assert not [path for path, _ in app.seen if "__peaks" in path]
    assert auth("check", "admin", "--url", f"{app.url}/me").returncode == 0
    missing = auth("save", "admin", "--from", "nobody")
    assert missing.returncode == 2
    assert missing.stderr.startswith("NO_SESSION: ")


def test_the_window_is_watched_until_enter_and_no_input_is_no_enter(
    auth: Auth, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = ProjectDirs.locate(auth.folder)
    for pressed in (True, False):
        waited: list[None] = []

        def wait(pressed: bool = pressed, waited: list[None] = waited) -> bool:
            deadline = time.monotonic() + 60
            while not app.logins and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.5)
            waited.append(None)
            return pressed

        url = entering(app)
        if pressed:
            captured = in_a_window(dirs, "admin", url, until=None, headless=True, wait=wait)
            assert "sid" in {entry["name"] for entry in captured.state.cookies}
            assert waited
        else:
            with pytest.raises(LoginFailedError, match="standard input ended before Enter was pressed"):
                in_a_window(dirs, "admin", url, until=None, headless=True, wait=wait)
    monkeypatch.setattr("pytest_peaks.auth.by_hand.UNTIL_TIMEOUT", 0.5)
    with pytest.raises(LoginFailedError, match=r"the page never came to \*\*/nowhere"):
        in_a_window(dirs, "admin", app.url, until="**/nowhere", headless=True, wait=lambda: True)
    with pytest.raises(PeaksError, match=r"LOGIN_FAILED: auth 'admin': .*ERR_UNSAFE_PORT"):
        in_a_window(dirs, "admin", "http://127.0.0.1:9/", until="**/x", headless=True, wait=lambda: True)
    assert not (auth.folder / ".peaks" / "auth").exists(), "nothing of a failed one is saved"


def test_what_is_asked_for_wrongly_is_a_usage_error(auth: Auth, app: App) -> None:
    for arguments in (
        ("save", "admin"),
        ("save", "admin", "--url", "http://a", "--from", "t1"),
        ("save", "admin", "--url", "http://a", "--headless"),
        ("import",),
        ("import", "x.json", "--fd", "3"),
        ("import", "-"),
        ("import", "missing.json"),
        ("show",),
        ("nonsense",),
    ):
        assert auth(*arguments).returncode == 2, arguments
        assert auth.said.rstrip().splitlines()[-2].startswith("USAGE: ")
    for name in ("../x", "A", ""):
        done = auth("save", name, "--url", app.url, "--headless", "--until", "*")
        assert (done.returncode, done.stderr.partition(":")[0]) == (2, "INVALID_NAME")
    assert app.seen == [], "before any browser"


def test_a_login_is_imported_from_standard_input_or_a_descriptor(
    auth: Auth, project: pytest.Pytester
) -> None:
    text = json.dumps({"cookies": [cookie("sid")], "origins": []})
    (auth.folder / "in.json").write_text(text)
    for redirect, arguments in (
        ("<in.json", ["import", "-", "--name", "one"]),
        ("3<in.json", ["import", "--fd", "3", "--name", "two"]),
        ("3< <(cat in.json)", ["import", "--fd", "3", "--name", "three"]),
    ):
        run = f'exec "$0" -c "from pytest_peaks.cli import main; main()" auth "$@" {redirect}'
        command = ["bash", "-c", run, sys.executable, *arguments]
        done = subprocess.run(command, cwd=auth.folder, capture_output=True, text=True, check=False)
        auth.said += done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        assert json.loads(state_file(project, arguments[-1]).read_text()) == json.loads(text)
    done = auth("import", "--fd", "77", "--name", "four")
    assert (done.returncode, done.stderr.partition(":")[0]) == (2, "INVALID_OPTION")
    assert auth("import", "in.json", "--name", "ok", PEAKS_STATE_KEY="k").returncode == 0
    assert CANARY not in state_file(project, "ok").read_text()
    [row] = [row for row in auth.answer("ls", PEAKS_STATE_KEY="k")["logins"] if row["name"] == "ok"]
    assert (row["encrypted"], row["problem"]) == (True, "")
    locked = auth("show", "ok")
    assert (locked.returncode, locked.stderr.partition(":")[0]) == (2, "STATE_LOCKED")
    assert auth("ls").returncode == 0, "one that cannot be read hides no other"
    assert f"ok  {state_file(project, 'ok')} is encrypted, and no key is set" in auth("ls").stdout


def test_bad_input_is_a_sentence_with_file_and_reason_and_is_not_kept(
    auth: Auth, project: pytest.Pytester, tmp_path: Path
) -> None:
    folder = tmp_path / "bad"
    write_bad(folder)
    for name, (_, reason) in BAD_FILES.items():
        done = auth("import", str(folder / f"{name}.json"))
        if name == "over":  # well formed; it is told of when it is looked at
            assert done.returncode == 0
            checked = auth("check", "over")
            assert (checked.returncode, reason in checked.stderr) == (2, True)
            assert auth.answer("ls")["logins"][0]["expired"]
            continue
        assert done.returncode == 2, name
        assert done.stderr.startswith(f"INVALID_STATE: {folder / name}.json ")
        assert reason in done.stderr
        assert "\nhint: " in done.stderr
        assert not state_file(project, name).exists()
    assert auth("import", str(folder / "unknown-fields.json")).returncode == 0
    (folder / "link.json").symlink_to(folder / "unknown-fields.json")
    os.mkfifo(folder / "fifo.json")
    for name in ("link", "fifo"):
        done = auth("import", str(folder / f"{name}.json"))
        assert (done.returncode, done.stderr.partition(":")[0]) == (2, "INVALID_STATE")
    assert auth("import", str(folder)).returncode == 2
    (tmp_path / "target").symlink_to(tmp_path / "elsewhere")
    assert auth("export", "over", str(tmp_path / "target")).returncode == 2
    assert not (tmp_path / "elsewhere").exists()


def test_a_login_comes_from_a_secret_in_ci(auth: Auth, app: App, project: pytest.Pytester) -> None:
    make(project, app, "", HOOK)
    save(project, "admin", cookie("sid"))
    text = state_file(project).read_text()
    state_file(project).unlink()
    assert auth("check", "admin", PEAKS_AUTH_ADMIN=text).returncode == 0
    assert auth("show", "admin", PEAKS_AUTH_ADMIN=text).returncode == 0
    bad = auth("show", "admin", PEAKS_AUTH_ADMIN="canary")
    assert bad.stderr.startswith("INVALID_STATE: PEAKS_AUTH_ADMIN is no JSON")


def test_doctor_names_logins_that_cannot_be_read_and_those_in_the_repository(
    auth: Auth,
    project: pytest.Pytester,
    peaks: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    surroundings: Surroundings,
) -> None:
    def found(**env: str) -> list[dict[str, str]]:
        done = peaks("doctor", "--no-start", "--json", cwd=project.path, env=env)
        auth.said += done.stdout + done.stderr
        return [check for check in json.loads(done.stdout)["checks"] if check["name"] == "saved-logins"]

    subprocess.run(["git", "init", "-q", "."], cwd=project.path, check=True)
    [check] = found()
    assert (check["status"], check["detail"]) == ("ok", "0 saved logins")
    assert auth("import", "-", "--name", "good").returncode != 0
    save(project, "good", cookie("sid"))
    (state_file(project, "bad")).write_text("{canary")
    checks = found()
    assert [check["status"] for check in checks] == ["warning"]
    assert checks[0]["detail"].startswith(f"bad: {state_file(project, 'bad')} is no JSON")
    state_file(project, "bad").unlink()
    state_file(project, "good").chmod(0o644)
    assert "can be read by others" in found()[0]["detail"]
    state_file(project, "good").chmod(0o600)
    subprocess.run(["git", "add", "-f", ".peaks/auth/good.json"], cwd=project.path, check=True)
    checks = found()
    assert [check["status"] for check in checks] == ["problem"]
    assert checks[0]["detail"].startswith("git tracks .peaks/auth/good.json: ")
    assert checks[0]["mend"].startswith("git rm --cached .peaks/auth/good.json")
    assert found(PATH="/nonexistent")[0]["status"] == "ok", "without git"
