"""Saving a login out of a browser: what Playwright saves, sessionStorage, and a word on what is lost."""

from __future__ import annotations

import contextlib
import datetime
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peaks.auth.model import EXTRAS, EXTRAS_VERSION, State, cookie_key

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Frame, Page, Request

# A path that no application has; it is answered here and never leaves the browser.
BLANK = "/__peaks_blank__"
BLANK_PAGE = "<!doctype html><title></title>"
READ_SESSION = "() => [location.origin, Object.fromEntries(Object.entries(sessionStorage))]"
READ_LOST = """async () => {
    const found = [];
    for (const name of self.caches ? await caches.keys() : [])
        found.push(`Cache API: ${name}`);
    const workers = navigator.serviceWorker ? await navigator.serviceWorker.getRegistrations() : [];
    for (const worker of workers)
        found.push(`service worker: ${new URL(worker.scope).pathname}`);
    return [location.origin, found];
}"""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was saved.

    :ivar lost: what a state cannot carry and was there, by key name.
    """

    state: State
    lost: tuple[str, ...]


class Watch:
    """Notes which origins a login passes through, and which cookies were there before it."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._origins: dict[str, None] = {}
        self._before = {cookie_key(cookie) for cookie in _cookies(context)}
        context.on("request", self._note)

    def _note(self, request: Request) -> None:
        if request.is_navigation_request():
            url = urlsplit(request.url)
            if url.scheme in ("http", "https"):
                self._origins[f"{url.scheme}://{url.netloc}"] = None

    def captured(self, page: Page, *, name: str, account: str = "") -> Captured:
        """Save the login that was made since; `page` is left where it is, or blank if other origins had to be read.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        self._context.remove_listener("request", self._note)
        return capture(
            self._context, page, name=name, account=account, origins=list(self._origins), before=self._before
        )


def capture(
    context: BrowserContext,
    page: Page,
    *,
    name: str,
    account: str = "",
    origins: Iterable[str] = (),
    before: Iterable[tuple[str, str, str]] = (),
) -> Captured:
    """Save the login of a context.

    :param page: the tab that is logged in; sessionStorage of origins that it has left is read in it.
    :param origins: those that it passed through.
    :param before: the cookies that were there before the login.
    :raises playwright.sync_api.Error: the browser does not answer.
    """
    pages = sorted(context.pages, key=lambda other: other is not page)  # what the login's own tab says goes
    session = dict(_of_frames(pages, READ_SESSION))
    lost = {f"{what} ({origin})" for origin, found in _of_frames(pages, READ_LOST) for what in found}
    url = page.url
    known = set(before)
    new = [cookie for cookie in _cookies(context) if cookie_key(cookie) not in known]
    sent = {cookie_key(cookie) for cookie in _cookies(context, url)} if url.startswith("http") else set()
    important = [cookie for cookie in new if cookie_key(cookie) in sent] or new
    data: dict[str, Any] = dict(context.storage_state(**_everything(context)))
    left = [origin for origin in origins if origin not in session]
    if left and not page.is_closed():  # a tab takes its sessionStorage with it
        session.update(_revisited(page, left))
    keys = [cookie_key(cookie) for cookie in important]
    return completed(data, name=name, account=account, url=url, important=keys, session=session, lost=lost)


def completed(
    data: dict[str, Any],
    *,
    name: str,
    account: str = "",
    url: str,
    important: Iterable[Sequence[str]],
    session: Mapping[str, Mapping[str, str]],
    lost: Iterable[str],
) -> Captured:
    """A storageState with what is ours added.

    :param important: the cookies that matter, by :func:`cookie_key`.
    :param session: sessionStorage by origin.
    :param lost: what could not be saved, besides what the state itself tells.
    """
    all_lost = sorted({*lost, *_emptied(data)})
    data[EXTRAS] = {
        "v": EXTRAS_VERSION,
        "savedAt": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "name": name,
        "account": account,
        "url": url if url.startswith("http") else "",
        "important": [list(key) for key in important],
        "sessionStorage": {origin: items for origin, items in session.items() if items},
        "lost": all_lost,
    }
    return Captured(State(data), tuple(all_lost))


def _cookies(context: BrowserContext, url: str | None = None) -> list[Mapping[str, Any]]:
    found: Any = context.cookies(url) if url is not None else context.cookies()
    return list(found)


def _everything(context: BrowserContext) -> dict[str, Any]:
    """The arguments that have this Playwright save all it can: older ones know fewer."""
    known = inspect.signature(context.storage_state).parameters
    return {key: True for key in ("indexed_db", "opfs", "credentials") if key in known}


def _of_frames(pages: Iterable[Page], script: str) -> Iterator[tuple[str, Any]]:
    """What `script` says in each frame of each tab; of an origin in several frames the first."""
    from playwright.sync_api import Error

    seen: dict[str, Any] = {}
    for page in pages:
        for frame in _http_frames(page):
            # A sandboxed frame, or one that is on its way elsewhere, has nothing to give.
            with contextlib.suppress(Error):
                origin, found = frame.evaluate(script)
                if found and origin not in seen:
                    seen[origin] = found
    yield from seen.items()


def _http_frames(page: Page) -> list[Frame]:
    return [frame for frame in page.frames if frame.url.startswith(("http://", "https://"))]


def _revisited(page: Page, origins: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """sessionStorage of origins that a tab has been on, read in that tab without a request leaving it."""
    from playwright.sync_api import Error

    with blank_sites(page):
        for origin in origins:
            with contextlib.suppress(Error):
                page.goto(origin + BLANK, wait_until="commit")
                seen, items = page.evaluate(READ_SESSION)
                if seen == origin and items:
                    yield origin, items
        page.goto("about:blank")


@contextlib.contextmanager
def blank_sites(page: Page) -> Iterator[None]:
    """Have every origin answer a tab at the path :data:`BLANK`, without a request leaving the browser."""

    def answer(route: Any) -> None:
        route.fulfill(content_type="text/html", body=BLANK_PAGE)

    page.route(f"**{BLANK}", answer)
    try:
        yield
    finally:
        page.unroute(f"**{BLANK}", answer)


def _emptied(data: Mapping[str, Any]) -> Iterator[str]:
    """Records of IndexedDB of which Playwright saved an empty object: Blob, File, CryptoKey, DataView."""
    for origin in data.get("origins", ()):
        for database in origin.get("indexedDB", ()):
            for store in database.get("stores", ()):
                for record in store.get("records", ()):
                    if _has_empty(record.get("valueEncoded")):
                        key = record.get("key", record.get("keyEncoded", ""))
                        shown = f"/{key}" if isinstance(key, str | int | float) and key != "" else ""
                        yield (
                            f"IndexedDB {database.get('name')}/{store.get('name')}{shown}: "
                            f"a Blob, File or key object ({origin.get('origin')})"
                        )


def _has_empty(value: object) -> bool:
    """Whether Playwright's encoding of a value has an object in it that came out empty."""
    if isinstance(value, Mapping):
        if value.get("o") == [] and "id" in value:
            return True
        return any(map(_has_empty, value.values()))
    return isinstance(value, list) and any(map(_has_empty, value))


def open_origins(context: BrowserContext) -> list[str]:
    """The origins of all frames that are open."""
    found: dict[str, None] = {}
    for page in context.pages:
        for frame in page.frames:
            url = urlsplit(frame.url)
            if url.scheme in ("http", "https"):
                found[f"{url.scheme}://{url.netloc}"] = None
    return list(found)


@contextlib.contextmanager
def visited(context: BrowserContext, origins: Iterable[str]) -> Iterator[Page]:
    """Have this client visit origins: Playwright saves only those that it has seen load.

    In a tab of its own, without a request leaving the browser; gives the tab that the user is on.
    """
    front = context.pages[-1] if context.pages else None
    tab = context.new_page()
    try:
        with blank_sites(tab):
            for origin in origins:
                tab.goto(origin + BLANK, wait_until="commit")
        yield front or tab
    finally:
        tab.close()
