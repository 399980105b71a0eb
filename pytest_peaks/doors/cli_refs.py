"""What the CLI's daemon knows of the page: whether a ref still names what it was shown for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from pytest_peaks.doors import cli_line
from pytest_peaks.doors.cli_client import Answer
from pytest_peaks.doors.cli_line import Command
from pytest_peaks.errors import StaleRefError
from pytest_peaks.session import processes

# The daemon has a connection of its own to the browser and learns within milliseconds of what others do there.
CATCH_UP_TIMEOUT = 2.0
# What Playwright says where it looked into a page that was just going.
GOING = "context was destroyed"
MODAL = "modal state"

# Marks each document of the page, frames included, so that another one is told from it. A symbol that no
# page enumerates; a document keeps it as long as it lives. The first answer from the page comes after all
# that the daemon did not know of it yet, such as its frames.
_MARK = """async page => {
    const mark = () => document[Symbol.for("pytest-peaks")] ??= Math.random().toString(36).slice(2);
    const late = page.waitForTimeout(2000).then(() => "", () => "");
    const marked = frame => Promise.race([frame.evaluate(mark).catch(() => ""), late]);
    if (!await marked(page.mainFrame()))
        return [""];
    return Promise.all(page.frames().map(marked));
}"""
_READ_MARK = """() => document[Symbol.for("pytest-peaks")] || "" """.strip()


class Documents:
    """The documents that refs were last shown of.

    :param ask: has the daemon run a command and gives its bare answer.
    """

    def __init__(self, ask: Callable[..., Answer]) -> None:
        self._ask = ask
        self._known: frozenset[str] = frozenset()

    def remember(self) -> None:
        """Note the documents that are there now.

        Called before refs are shown, so that those of a page that comes in between count as stale and not as good.
        """

        def seen() -> bool:
            answer = self._ask("run-code", _MARK)
            marks = [] if answer.is_error else json.loads(answer.text)
            self._known = frozenset(marks) - {""}
            return ("" not in marks and not answer.is_error) or MODAL in answer.text

        processes.wait_until(seen, CATCH_UP_TIMEOUT)

    def check(self, command: Command, words: Sequence[str]) -> None:
        """Refuse refs of a page that is gone: in the one that came, they may name something else.

        :raises StaleRefError: one is.
        """
        for place in command.targets:
            if place < len(words) and cli_line.REF.fullmatch(words[place]):
                answer = self.settled("eval", _READ_MARK, words[place])
                if answer.is_error and MODAL in answer.text:
                    continue  # the command itself will say so
                if answer.is_error or answer.text.strip('"') not in self._known:
                    raise StaleRefError(
                        f"{command.name}: ref {words[place]} is of a page or element that is gone, or of no snapshot",
                        hint="take a new snapshot and use its refs",
                    )

    def settled(self, *words: str) -> Answer:
        """The answer to a command that only looks, asked again while the daemon means a page that is going."""
        answers: list[Answer] = []

        def settled() -> bool:
            answers.append(self._ask(*words))
            return GOING not in answers[-1].text

        processes.wait_until(settled, CATCH_UP_TIMEOUT)
        return answers[-1]

    def wait_for_tabs(self, number: int) -> None:
        """Wait until the daemon knows as many tabs as there are."""

        def known() -> bool:
            answer = self._ask("tab-list")
            return answer.is_error or tabs_in(answer) == number

        processes.wait_until(known, CATCH_UP_TIMEOUT)


def tabs_in(answer: Answer) -> int:
    """How many tabs ``tab-list`` lists."""
    return 0 if answer.is_error else len(re.findall(r"^- \d+: ", answer.text, re.MULTILINE))
