"""The last check: start a browser for real, see that it is ready, and take it down again."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator

from pytest_peaks.cli.checks import Check, Subject
from pytest_peaks.errors import BrowserLostError, BrowserNotFoundError, PeaksError
from pytest_peaks.session import browsers, guardian, profiles
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.paths import ProjectDirs, owner_temp_dir
from pytest_peaks.session.spec import Run

# A browser that is ready answers in a millisecond.
ANSWER_TIMEOUT = 10.0


def start(subject: Subject) -> Iterator[Check]:
    """Acquire a session as a worker does, ask its browser who it is, and release it.

    Its folders lie in this process's temp dir: the project is not touched, nor is what dead runs
    left there, and a doctor that is killed leaves nothing that a sweep would not find.
    """
    try:
        browsers.find(subject.spec)
    except BrowserNotFoundError:
        return  # which the check of the browser has said
    me = ProcessIdentity.of_self()
    temp = owner_temp_dir(me)
    run = Run(uid=uuid.uuid4().hex, slot=0, worker="doctor", controller=me)
    manager = SessionManager(ProjectDirs(subject.dirs.root, temp / "doctor"), run, subject.ports)
    gone, failure = True, None
    product, port = "", 0
    begin = ready = time.monotonic()
    try:
        session = manager.acquire(subject.spec)
        port = session.record.port
        product = _product(session, manager)
        ready = time.monotonic()
    except PeaksError as error:
        failure = error
    finally:
        ending = time.monotonic()
        gone = manager.close()
        end = time.monotonic()
        guardian.call_off(run.uid)
        gone = profiles.remove_tree(temp, temp.parent) and gone
    if failure is not None:
        yield Check("start", "problem", f"{failure.code}: {failure.message}", failure.hint)
    elif not gone:
        yield Check(
            "start", "problem", f"{product} started, but not all of it could be removed", "`peaks reap`"
        )
    else:
        where = f" on port {port}" if port else ""
        yield Check(
            "start",
            "ok",
            f"{product} answered after {ready - begin:.2f} s{where}, was gone {end - ending:.2f} s after its release",
        )


def _product(session: LiveSession, manager: SessionManager) -> str:
    """What the browser of a session says that it is, such as ``Chrome/156.0.1.2``.

    :raises BrowserLostError: it does not answer.
    """
    if session.endpoint is None:
        return _product_through_playwright(session, manager)
    try:
        # Not through a proxy, whatever the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(
            f"http://127.0.0.1:{session.record.port}/json/version", timeout=ANSWER_TIMEOUT
        ) as answer:
            return str(json.load(answer)["Browser"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrowserLostError(
            f"{session.found} says that it listens on port {session.record.port} and does not answer there: {error}",
            hint="a firewall or a security module may forbid connections to 127.0.0.1",
        ) from error


def _product_through_playwright(session: LiveSession, manager: SessionManager) -> str:
    """The same for a browser that Playwright launches itself."""
    from pytest_peaks.doors.playwright import PlaywrightDoor

    door = PlaywrightDoor(lambda: manager.temp_dir, lambda: None)
    try:
        return f"{session.spec.browser} {getattr(door.attach(session), 'version', '')}".strip()
    finally:
        door.stop()
