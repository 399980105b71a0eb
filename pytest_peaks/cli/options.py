"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pytest_peaks.session.paths import ProjectDirs, project_root

F = TypeVar("F", bound=Callable[..., Any])


def project_option(function: F) -> F:
    """``--project PATH``, given to the verb as `project`: a directory, or None for the working one."""
    return click.option(
        "--project",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="PATH",
        help="A folder of the project; default: the working directory.",
    )(function)


def dirs_of(project: Path | None) -> ProjectDirs:
    """Where the folders of the project around `project` are; creates nothing."""
    return ProjectDirs.locate(project_root(project or Path.cwd()))
