"""A small notes service, here to be tested: log in, keep notes, log out."""

import itertools
import secrets
from collections import defaultdict

from flask import Flask, redirect, render_template_string, request, session, url_for
from flask.typing import ResponseReturnValue

# Demo accounts. A real service would store password hashes.
PASSWORDS = {"alice": "wonderland", "bob": "builder"}

GREETINGS = {"en": "Hello", "fr": "Bonjour"}

# The empty icon stops the browser from asking for /favicon.ico.
HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Notes</title>
<link rel="icon" href="data:,">
<style>@media (max-width: 600px) { .wide-only { display: none } }</style>
"""

LOGIN_PAGE = """
<h1>Log in</h1>
{% if error %}<p role="alert">{{ error }}</p>{% endif %}
<form method="post">
  <label>Name <input name="name" required></label>
  <label>Password <input name="password" type="password" required></label>
  <button>Log in</button>
</form>
"""

NOTES_PAGE = """
<h1>{{ greeting }}, {{ user }}</h1>
<p class="wide-only">Tip: press Enter to add a note.</p>
<form method="post" action="{{ url_for('add_note') }}">
  <label>New note <input name="text" required></label>
  <button>Add</button>
</form>
<ul>
{% for number, text in notes %}
  <li>
    <span>{{ text }}</span>
    <form method="post" action="{{ url_for('delete_note', number=number) }}">
      <button aria-label="Delete {{ text }}">Delete</button>
    </form>
  </li>
{% else %}
  <li>No notes yet.</li>
{% endfor %}
</ul>
<form method="post" action="{{ url_for('log_out') }}"><button>Log out</button></form>
"""

# The server never sees this token: it lives in the browser only.
TOKEN_PAGE = """
<h1>Token</h1>
<label>Token <input id="token"></label>
<button id="remember">Remember token</button>
<output id="found"></output>
<script>
  const field = document.getElementById("token");
  const found = document.getElementById("found");
  function show() {
    found.textContent = localStorage.getItem("token") ?? "no token";
  }
  document.getElementById("remember").addEventListener("click", () => {
    localStorage.setItem("token", field.value);
    show();
  });
  show();
</script>
"""


class NoteStore:
    """The notes of every user, in memory only."""

    def __init__(self) -> None:
        self._notes: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._numbers = itertools.count(1)

    def of(self, user: str) -> list[tuple[int, str]]:
        return list(self._notes[user].items())

    def add(self, user: str, text: str) -> None:
        self._notes[user][next(self._numbers)] = text

    def delete(self, user: str, number: int) -> None:
        self._notes[user].pop(number, None)

    def clear(self) -> None:
        self._notes.clear()


def render(body: str, **values: object) -> str:
    return render_template_string(HEAD + body, **values)


def create_app(store: NoteStore) -> Flask:
    app = Flask(__name__)
    # A new key for each server: a cookie from an earlier run opens nothing.
    app.secret_key = secrets.token_hex()

    @app.before_request
    def ask_for_login() -> ResponseReturnValue | None:
        if "user" in session or request.endpoint in {"log_in", "token"}:
            return None
        return redirect(url_for("log_in"))

    @app.route("/login", methods=["GET", "POST"])
    def log_in() -> ResponseReturnValue:
        if request.method == "GET":
            return render(LOGIN_PAGE)
        name = request.form["name"]
        if PASSWORDS.get(name) != request.form["password"]:
            return render(LOGIN_PAGE, error="Wrong name or password."), 401
        session["user"] = name
        session.permanent = True  # the login survives a restart of the browser
        return redirect(url_for("notes"))

    @app.post("/logout")
    def log_out() -> ResponseReturnValue:
        session.clear()
        return redirect(url_for("log_in"))

    @app.get("/notes")
    def notes() -> ResponseReturnValue:
        user = session["user"]
        greeting = GREETINGS[request.accept_languages.best_match(GREETINGS, "en")]
        return render(NOTES_PAGE, greeting=greeting, user=user, notes=store.of(user))

    @app.post("/notes")
    def add_note() -> ResponseReturnValue:
        store.add(session["user"], request.form["text"])
        return redirect(url_for("notes"))

    @app.post("/notes/<int:number>/delete")
    def delete_note(number: int) -> ResponseReturnValue:
        store.delete(session["user"], number)
        return redirect(url_for("notes"))

    @app.get("/token")
    def token() -> ResponseReturnValue:
        return render(TOKEN_PAGE)

    return app
