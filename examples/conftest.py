"""Serves the notes service for the tests in this folder."""

import logging
import threading
from collections.abc import Iterator

import pytest
from notes_app import NoteStore, create_app
from werkzeug.serving import make_server


@pytest.fixture(scope="session")
def note_store() -> NoteStore:
    return NoteStore()


@pytest.fixture(scope="session")
def base_url(note_store: NoteStore) -> Iterator[str]:
    """Serve the app and tell its address, so that tests can goto("/login").

    Each xdist worker is a process with a session of its own, so each one gets
    its own server. Port 0 lets the system pick a free port: workers cannot clash.
    """
    # One log line for each request would bury the report of a failed test.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server("127.0.0.1", 0, create_app(note_store), threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="notes-server", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def empty_store(note_store: NoteStore) -> Iterator[None]:
    """Leave no notes behind.

    The plugin isolates browsers; what the server remembers is up to the tests, and
    those of one worker share a server, one after the other. The notes go after each
    test, not before it: a fixture of a wider scope, such as a page for a whole
    module, is set up before this one and would still see them.
    """
    yield
    note_store.clear()
