"""The hosted sessions of a project as they are on disk and as they answer, for a list of them.

As fields, without :class:`~pytest_peaks.session.record.Record`: see :mod:`pytest_peaks.session.light`.
"""

from __future__ import annotations

import os

from pytest_peaks.hosting import asking
from pytest_peaks.session import light

TYPE_CHECKING = False  # typing's own, which a type checker knows by its name
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_peaks.session.light import Fields, State


def rows(places: Sequence[tuple[str, str]]) -> tuple[list[Fields], list[str]]:
    """The hosted sessions of projects, by port, as `ls` tells of them; and files of the first that are no records.

    All are asked at once.

    :param places: the root of each project, and its ``.peaks``.
    """
    questions = asking.Questions()
    found: list[tuple[str, str, Fields, str | None]] = []
    asked: list[str] = []
    bad: list[str] = []
    for number, (root, base) in enumerate(places):
        for path in light.record_files(os.path.join(base, *light.RECORDS)):  # noqa: PTH118
            record = light.load(path)
            if isinstance(record, tuple):
                bad += [f"{path}: {record[0]}"] if number == 0 else []
            elif record is not None and record["kind"] == "hosted":
                state = state_before_asking(light.state_of(record["owner"]), record["status"])
                found.append((path, root, record, state))
                if state is None:
                    questions.ask(record["port"], record["endpoints"].get("cdp", ""))
                    asked.append(path)
    ages = {path: age_of(record["startedAt"]) for path, _, record, _ in found}  # the answers come meanwhile
    answers = dict(zip(asked, questions.answers(), strict=True))
    found.sort(key=lambda each: (each[2]["port"], os.path.dirname(each[0]), each[2]["terminalId"]))  # noqa: PTH120
    return [
        _row(root, record, state, ages[path], answers.get(path)) for path, root, record, state in found
    ], bad


def _row(
    root: str,
    record: Fields,
    state: str | None,
    age: int | None,
    answer: tuple[bool, list[str] | None] | None,
) -> Fields:
    there, urls = answer or (False, None)
    return {
        **record,
        "alive": there,
        "state": state or ("alive" if there else "dead"),
        "mcpUrl": record["endpoints"].get("mcp"),
        "ageSeconds": age,
        "tabs": None if urls is None else len(urls),
        "project": root,
    }


def state_before_asking(owner: State, status: str) -> str | None:
    """What a session is, as far as its record tells; None if that depends on whether its port answers."""
    if owner == "alive":
        return "starting" if status == "starting" else None
    return "elsewhere" if owner == "foreign" else "dead"


def age_of(started_at: str) -> int | None:
    """Whole seconds since then, never negative; None if that is no time."""
    import datetime

    try:
        started = datetime.datetime.fromisoformat(started_at)
        return max(0, int((datetime.datetime.now(datetime.UTC) - started).total_seconds()))
    except (ValueError, TypeError, OverflowError):
        return None
