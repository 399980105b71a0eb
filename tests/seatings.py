"""`peaks session` in a project of a test's own: what the tests of desks have in common."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaks import Surroundings

from pytest_peaks.doors.mcp_client import McpClient
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry

PEAKS = [sys.executable, "-c", "from pytest_peaks.cli import main; main()"]
# For a machine that is out of breath; no test waits this long where all is well.
PATIENCE = 120.0
FIRST = 20  # of the test's ports
DESKS = ("playwright-desk-1", "playwright-desk-2", "playwright-desk-3")


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)


@dataclass
class Desks:
    """`peaks session` in one project.

    :ivar home: an empty home folder, so that no client of the user's has registered anything.
    """

    folder: Path
    home: Path
    surroundings: Surroundings

    @classmethod
    def at(cls, folder: Path, surroundings: Surroundings) -> Desks:
        """In a project that is made."""
        (folder / "project" / ".git").mkdir(parents=True)
        (folder / "home").mkdir()
        return cls(folder / "project", folder / "home", surroundings)

    # Places

    @property
    def dirs(self) -> ProjectDirs:
        return ProjectDirs.locate(self.folder)

    @property
    def ledger(self) -> Path:
        return self.dirs.base / "playwright-sessions.json"

    @property
    def config(self) -> Path:
        return self.dirs.base / "pool.json"

    def port(self, number: int) -> int:
        """The port of the desk that is configured as the n-th, from 0."""
        return self.surroundings.ports[FIRST + number]

    def state(self, name: str) -> Path:
        return self.dirs.base / "playwright-state" / f"{name}.json"

    def record(self, desk: str = DESKS[0]) -> Record:
        """What is on disk of a desk's hosted session."""
        found = Registry(self.dirs.records).read(f"desk-{desk}")
        assert found is not None, f"{desk} runs"
        return found

    def runs(self, desk: str = DESKS[0]) -> bool:
        return Registry(self.dirs.records).path_of(f"desk-{desk}").exists()

    def configure(self, *desks: object, **values: object) -> None:
        """Write the pool's configuration."""
        self.config.parent.mkdir(exist_ok=True)
        content = {**({"desks": list(desks)} if desks else {}), **values}
        self.config.write_text(json.dumps(content))

    def storage_state(self, name: str = "given.json", value: str = "v") -> Path:
        """A storageState as a tool writes it."""
        path = self.folder / name
        cookie = {
            "name": "sid",
            "value": value,
            "domain": "app.test",
            "path": "/",
            "expires": -1,
            "httpOnly": True,
            "secure": False,
            "sameSite": "Lax",
        }
        path.write_text(json.dumps({"cookies": [cookie], "origins": []}))
        return path

    # Commands

    def env(self, **more: str) -> dict[str, str]:
        last = self.surroundings.ports[FIRST + 19]
        return {
            **os.environ,
            "HOME": str(self.home),
            "PEAKS_DESK_PORTS": f"{self.port(0)}-{last}",
            **more,
        }

    def run(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """`peaks session …` of nobody's terminal."""
        return subprocess.run(
            [*PEAKS, "session", *arguments],
            cwd=cwd or self.folder,
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            start_new_session=True,
        )

    def spawn(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PEAKS, "session", *arguments],
            cwd=self.folder,
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ok(self, *arguments: str, **env: str) -> dict[str, Any]:
        """The object that is printed where all is well."""
        return succeeded(self.run(*arguments, "--json", **env))

    def text(self, *arguments: str, **env: str) -> str:
        """What a person reads where all is well."""
        done = self.run(*arguments, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr
        return done.stdout

    def fails(self, slug: str, status: int, *arguments: str, **env: str) -> dict[str, Any]:
        """The object that is printed for a failure."""
        return failed(self.run(*arguments, "--json", **env), slug, status)

    def lease(self, name: str, *arguments: str) -> dict[str, Any]:
        """A new session that only has a desk."""
        return self.ok("create", name, "--no-browser", *arguments)

    # What is so

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["session"]: row for row in self.ok("list")["sessions"]}

    def desk_states(self) -> dict[str, str]:
        return {row["desk"]: row["state"] for row in self.ok("pool")["desk_details"]}

    def client(self, answer: dict[str, Any]) -> McpClient:
        """A client of the desk that a session was seated at."""
        return McpClient(answer["mcp_url"])

    def down(self) -> None:
        """Close all sessions and end all desks; nothing is left then."""
        for name, row in self.rows().items():
            if row["desk"]:
                self.ok("close", name, "--no-save")
        self.ok("pool", "--down")
        self.surroundings.assert_clean(self.folder)


def one_object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    found = json.loads(lines[0])
    assert isinstance(found, dict)
    assert found["schema"] == 1
    assert "Traceback" not in done.stderr
    assert found["message"]
    return found


def succeeded(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = one_object(done)
    assert found["ok"] is True, found
    assert done.returncode == 0
    return found


def failed(done: subprocess.CompletedProcess[str], slug: str, status: int) -> dict[str, Any]:
    found = one_object(done)
    assert found["ok"] is False, found
    assert found["error"] == slug, found
    assert done.returncode == status
    return found


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """A process that was started, when it has ended."""
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)


def evaluate(client: McpClient, function: str) -> Any:
    """What a function says in the page."""
    return json.loads(client.call("browser_evaluate", function=function).section("Result"))


def title(client: McpClient, url: str) -> str:
    """Go to `url`; the page's title once there is one."""
    return titles(client, url)[0]


def titles(client: McpClient, *urls: str) -> list[str]:
    """Go to one after the other; what each page's title is once there is one.

    In one call, since a tool that does something waits half a second for what comes of it.
    """
    code = """async page => {
        const found = [];
        for (const url of URLS) {
            await page.goto(url).catch(error => { if (!/interrupted|ERR_ABORTED/.test(error)) throw error; });
            const title = await page.waitForFunction(() => document.title);
            found.push(await title.jsonValue());
        }
        return found;
    }"""
    result = client.call("browser_run_code_unsafe", code=code.replace("URLS", json.dumps(urls)))
    found: list[str] = json.loads(result.section("Result"))
    return found


def log_in(client: McpClient, url: str, user: str) -> None:
    """Log in to the application at `url` with a cookie."""
    code = f"""async page => {{
        await page.goto("{url}/login?user={user}");
        await page.click("button");
        await page.waitForURL("**/me");
        return await page.title();
    }}"""
    assert json.loads(client.call("browser_run_code_unsafe", code=code).section("Result")) == user
