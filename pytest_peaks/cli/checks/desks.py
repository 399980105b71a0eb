"""Checks of the pool of desks: its configuration, its ledger, who sits there; and the mending of a ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pytest_peaks.cli.checks import Check, Subject
from pytest_peaks.cli.plain import counted
from pytest_peaks.session.paths import ProjectDirs


def desks(subject: Subject) -> Iterator[Check]:
    """Whether the pool's configuration and ledger can be used, and whether any desk needs somebody."""
    from pytest_peaks.desks.errors import BadJsonError
    from pytest_peaks.desks.pool import Pool
    from pytest_peaks.desks.settings import read_settings

    settings = read_settings(root=subject.dirs.root)
    try:
        rules = Pool(settings).look()
    except BadJsonError as error:
        yield Check("desks", "problem", error.message, error.hint)
        return
    ledger = rules.ledger
    seated = len(ledger.seated())
    detail = f"{counted(len(settings.desks), 'desk')}, {counted(len(ledger.sessions), 'session')}, {seated} at a desk"
    left = rules.vacated()
    if left:
        why = f"{detail}; nobody is left who holds {', '.join(sorted(left))}"
        mend = "`peaks session cleanup` saves and frees them; so does whoever needs a desk"
        yield Check("desks", "warning", why, mend)
    broken = {name: desk for name, desk in ledger.desks.items() if desk.state in ("quarantined", "dead")}
    for name, desk in broken.items():
        why = f"{name} is {desk.state}: {desk.reason}"
        yield Check("desks", "warning", why, "`peaks session pool --up` tries it again")
    if not left and not broken:
        yield Check("desks", "ok", detail)


def mend_ledger(dirs: ProjectDirs) -> list[str]:
    """Set a ledger aside that is none, and make one of what runs and what is saved; says what was done.

    :raises SchemaTooNewError: a later pytest-peaks wrote it; it is left as it is.
    :raises PeaksError: it can't be done.
    """
    from pytest_peaks.desks.errors import BadJsonError
    from pytest_peaks.desks.pool import Pool
    from pytest_peaks.desks.settings import read_settings

    settings = read_settings(root=dirs.root)
    pool = Pool(settings)
    try:
        pool.look()
    except BadJsonError:
        pass
    else:
        return []
    aside = pool.file.set_aside()
    rebuilt = pool.seats.rebuilt(with_states=True)
    with pool.changing() as rules:
        for name, session in rebuilt.sessions.items():
            if session.desk is None:
                rules.ledger.sessions.setdefault(name, session)
        for desk in rules.ledger.desks:
            # Above whatever was counted before, so that no lease of then is ever taken for one of now.
            rules.ledger.epochs.setdefault(desk, int(time.time()))
        sessions, seated = len(rules.ledger.sessions), len(rules.ledger.seated())
    done = f"the ledger {settings.ledger} was none: set aside as {aside.name if aside else 'nothing'}"
    return [f"{done}; made anew with {counted(sessions, 'session')}, {seated} at a desk"]
