"""Forty tests that begin logged in, where a login takes a second: `python benchmarks/logins.py [rounds]`.

Three ways, with the same browser and `-n 2`: a login hook of pytest-peaks, the recipe of pytest-xdist's
documentation (a session fixture that logs in under a file lock and shares a storage state), and a login
in every test. Each run begins with nothing saved. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness import Scratch, scratch, seconds_of

LOGIN_SECONDS = 1.0
TESTS = 40

COMMON = """
import json, time
import pytest

URL = {url!r}

def log_in(page):
    page.goto(URL + "login")
    page.click("button")
    page.wait_for_url("**/home")

def is_logged_in(page):
    page.goto(URL + "home")
    return page.text_content("h1") == "in"
"""
OURS = """
def pytest_peaks_login(name, page):
    log_in(page)
    return True
"""
# https://pytest-xdist.readthedocs.io/en/stable/how-to.html#making-session-scoped-fixtures-execute-only-once
RECIPE = """
from filelock import FileLock

@pytest.fixture(scope="session")
def browser_type_launch_args():
    return dict(executable_path={executable!r}, args={args!r})

@pytest.fixture(scope="session")
def login_state(browser, tmp_path_factory, worker_id):
    def make():
        context = browser.new_context()
        log_in(context.new_page())
        state = context.storage_state()
        context.close()
        return state

    if worker_id == "master":
        return make()
    file = tmp_path_factory.getbasetemp().parent / "login.json"
    with FileLock(str(file) + ".lock"):
        if file.is_file():
            return json.loads(file.read_text())
        state = make()
        file.write_text(json.dumps(state))
        return state
"""
SUITES = {
    "a login hook": """
@pytest.mark.peaks_session(auth="admin")
@pytest.mark.parametrize("number", range({tests}))
def test_page(peaks_page, number):
    assert is_logged_in(peaks_page)
""",
    "file lock recipe": """
@pytest.mark.parametrize("number", range({tests}))
def test_page(browser, login_state, number):
    context = browser.new_context(storage_state=login_state)
    assert is_logged_in(context.new_page())
    context.close()
""",
    "a login in every test": """
@pytest.mark.parametrize("number", range({tests}))
def test_page(page, number):
    log_in(page)
    assert is_logged_in(page)
""",
}


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        inside = "sid=" in self.headers.get("Cookie", "")
        if self.path == "/login":
            body = "<form action=/enter><button>Log in</button></form>"
        elif self.path.startswith("/enter"):
            time.sleep(LOGIN_SECONDS)
            self.send_response(302)
            self.send_header("Set-Cookie", "sid=1; HttpOnly; Path=/; Max-Age=3600")
            self.send_header("Location", "/home")
            self.end_headers()
            return
        else:
            body = f"<h1>{'in' if inside else 'out'}</h1>"
        data = f"<!doctype html>{body}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def run(scratch: Scratch, folder: Path) -> float:
    shutil.rmtree(folder / ".peaks", ignore_errors=True)
    ours = (folder / "ours").exists()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n2"]
    command += ["-p", "no:playwright" if ours else "no:peaks"]
    return seconds_of(command, folder, scratch.env)


def main(rounds: int | None = None) -> None:
    rounds = rounds or (int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    common = COMMON.format(url=f"http://127.0.0.1:{server.server_port}/")
    with scratch() as made:
        folders = {}
        for number, (title, suite) in enumerate(SUITES.items()):
            folder = folders[title] = made.folder_for(f"suite{number}")
            (folder / ".git").mkdir()
            ours = title == "a login hook"
            if ours:
                (folder / "ours").touch()
            own = OURS if ours else RECIPE.format(executable=made.executable, args=made.launch_args)
            (folder / "conftest.py").write_text(common + own)
            (folder / "test_shop.py").write_text(
                "import pytest\nfrom conftest import is_logged_in, log_in\n" + suite.format(tests=TESTS)
            )
        took: dict[str, list[float]] = {title: [] for title in folders}
        for number in range(rounds + 1):
            for title in list(folders) if number % 2 else reversed(list(folders)):
                seconds = run(made, folders[title])
                if number:  # the first is to warm up
                    took[title].append(seconds)
    server.shutdown()
    print(f"{TESTS} logged-in tests, a login takes {LOGIN_SECONDS:.0f} s, -n 2, {rounds} rounds\n")
    for title, seconds in took.items():
        ratios = [mine / other for mine, other in zip(took["a login hook"], seconds, strict=True)]
        print(
            f"{title:24} {statistics.median(seconds):6.2f} s   a login hook takes "
            f"{statistics.median(ratios):.2f} of it [{min(ratios):.2f}-{max(ratios):.2f}]"
        )


if __name__ == "__main__":
    main()
