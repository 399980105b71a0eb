"""``peaks cli``: saving and loading a login, through our own store.

What playwright-cli writes has mode 0644 and goes through links; so it writes into the session's private
folder, and what it wrote is checked and put where it was wanted, whole or not at all, with mode 0600.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from pytest_peaks.auth import state
from pytest_peaks.doors import cli_client
from pytest_peaks.errors import CliUsageError
from pytest_peaks.named.call import Call
from pytest_peaks.named.sessions import Named


def save(call: Call) -> int:
    """``state-save [name|file]``: under a name in ``.peaks/auth``, or in a file."""
    session = call.session()
    wanted = call.word(1)
    if wanted is not None:
        path = state.place(call.dirs, wanted)
    else:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")[:-3]
        path = session.artifacts / f"storage-state-{now}Z.json"
    part = Path(session.record.temp_dir) / f"state-{os.getpid()}.json"
    try:
        answer = cli_client.ask(session.socket, {"_": ["state-save", str(part)]}, cwd=session.record.temp_dir)
        if answer.is_error:
            raise cli_client.failure(answer, "state-save")
        state.write_state_file(path, state.read_state_file(part))
    finally:
        part.unlink(missing_ok=True)
    link = f"- [Storage state]({path})"
    call.say(link if call.args.get("raw") else f"### Result\n{link}", result=link, file=str(path))
    return 0


def replay(call: Call) -> int:
    """``state-load <name|file>``: replace cookies and localStorage; the page sees it when it is loaded again."""
    session = call.session()
    wanted = call.word(1)
    if wanted is None:
        raise CliUsageError("state-load needs a name or a file", hint="peaks cli -s=NAME state-load admin")
    load(session, state.place(call.dirs, wanted))
    call.say("", session=session.name, loaded=True)
    return 0


def load(session: Named, path: Path) -> None:
    """Have a session take what is in a state file.

    :raises StateNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or the browser refuses it.
    """
    with state.handed_over(path, Path(session.record.temp_dir)) as part:
        answer = cli_client.ask(session.socket, {"_": ["state-load", str(part)]}, cwd=session.record.temp_dir)
        if answer.is_error:
            raise state.refused(path, cli_client.failure(answer, "state-load"))
