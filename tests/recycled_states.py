"""Everything that one test can leave for the next: how to leave it, and how the next one would see it.

Used in the projects of tests/test_recycled.py, which says how a row is run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Each its own site, all of them secure contexts.
PORT = os.environ.get("STATES_PORT", "0")
O = f"http://localhost:{PORT}"  # noqa: E741 - the site
A = f"http://a.localhost:{PORT}"
B = f"http://b.localhost:{PORT}"
UNDER_A = f"http://x.a.localhost:{PORT}"
# What a page may take that would not answer: the control has such pages.
PATIENCE = 2000

Step = Callable[[Any], None]


@dataclass(frozen=True)
class State:
    """One kind of state.

    :ivar dirty: leaves it.
    :ivar check: fails if it is there.
    :ivar again: whether the context is used again after it. None: that depends on Playwright's version.
    :ivar shows: whether the check fails where nothing is reset. None: not to be tried, the page would hang.
    :ivar leaks: no recipe clears it, and nothing sees it.
    :ivar wait: seconds before the next test asks for its page.
    """

    name: str
    dirty: Step
    check: Step
    again: bool | None = True
    shows: bool | None = True
    leaks: bool = False
    wait: float = 0.0


STATES: list[State] = []
_DIRTY: dict[str, Step] = {}


def dirty(name: str) -> Callable[[Step], Step]:
    def note(step: Step) -> Step:
        _DIRTY[name] = step
        return step

    return note


def check(name: str, **facts: Any) -> Callable[[Step], Step]:
    def note(step: Step) -> Step:
        STATES.append(State(name, _DIRTY[name], step, **facts))
        return step

    return note


def row(name: str, dirty: Step, check: Step, **facts: Any) -> None:
    STATES.append(State(name, dirty, check, **facts))


def go(page: Any, url: str = O) -> Any:
    return page.goto(url, timeout=PATIENCE)


def js(script: str, url: str = O) -> Step:
    """A step that runs a script in a page of the site."""

    def step(page: Any) -> None:
        go(page, url)
        page.evaluate(script)

    return step


def gives(script: str, expected: object, url: str = O) -> Step:
    """A check that a script has this value in a page of the site."""

    def step(page: Any) -> None:
        go(page, url)
        found = page.evaluate(script)
        assert found == expected, f"{script} gives {found!r}"

    return step


def storage(name: str, leave: str, find: str, empty: object, **facts: Any) -> None:
    """A kind of state that pages leave, in the top frame and in frames of other origins."""
    row(name, js(leave), gives(find, empty), **facts)


def _goes_nowhere(page: Any) -> None:
    assert page.go_back() is None
    assert page.url == "about:blank"


def _has_no_log(page: Any) -> None:
    assert page.console_messages(filter="all") == []
    assert page.page_errors(filter="all") == []


def _has_no_credentials(page: Any) -> None:
    assert page.context.credentials.get() == []


# What pages store

storage("cookie", "document.cookie = 'k=1; max-age=600'", "document.cookie", "")
storage("localStorage", "localStorage.setItem('k', 'v')", "localStorage.length", 0)
storage("sessionStorage", "sessionStorage.setItem('k', 'v')", "sessionStorage.length", 0)
storage("window.name", "window.name = 'dirty'", "window.name", "")
_OPEN_DB = """new Promise(done => {
    const o = indexedDB.open('d'); o.onsuccess = () => { window.db = o.result; done() }
})"""
_DATABASES = "indexedDB.databases().then(found => found.length)"
storage("IndexedDB", f"{_OPEN_DB}.then(() => db.close())", _DATABASES, 0)
storage("IndexedDB with an open connection", _OPEN_DB, _DATABASES, 0)
_CACHE = "caches.open('c').then(c => c.put('/x', new Response('1')))"
_CACHES = "caches.keys().then(found => found.length)"
storage("Cache API", _CACHE, _CACHES, 0)
storage(
    "OPFS",
    "navigator.storage.getDirectory().then(d => d.getFileHandle('f', {create: true})).then(() => 1)",
    "navigator.storage.getDirectory().then(async d => { let n = 0; for await (const k of d.keys()) n++; return n })",
    0,
)
_REGISTER = (
    "navigator.serviceWorker.register('/sw.js').then(() => navigator.serviceWorker.ready).then(() => 1)"
)
storage(
    "service worker",
    _REGISTER,
    "navigator.serviceWorker.getRegistrations().then(found => found.length)",
    0,
)
row(
    "service worker that answers",
    js(_REGISTER),
    gives("fetch('/by-worker').then(r => r.text()).then(t => t === 'worker')", False),
)
_SHARED = """new Promise(done => {
    const w = new SharedWorker('/shared.js', OPTIONS); w.port.onmessage = e => done(e.data)
})"""
for _kind, _options, _shows in (
    ("SharedWorker", "{}", False),
    ("SharedWorker with an extended lifetime", "{extendedLifetime: true}", True),
):
    _connect = _SHARED.replace("OPTIONS", _options)
    row(_kind, js(_connect), gives(_connect, 1), shows=_shows)
storage(
    "BroadcastChannel",
    _SHARED.replace("OPTIONS", "{}"),
    """new Promise(done => {
        const c = new BroadcastChannel('c');
        c.onmessage = () => done('pong'); c.postMessage('ping'); setTimeout(() => done(null), 200);
    })""",
    None,
    shows=False,
)
storage(
    "Web Locks",
    "new Promise(done => navigator.locks.request('L', () => { done(); return new Promise(() => {}) }))",
    "navigator.locks.query().then(found => found.held.length)",
    0,
    shows=False,
)
row(
    "dedicated worker",
    js("void (window.w = new Worker('/worker.js'))"),
    lambda page: _stays(page, "/worker-is-here"),
    shows=False,
)


def _stays(page: Any, path: str) -> None:
    _hits(page, path)  # leaves the page, with whatever worker it has
    time.sleep(0.1)
    before = _hits(page, path)
    time.sleep(0.2)
    assert _hits(page, path) == before


# Frames of other sites

_SUM = f"async () => localStorage.length + sessionStorage.length + await {_CACHES} + await {_DATABASES}"


def _in_frame(script: str, top: str = A, framed: str = B) -> Callable[[Any], Any]:
    def step(page: Any) -> Any:
        go(page, f"{top}/frame?src={framed}")
        page.frames[1].wait_for_load_state()
        return page.frames[1].evaluate(script)

    return step


_FILL = f"async () => {{ localStorage.k = sessionStorage.k = 1; await {_OPEN_DB}; await {_CACHE}; await {_REGISTER} }}"


@dirty("storage of a frame of another site")
def _(page: Any) -> None:
    _in_frame(_FILL)(page)
    assert _in_frame(_SUM)(page) >= 3


@check("storage of a frame of another site")
def _(page: Any) -> None:
    assert _in_frame(_SUM)(page) == 0


@dirty("storage of an origin that was only framed")
def _(page: Any) -> None:
    _in_frame("localStorage.k = 1", A, UNDER_A)(page)


@check("storage of an origin that was only framed")
def _(page: Any) -> None:
    gives("localStorage.length", 0, UNDER_A)(page)


_CHIPS = f"{B}/set?with=pc%3D1%3B%20Secure%3B%20SameSite%3DNone%3B%20Partitioned"


@dirty("cookie of a frame's partition")
def _(page: Any) -> None:
    _in_frame("1", A, _CHIPS)(page)
    assert page.context.cookies()


@check("cookie of a frame's partition")
def _(page: Any) -> None:
    assert page.context.cookies() == []
    assert "pc=1" not in _in_frame("fetch('/headers').then(r => r.text())")(page)


# What the browser keeps of requests


def _hits(page: Any, path: str) -> int:
    return int(go(page, f"{O}/hits?of={path}").text())


def _asked_for(path: str, script: str) -> tuple[Step, Step]:
    """Steps that have a page ask for something, and look whether the site was asked."""
    # A row may be there several times in one run.
    ask = js(script.replace("PATH", f"'{path}'"))

    def is_asked(page: Any) -> None:
        before = _hits(page, path)
        ask(page)
        assert _hits(page, path) == before + 1

    return ask, is_asked


_FETCH = "fetch(PATH).then(r => r.text())"
_IMAGE = "new Promise(done => { const i = new Image(); i.onerror = i.onload = () => done(); i.src = PATH })"
row("HTTP cache", *_asked_for(f"/cached-{os.getpid()}", _FETCH))
row("redirect in the HTTP cache", *_asked_for(f"/moved-{os.getpid()}", _FETCH))
row("image cache", *_asked_for(f"/cached-image-{os.getpid()}", _IMAGE))


def _is_out(page: Any) -> None:
    assert go(page, f"{O}/auth").status == 401


row(
    "basic auth from a URL", lambda page: go(page, f"http://u:pw@localhost:{PORT}/auth"), _is_out, again=False
)
row(
    "basic auth from a link in the page",
    lambda page: (
        go(page),
        page.evaluate(f"location.href = 'http://u:pw@localhost:{PORT}/auth'"),
        page.wait_for_url("**/auth"),
    )[0],
    _is_out,
    again=False,
)
row(
    "basic auth from a request of the page",
    js(
        """new Promise(done => {
            const x = new XMLHttpRequest(); x.open('GET', '/auth', true, 'u', 'pw'); x.onload = done; x.send();
        }).then(() => 1)"""
    ),
    _is_out,
    again=False,
)
_KEEPALIVE = "addEventListener('pagehide', () => { fetch('/late', {keepalive: true}) })"


def _no_cookies_later(page: Any) -> None:
    assert page.context.cookies() == []
    time.sleep(0.5)
    assert page.context.cookies() == []


row(
    "cookie that comes between two tests",
    js(_KEEPALIVE),
    _no_cookies_later,
    again=False,
    shows=False,
    wait=0.6,
)
# On a slow machine it may come before.
row(
    "cookie that comes during the next test",
    js(_KEEPALIVE),
    _no_cookies_later,
    again=None,
    shows=False,
    leaks=True,
)
row(
    "keepalive request under way",
    js("void fetch('/late', {keepalive: true})"),
    _no_cookies_later,
    again=False,
)
row(
    "beacon at the end of a page",
    js("addEventListener('pagehide', () => { navigator.sendBeacon('/set') })"),
    lambda page: (go(page), time.sleep(0.1), gives("document.cookie", "")(page))[0],
)
row(
    "cookie by the test's own request",
    lambda page: page.request.get(f"{O}/set?with=k%3D1"),
    lambda page: _echoes(page, "cookie:"),
)


def _echoes(page: Any, unwanted: str) -> None:
    text = go(page, f"{O}/headers").text()
    assert unwanted not in text
    assert unwanted not in page.request.get(f"{O}/headers").text()


# What a page does when it is left

_HIDE = "addEventListener('pagehide', () => {{ {} }})"
_WRITES = (
    "localStorage.k = sessionStorage.k = 1; document.cookie = 'k=1; max-age=600'; "
    "indexedDB.open('d'); caches.open('c')"
)
row(
    "what a page stores when it is left",
    js(_HIDE.format(_WRITES)),
    gives(f"({_SUM})().then(n => n + document.cookie.length)", 0),
)
row(
    "window.name that a page sets when it is left",
    js(_HIDE.format("window.name = 'dirty'")),
    lambda page: (gives("window.name", "")(page), gives("window.name", "", f"{O}/other")(page))[0],
)
_LASTING = _SHARED.replace("OPTIONS", "{extendedLifetime: true}")
row(
    "SharedWorker that a page starts when it is left",
    js(_HIDE.format("new SharedWorker('/shared.js', {extendedLifetime: true})")),
    gives(_LASTING, 1),
    shows=False,
)

# History and the page itself

row(
    "length of the history",
    lambda page: (go(page, f"{O}/?1"), go(page, f"{O}/?2"))[0],
    gives("history.length", 2),
)
row(
    "history to go back in",
    lambda page: (go(page), page.evaluate("history.pushState(1, '', '#1')"))[0],
    _goes_nowhere,
)


def _is_blank(page: Any) -> None:
    assert page.url == "about:blank"
    assert page.content() == "<html><head></head><body></body></html>"


row("the page it was on", go, _is_blank)
row(
    "beforeunload handler",
    js("onbeforeunload = e => { e.preventDefault(); return 'stay' }; document.querySelector('#box').focus()"),
    _is_blank,
)
row(
    "page that never rests",
    lambda page: (go(page), page.evaluate("void setTimeout(() => { for (;;); }, 0)"), time.sleep(0.1))[0],
    _is_blank,
    again=False,
    shows=None,
)
row(
    "page that can't be left",
    js(_HIDE.format("for (;;);")),
    _is_blank,
    again=False,
    shows=None,
)
row(
    "console messages",
    js(
        "console.log('dirty'); setTimeout(() => { throw Error('dirty') }, 0); new Promise(d => setTimeout(d, 50))"
    ),
    _has_no_log,
)


def _has_no_requests(page: Any) -> None:
    assert page.requests() == []
    go(page)
    assert [request.url for request in page.requests()] == [f"{O}/"]


row("log of requests", go, _has_no_requests)
row(
    "scrolled and zoomed",
    js("document.body.style.height = '5000px'; document.body.style.zoom = 2; scrollTo(0, 1000)"),
    gives("[scrollY, visualViewport.scale, devicePixelRatio]", [0, 1, 1]),
    shows=False,
)
row(
    "fullscreen",
    lambda page: (
        go(page),
        page.click("#link", trial=True),
        page.evaluate("document.documentElement.requestFullscreen().catch(() => 0).then(() => 1)"),
    )[0],
    gives("[document.fullscreenElement, innerWidth, innerHeight]", [None, 1280, 720]),
    shows=False,
)


def _scrolls_at_the_corner(page: Any) -> None:
    go(page)
    page.evaluate("addEventListener('wheel', e => { window.at = [e.clientX, e.clientY] })")
    page.mouse.wheel(0, 10)
    page.wait_for_function("window.at", timeout=PATIENCE)
    assert page.evaluate("window.at") == [0, 0]


row("where the mouse is", lambda page: (go(page), page.mouse.move(100, 100))[0], _scrolls_at_the_corner)
row(
    "where a click was",
    lambda page: (go(page), page.locator("#box").click(position={"x": 9, "y": 9}))[0],
    _scrolls_at_the_corner,
)


def _hovers_nothing(page: Any) -> None:
    go(page)
    time.sleep(0.1)
    assert page.evaluate("document.querySelector('#box').matches(':hover')") is False


row("hover", lambda page: (go(page), page.hover("#box"))[0], _hovers_nothing, shows=False)

# What the API sets

_UNSET: list[tuple[str, Step, Step, bool]] = []
row(
    "permissions",
    lambda page: page.context.grant_permissions(["geolocation", "notifications"]),
    gives("navigator.permissions.query({name: 'geolocation'}).then(p => p.state !== 'granted')", True),
)


@dirty("geolocation")
def _(page: Any) -> None:
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 1, "longitude": 2})


@check("geolocation", again=False)
def _(page: Any) -> None:
    page.context.grant_permissions(["geolocation"])
    gives(
        "new Promise(d => navigator.geolocation.getCurrentPosition(() => d(1), () => d(0), {timeout: 200}))",
        0,
    )(page)


row(
    "extra headers of the context",
    lambda page: page.context.set_extra_http_headers({"x-left": "1"}),
    lambda page: _echoes(page, "x-left"),
    again=False,
)
row(
    "extra headers of the page",
    lambda page: page.set_extra_http_headers({"x-left": "1"}),
    lambda page: _echoes(page, "x-left"),
    again=False,
)
row("offline", lambda page: page.context.set_offline(True), gives("navigator.onLine", True), again=False)
row(
    "emulated media",
    lambda page: page.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce"),
    gives(
        "['print', '(prefers-color-scheme: dark)', '(prefers-reduced-motion)'].filter(q => matchMedia(q).matches)",
        [],
    ),
    again=False,
)
_SIZES = "[innerWidth, innerHeight, screen.width, screen.height, outerWidth, outerHeight]"


@dirty("size of the window")
def _(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 300})
    page.set_viewport_size({"width": 500, "height": 400})


@check("size of the window")
def _(page: Any) -> None:
    assert page.viewport_size == {"width": 1280, "height": 720}
    gives(_SIZES, [1280, 720, 1280, 720, 1280, 720])(page)


_NO_LEFT = gives("typeof window.left", "undefined")
row("init script of the context", lambda p: p.context.add_init_script("left = 1"), _NO_LEFT, again=False)
row("init script of the page", lambda p: p.add_init_script("left = 1"), _NO_LEFT, again=False)
for _kind, _of in (("context", lambda page: page.context), ("page", lambda page: page)):

    def _expose(page: Any, of: Any = _of) -> None:
        of(page).expose_function("left", lambda: 1)

    def _can_expose(page: Any, of: Any = _of) -> None:
        _NO_LEFT(page)
        of(page).expose_function("left", lambda: 2)
        assert page.evaluate("left()") == 2

    def _route(page: Any, of: Any = _of) -> None:
        of(page).route("**/*", lambda route: route.fulfill(body="routed"))
        of(page).route("**/other", lambda route: route.abort())
        assert go(page).text() == "routed"

    def _not_routed(page: Any) -> None:
        assert "routed" not in go(page).text()

    row(f"exposed function of the {_kind}", _expose, _can_expose, again=False)
    row(f"route of the {_kind}", _route, _not_routed)


@dirty("route that never answers")
def _(page: Any) -> None:
    go(page)
    page.route("**/never", lambda _: None)
    page.evaluate("void fetch('/never')")


@check("route that never answers", again=None)
def _(page: Any) -> None:
    go(page, f"{O}/never")


@dirty("route of WebSockets")
def _(page: Any) -> None:
    page.context.route_web_socket("**", lambda socket: socket.send("routed"))


_SOCKET = f"""new Promise(done => {{
    const s = new WebSocket('ws://localhost:{PORT}/socket');
    s.onmessage = e => done(e.data); s.onerror = () => done('error'); setTimeout(() => done('nothing'), 300);
}})"""


@check("route of WebSockets", again=False)
def _(page: Any) -> None:
    gives(f"{_SOCKET}.then(s => s !== 'routed')", True)(page)


CALLED: list[str] = []


class _Hears:
    def one(self, *_: object) -> None:
        CALLED.append("method")


_HEARS = _Hears()


@dirty("listeners")
def _(page: Any) -> None:
    page.on("console", lambda _: CALLED.append("page"))
    page.on("request", f=_HEARS.one)
    page.on("load", _HEARS.one)
    page.on("load", _HEARS.one)
    page.context.on("response", lambda _: CALLED.append("context"))
    page.once("popup", lambda _: CALLED.append("popup"))
    page.once("load", lambda _: CALLED.append("once"))
    go(page)
    assert "once" in CALLED


@check("listeners")
def _(page: Any) -> None:
    CALLED.clear()
    go(page)
    page.evaluate("console.log(1); void open('about:blank')")
    page.wait_for_timeout(50)
    assert CALLED == []
    page.on("load", _HEARS.one)
    page.reload()
    assert CALLED == ["method"]


@dirty("dialog that nobody answers")
def _(page: Any) -> None:
    page.on("dialog", lambda _: None)
    go(page)
    page.evaluate("void setTimeout(() => alert(1), 0)")
    page.wait_for_timeout(100)


row("dialog that nobody answers", _DIRTY["dialog that nobody answers"], _is_blank, again=False, shows=None)


@dirty("handler of dialogs")
def _(page: Any) -> None:
    page.context.on("dialog", lambda dialog: dialog.accept())
    go(page)
    assert page.evaluate("confirm()") is True


row("handler of dialogs", _DIRTY["handler of dialogs"], gives("confirm()", False), again=False)


@dirty("clock")
def _(page: Any) -> None:
    page.clock.install(time=0)


_NOW = gives("Date.now() > 1e12", True)
row("clock", _DIRTY["clock"], _NOW, again=False)
row("fixed time", lambda page: page.context.clock.set_fixed_time(0), _NOW, again=False)


def _waits_long(page: Any) -> None:
    page.wait_for_function("new Promise(done => setTimeout(() => done(1), 300))")


row("default timeout of the page", lambda page: page.set_default_timeout(100), _waits_long, again=False)
row(
    "default timeout of the context",
    lambda page: page.context.set_default_timeout(100),
    _waits_long,
    again=False,
)


@dirty("tracing")
def _(page: Any) -> None:
    page.context.tracing.start(snapshots=True)


@check("tracing", again=False)
def _(page: Any) -> None:
    page.context.tracing.start()
    page.context.tracing.stop()


@dirty("HAR that is replayed")
def _(page: Any) -> None:
    import pathlib

    pathlib.Path("some.har").write_text('{"log": {"version": "1.2", "creator": {}, "entries": []}}')
    page.route_from_har("some.har")


@check("HAR that is replayed", again=False)
def _(page: Any) -> None:
    go(page)


def _has_one_tab(page: Any) -> None:
    assert page.context.pages == [page]
    _is_blank(page)


row("another tab", lambda page: page.context.new_page(), _has_one_tab, again=False)
row(
    "popup",
    lambda page: (go(page), page.evaluate("void open('/popup')"), page.wait_for_timeout(100))[0],
    _has_one_tab,
    again=False,
)


@dirty("popup that was closed")
def _(page: Any) -> None:
    go(page)
    with page.expect_popup() as popup:
        page.evaluate("void open('/popup', 'named')")
    popup.value.evaluate("localStorage.k = sessionStorage.k = 1")
    popup.value.close()


@check("popup that was closed")
def _(page: Any) -> None:
    _has_one_tab(page)
    gives("localStorage.length", 0)(page)


row("page that the test closed", lambda page: page.close(), _is_blank, again=False)


@dirty("page that closed itself")
def _(page: Any) -> None:
    page.evaluate("void close()")
    with contextlib.suppress(Exception):
        page.wait_for_timeout(5000)


row("page that closed itself", _DIRTY["page that closed itself"], _is_blank, again=False)
row("context that the test closed", lambda page: page.context.close(), _is_blank, again=False)


@dirty("page that crashed")
def _(page: Any) -> None:
    with contextlib.suppress(Exception):
        page.goto("chrome://crash", timeout=PATIENCE)


row("page that crashed", _DIRTY["page that crashed"], go, again=False)


def _cdp(*calls: tuple[str, dict[str, Any]]) -> Step:
    def step(page: Any) -> None:
        session = page.context.new_cdp_session(page)
        for method, arguments in calls:
            session.send(method, arguments)

    return step


row(
    "user agent by CDP",
    _cdp(("Emulation.setUserAgentOverride", {"userAgent": "dirty"})),
    gives("navigator.userAgent === 'dirty'", False),
    again=False,
)
row(
    "time zone by CDP",
    _cdp(("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})),
    gives("Intl.DateTimeFormat().resolvedOptions().timeZone === 'Asia/Tokyo'", False),
    again=False,
)
row("interception by CDP", _cdp(("Fetch.enable", {})), go, again=False)
_AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
}
row(
    "virtual authenticator by CDP",
    _cdp(
        ("WebAuthn.enable", {}),
        ("WebAuthn.addVirtualAuthenticator", {"options": {**_AUTHENTICATOR, "isUserVerified": True}}),
    ),
    gives("PublicKeyCredential.isUserVerifyingPlatformAuthenticatorAvailable()", False),
    again=False,
)
row(
    "credentials",
    lambda page: (page.context.credentials.install(), page.context.credentials.create("localhost"))[0],
    _has_no_credentials,
    again=False,
)


def _browser_cdp(page: Any) -> None:
    go(page, f"{O}/?mine")
    session = page.context.browser.new_browser_cdp_session()
    targets = session.send("Target.getTargets")["targetInfos"]
    own = next(t["browserContextId"] for t in targets if t["type"] == "page" and t["url"] == page.url)
    session.send(
        "Browser.grantPermissions", {"permissions": ["geolocation"], "browserContextId": own, "origin": O}
    )


row(
    "permissions by the browser's CDP",
    _browser_cdp,
    gives("navigator.permissions.query({name: 'geolocation'}).then(p => p.state !== 'granted')", True),
    again=False,
)


@dirty("locator handler")
def _(page: Any) -> None:
    page.add_locator_handler(page.locator("#box"), lambda _: CALLED.append("handler"), no_wait_after=True)


@check("locator handler", again=False)
def _(page: Any) -> None:
    CALLED.clear()
    go(page)
    page.click("#link")
    assert CALLED == []


def _shift(page: Any) -> None:
    go(page)
    page.keyboard.down("Shift")


def _types_small(page: Any) -> None:
    go(page)
    page.focus("#box")
    page.evaluate("addEventListener('keydown', e => { window.shift = e.shiftKey })")
    page.keyboard.press("a")
    assert page.evaluate("window.shift") is False


row("key that is down", _shift, _types_small, again=False)


def _buttons(page: Any) -> None:
    go(page)
    page.evaluate("addEventListener('mousemove', e => { window.buttons = e.buttons })")
    page.mouse.move(5, 5)
    assert page.evaluate("window.buttons") == 0


row("button that is down", lambda page: (go(page), page.mouse.down())[0], _buttons, again=False)


@dirty("file chooser")
def _(page: Any) -> None:
    page.on("filechooser", lambda _: CALLED.append("chooser"))


@check("file chooser", again=False)
def _(page: Any) -> None:
    CALLED.clear()
    go(page)
    page.evaluate("document.body.innerHTML = '<input type=file id=f>'")
    page.click("#f")
    page.wait_for_timeout(50)
    assert CALLED == []


@dirty("download")
def _(page: Any) -> None:
    go(page)
    page.evaluate("document.querySelector('#link').href = '/download'")
    with page.expect_download() as download:
        page.click("#link")
    assert download.value.path().read_text() == "file"


@check("download", shows=False)
def _(page: Any) -> None:
    page.on("download", lambda _: CALLED.append("download"))
    CALLED.clear()
    go(page)
    page.wait_for_timeout(50)
    assert CALLED == []


@dirty("attribute of the page")
def _(page: Any) -> None:
    page.helper = 1


@check("attribute of the page", again=False)
def _(page: Any) -> None:
    assert not hasattr(page, "helper")


@dirty("private attribute of the context")
def _(page: Any) -> None:
    page.context._helper = 1


@check("private attribute of the context", again=False)
def _(page: Any) -> None:
    assert not hasattr(page.context, "_helper")


@dirty("method that was replaced")
def _(page: Any) -> None:
    page.title = lambda: "mine"


@check("method that was replaced", again=False)
def _(page: Any) -> None:
    go(page)
    assert page.title() == "page"


KEPT: list[Any] = []


@dirty("what a kept keyboard did")
def _(page: Any) -> None:
    page.keyboard.insert_text("")
    KEPT[:] = KEPT or [page.keyboard]
    (KEPT[0] if KEPT[0] is page.keyboard else page.keyboard).down("Shift")


row("what a kept keyboard did", _DIRTY["what a kept keyboard did"], _types_small, again=False)
