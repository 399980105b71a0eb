"""``peaks cli``: saving and loading a login, through our own store.

playwright-cli's own command keeps cookies and localStorage alone, in a file of mode 0644, through links.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from pytest_peaks.auth import through_cli
from pytest_peaks.auth.model import State
from pytest_peaks.auth.state import Place
from pytest_peaks.auth.through_cli import Ask
from pytest_peaks.doors import cli_client
from pytest_peaks.errors import CliUsageError, PeaksError
from pytest_peaks.named.call import Call
from pytest_peaks.named.sessions import Named


def save(call: Call) -> int:
    """``state-save [name|file]``: under a name in ``.peaks/auth``, or in a file."""
    session = call.session()
    wanted = call.word(1)
    if wanted is not None:
        place = Place.of(call.dirs, wanted)
    else:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")[:-3]
        place = Place(session.artifacts / f"storage-state-{now}Z.json")
    captured = through_cli.capture(asking(session), name=place.name or session.name)
    place.write(call.dirs, captured.state)
    link = f"- [Storage state]({place.path})"
    lines = [link, *(f"- not saved, since no state can carry it: {lost}" for lost in captured.lost)]
    text = link if call.args.get("raw") else "\n".join(["### Result", *lines])
    call.say(text, result=link, file=str(place.path), lost=list(captured.lost))
    return 0


def replay(call: Call) -> int:
    """``state-load <name|file>``: replace cookies and storage; the page sees it when it is loaded again."""
    session = call.session()
    wanted = call.word(1)
    if wanted is None:
        raise CliUsageError("state-load needs a name or a file", hint="peaks cli -s=NAME state-load admin")
    place = Place.of(call.dirs, wanted)
    state = place.read(call.dirs)
    load(session, place, state, blank=through_cli.is_blank(asking(session)))
    call.say("", session=session.name, loaded=True)
    return 0


def load(session: Named, place: Place, state: State, *, blank: bool) -> None:
    """Have a session take a login.

    :param blank: its tab is blank and stays so: sessionStorage is replayed as well.
    :raises InvalidStateError: the browser refuses it.
    """
    try:
        through_cli.replay(asking(session), state, Path(session.record.temp_dir), blank=blank)
    except PeaksError as error:
        raise place.refused(error) from None


def asking(session: Named) -> Ask:
    """What runs command lines in a session, and gives the bare value."""

    def ask(words: list[str]) -> str:
        answer = cli_client.ask(session.socket, {"_": words}, cwd=session.record.temp_dir, raw=True)
        if answer.is_error:
            raise cli_client.failure(answer, words[0])
        return answer.text

    return ask
