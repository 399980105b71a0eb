"""A loopback application to log in to, for the tests of saved logins.

Each way to keep a login has its pages: ``/login`` (a cookie), ``/enter/<kind>`` (a bearer token in the page's
own storage), ``/rotate`` (a refresh token that is good once), ``/passkey``. What was asked of it is in
:attr:`App.logins` and :attr:`App.seen`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

# How long a test may hold a login up.
PATIENCE = 120.0
STORAGES = ("local", "session", "indexed", "opfs")

# What pages have to keep a token in each kind of storage, and to find it again.
_STORAGE = """
const db = () => new Promise((done, fail) => {
    const open = indexedDB.open("firebase", 3);
    open.onupgradeneeded = () => open.result.createObjectStore("tokens", {keyPath: "id"}).createIndex("by", "user");
    open.onsuccess = () => done(open.result); open.onerror = fail;
});
const ask = request => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result); request.onerror = fail;
});
const stores = {
    local: {put: v => localStorage.setItem("token", v), get: () => localStorage.getItem("token")},
    session: {put: v => sessionStorage.setItem("token", v), get: () => sessionStorage.getItem("token")},
    indexed: {
        put: async v => ask((await db()).transaction("tokens", "readwrite").objectStore("tokens").put(
            {id: "t", user: "u", token: v, when: new Date(7), big: 12n, bytes: new Uint8Array([1, 2])})),
        get: async () => {
            const found = await ask((await db()).transaction("tokens").objectStore("tokens").index("by").get("u"));
            const whole = found && found.when.getTime() === 7 && found.big === 12n && found.bytes[1] === 2;
            return whole ? found.token : null;
        },
    },
    opfs: {
        put: async v => {
            const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("d", {create: true});
            const out = await (await folder.getFileHandle("token", {create: true})).createWritable();
            await out.write(v); await out.close();
        },
        get: async () => {
            try {
                const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("d");
                return await (await (await folder.getFileHandle("token")).getFile()).text();
            } catch { return null; }
        },
    },
};
"""
_ENTER = "fetch('/token' + location.search).then(r => r.text()).then(stores.KIND.put).then(() => document.title = 'in')"
_APP = """
const first = Promise.resolve(stores.KIND.get());
first.then(token => fetch('/whoami', {headers: {Authorization: 'Bearer ' + token}})).then(r => r.text())
    .then(user => { if (user) document.title = user; else location.href = '/login'; });
"""
_PASSKEY = """
const b64 = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer)));
async function register() {
    const made = await navigator.credentials.create({publicKey: {
        challenge: new Uint8Array(16), rp: {id: "localhost", name: "app"},
        user: {id: new Uint8Array([1]), name: "carol", displayName: "carol"},
        pubKeyCredParams: [{type: "public-key", alg: -7}],
        authenticatorSelection: {residentKey: "required", userVerification: "required"},
    }});
    await fetch("/passkey/known", {method: "POST", body: JSON.stringify(
        {id: made.id, key: b64(made.response.getPublicKey())})});
    document.title = "registered";
}
async function enter() {
    const made = await navigator.credentials.get({publicKey: {
        challenge: new Uint8Array(16), rpId: "localhost", userVerification: "required"}});
    const answer = await fetch("/passkey/enter", {method: "POST", body: JSON.stringify({
        id: made.id, data: b64(made.response.authenticatorData), client: b64(made.response.clientDataJSON),
        signature: b64(made.response.signature)})});
    document.title = answer.ok ? await answer.text() : "refused";
}
"""


class App(ThreadingHTTPServer):
    """The application.

    :ivar logins: the user of each login, in order; of refused ones as well.
    :ivar seen: path and cookies of each request.
    :ivar gate: while it is clear, logins wait.
    :ivar refuses: logins end with status 401.
    :ivar single: a user's login ends an earlier session of theirs.
    :ivar max_age: of the session cookie, in seconds; None for one that lasts as long as the browser.
    :ivar kicked: users who were logged out by another login of theirs.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.logins: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        self.refuses = False
        self.single = False
        self.max_age: int | None = 3600
        self.kicked: list[str] = []
        self.sessions: dict[str, str] = {}
        self.refresh: dict[str, str] = {}
        self.passkeys: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def handle_error(self, request: object, address: object) -> None:
        """A browser that is gone is none of the application's failures."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """Its base URL, under the name that passkeys need."""
        return f"http://localhost:{self.server_address[1]}"

    @property
    def other(self) -> str:
        """The same under another origin."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def begin(self, user: str, prefix: str = "") -> str:
        """A new session of a user; gives its secret."""
        with self.lock:
            self.logins.append(user)
        self.began.set()
        self.gate.wait(PATIENCE)
        with self.lock:
            if self.single:
                ended = [sid for sid, other in self.sessions.items() if other == user]
                self.kicked += [user] * len(ended)
                for sid in ended:
                    del self.sessions[sid]
            secret = f"canary{prefix}{secrets.token_hex(12)}"
            self.sessions[secret] = user
            return secret

    def end_all(self) -> None:
        """Forget every session, as a server that was set up anew does."""
        with self.lock:
            self.sessions.clear()


class _Handler(BaseHTTPRequestHandler):
    server: App
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.seen.append((self.path, self.headers.get("Cookie", "")))
        part, _, kind = url.path.strip("/").partition("/")
        query = dict(parse_qsl(url.query))
        page = getattr(self, f"_get_{part}", None)
        if page is not None:
            page(query, kind)
        else:
            self._html("<title>page</title>" + query.get("html", ""))

    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Cookie", "")))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        if urlsplit(self.path).path == "/login":
            self._log_in(dict(parse_qsl(body)))
        else:
            self._passkey(json.loads(body))

    # A cookie

    def _get_login(self, query: dict[str, str], _: str) -> None:
        user = query.get("user", "")
        self._html(
            f"<title>login</title><form method=post><input name=user value='{user}'><button>in</button></form>"
        )

    def _log_in(self, form: dict[str, str]) -> None:
        secret = self.server.begin(form["user"])
        if self.server.refuses:
            self._html("<title>refused</title><h1>wrong password</h1>", status=401)
            return
        age = self.server.max_age
        self._cookies = [
            f"sid={secret}; Path=/; HttpOnly" + (f"; Max-Age={age}" if age is not None else ""),
            "seen=1; Path=/; Max-Age=2",
        ]
        self._redirect("/me")

    def _get_me(self, _query: dict[str, str], _: str) -> None:
        user = self.server.sessions.get(self._cookie("sid"))
        if user is None:
            self._redirect("/login")
        else:
            self._html(f"<title>{user}</title><h1>{user}</h1>")

    def _get_logout(self, _query: dict[str, str], _: str) -> None:
        self.server.sessions.pop(self._cookie("sid"), None)
        self._cookies = ["sid=; Path=/; Max-Age=0"]
        self._html("<title>out</title>")

    def _get_echo(self, _query: dict[str, str], _: str) -> None:
        self._text(self.headers.get("Cookie", ""))

    # A token in the page's storage

    def _get_enter(self, _query: dict[str, str], kind: str) -> None:
        self._html(f"<script>{_STORAGE}{_ENTER.replace('KIND', kind)}</script>")

    def _get_app(self, _query: dict[str, str], kind: str) -> None:
        self._html(f"<script>{_STORAGE}{_APP.replace('KIND', kind)}</script>")

    def _get_token(self, query: dict[str, str], _: str) -> None:
        self._text(self.server.begin(query["user"], "token"))

    def _get_whoami(self, _query: dict[str, str], _: str) -> None:
        self._text(
            self.server.sessions.get(self.headers.get("Authorization", "").removeprefix("Bearer "), "")
        )

    # A refresh token, each good once

    def _get_rotate(self, query: dict[str, str], _: str) -> None:
        with self.server.lock:
            user = self.server.refresh.pop(self._cookie("refresh"), None)
        if "user" in query:
            user = query["user"]
            self.server.begin(user)
        if user is None:
            self._html("<title>401</title>", status=401)
            return
        secret = f"canaryrefresh{secrets.token_hex(12)}"
        self.server.refresh[secret] = user
        self._cookies = [f"refresh={secret}; Path=/; HttpOnly; Max-Age=3600"]
        self._html(f"<title>{user}</title>")

    # A passkey

    def _get_passkey(self, _query: dict[str, str], _: str) -> None:
        self._html(f"<title>passkey</title><script>{_PASSKEY}</script>")

    def _passkey(self, body: dict[str, str]) -> None:
        if self.path == "/passkey/known":
            self.server.passkeys[body["id"]] = base64.b64decode(body["key"])
            self._text("")
        elif self._is_signed(body):
            self._text("carol")
        else:
            self._text("", status=401)

    def _is_signed(self, body: dict[str, str]) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        known = self.server.passkeys.get(body["id"])
        if known is None:
            return False
        key = serialization.load_der_public_key(known)
        assert isinstance(key, ec.EllipticCurvePublicKey)
        signed = base64.b64decode(body["data"]) + hashlib.sha256(base64.b64decode(body["client"])).digest()
        try:
            key.verify(base64.b64decode(body["signature"]), signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    # What a state cannot carry

    def _get_worker(self, _query: dict[str, str], _: str) -> None:
        self._answer("text/javascript", b"onfetch = () => {}")

    # Answers

    _cookies: list[str] = []  # noqa: RUF012 - never changed in place

    def _cookie(self, name: str) -> str:
        found = SimpleCookie(self.headers.get("Cookie", "")).get(name)
        return found.value if found is not None else ""

    def _redirect(self, where: str) -> None:
        self._answer("text/html", b"", status=303, location=where)

    def _html(self, body: str, status: int = 200) -> None:
        self._answer("text/html; charset=utf-8", f"<!doctype html>{body}".encode(), status=status)

    def _text(self, body: str, status: int = 200) -> None:
        self._answer("text/plain", body.encode(), status=status)

    def _answer(self, kind: str, data: bytes, *, status: int = 200, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if location:
            self.send_header("Location", location)
        for cookie in self._cookies:
            self.send_header("Set-Cookie", cookie)
        self._cookies = []
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def serve() -> Iterator[App]:
    """Serve on a free port."""
    app = App()
    thread = threading.Thread(target=app.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield app
    finally:
        app.gate.set()
        app.shutdown()
        app.server_close()
        thread.join()


def until(condition: object, what: str, seconds: float = PATIENCE) -> None:
    """Wait until a callable says yes."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)
