"""Saving and replaying a login through a daemon of playwright-cli.

Its own `state-save` keeps cookies and localStorage only. Through `run-code` it gives all that Playwright
saves, and sessionStorage; values travel over the session's private socket and in no file but the last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_peaks.auth.capture import BLANK, BLANK_PAGE, READ_LOST, READ_SESSION, Captured, completed
from pytest_peaks.auth.model import State, check_state, cookie_key
from pytest_peaks.auth.replay import SEED
from pytest_peaks.errors import CliFailedError

# Runs a command line of playwright-cli; gives the bare value. Raises PeaksError.
Ask = Callable[[list[str]], str]

_CAPTURE = """async page => {
    const context = page.context();
    const state = await context.storageState({ indexedDB: true, opfs: true, credentials: true });
    const session = {}, lost = [];
    for (const tab of context.pages()) {
        for (const frame of tab.frames()) {
            if (!/^https?:/.test(frame.url()))
                continue;
            try {
                const [origin, items] = await frame.evaluate(READ_SESSION);
                if (Object.keys(items).length && !session[origin])
                    session[origin] = items;
                const [where, found] = await frame.evaluate(READ_LOST);
                lost.push(...found.map(what => `${what} (${where})`));
            } catch (e) {
            }
        }
    }
    const sent = /^https?:/.test(page.url()) ? await context.cookies(page.url()) : [];
    return { state, session, lost, url: page.url(), sent: sent.map(c => [c.name, c.domain, c.path]) };
}"""
_SEED = """async page => {
    const wanted = WANTED;
    const answer = route => route.fulfill({ contentType: "text/html", body: BODY });
    await page.route("**" + BLANK, answer);
    try {
        for (const [origin, items] of Object.entries(wanted)) {
            await page.goto(origin + BLANK, { waitUntil: "commit" });
            await page.evaluate(SEED, items);
        }
        await page.goto("about:blank");
    } finally {
        await page.unroute("**" + BLANK, answer);
    }
    const session = await page.context().newCDPSession(page);
    await session.send("Page.resetNavigationHistory");
    await session.detach();
    return true;
}"""


def capture(ask: Ask, *, name: str) -> Captured:
    """Save the login of the browser that a daemon drives.

    :raises PeaksError: the daemon does not answer, or its browser does not.
    """
    code = _CAPTURE.replace("READ_SESSION", READ_SESSION).replace("READ_LOST", READ_LOST)
    try:
        found: dict[str, Any] = json.loads(ask(["run-code", code]))
        data = dict(found["state"])
        session, url, sent = found["session"], str(found["url"]), found["sent"]
        lost = [str(what) for what in found["lost"]]
    except (ValueError, KeyError, TypeError):
        raise CliFailedError("the CLI gave no storage state") from None
    keys = [cookie_key(cookie) for cookie in check_state(data, "what the browser gave").cookies]
    important = [key for key in keys if list(key) in sent] or keys
    return completed(data, name=name, url=url, important=important, session=session, lost=lost)


def is_blank(ask: Ask) -> bool:
    """Whether the tab that a daemon is on is blank."""
    return ask(["eval", "location.href"]).strip('"') == "about:blank"


def replay(ask: Ask, state: State, scratch: Path, *, blank: bool) -> None:
    """Replace what is in the browser by a saved login.

    :param scratch: a private folder, for the file that the daemon reads.
    :param blank: the tab is blank and stays so: its sessionStorage is replayed as well.
    :raises PeaksError: the daemon or its browser refuses it.
    """
    import uuid

    from pytest_peaks.auth.store import write_file

    part = scratch / f"{uuid.uuid4().hex}.json"
    try:
        write_file(part, state.plain, bound="")
        ask(["state-load", str(part)])
    finally:
        part.unlink(missing_ok=True)
    if blank and state.session_storage:
        code = _SEED.replace("SEED", SEED).replace("BODY", json.dumps(BLANK_PAGE))
        code = code.replace("BLANK", json.dumps(BLANK))
        # Last, since no value may be taken for one of the others.
        ask(["run-code", code.replace("WANTED", json.dumps(state.session_storage))])
