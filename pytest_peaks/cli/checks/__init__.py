"""What `peaks doctor` looks at. A check takes a :class:`Subject` and yields what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from pytest_peaks.errors import PeaksError
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.spec import BrowserSpec

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    :ivar status: ``problem`` keeps tests from running, ``warning`` may matter and mends itself or
        can be lived with.
    :ivar detail: what was seen.
    :ivar mend: what to do about it; empty where there is nothing to do.
    """

    name: str
    status: Status
    detail: str
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is being examined."""

    dirs: ProjectDirs
    spec: BrowserSpec
    ports: PortRange


CheckFunction = Callable[[Subject], Iterator[Check]]


def examine(name: str, look: CheckFunction, subject: Subject) -> list[Check]:
    """Run one check. Whatever goes wrong in it is its finding and never ends the examination."""
    found: list[Check] = []
    try:
        for check in look(subject):
            found.append(check)
    except PeaksError as error:
        found.append(Check(name, "problem", f"{error.code}: {error.message}", error.hint))
    except Exception as error:
        found.append(Check(name, "problem", f"it failed with {type(error).__name__}: {error}"))
    return found
