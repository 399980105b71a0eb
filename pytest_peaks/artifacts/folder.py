"""A test's folder, and the names of the files in it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import unicodedata
from pathlib import Path

# Windows ends paths at 260 characters, most systems names at 255.
LONGEST = 80
_SUFFIXES = {"trace": ".zip", "video": ".webm"}
_OURS = re.compile(
    r"(trace(-[a-z0-9_-]+)?\.zip|video(-[a-z0-9_-]+)?\.webm|test-(failed|finished)(-[a-z0-9_-]+)?\.png)(\.part)?"
)


def folder_name(node_id: str, *, retry: int = 0) -> str:
    """A name for the folder of a test: readable, legal on every system, and no other test's.

    :param retry: how often the test was repeated before.
    """
    ascii_only = unicodedata.normalize("NFKD", node_id).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_only).strip("-")
    if len(words) > LONGEST:
        words = f"{words[: LONGEST // 2].rstrip('-')}-{words[-LONGEST // 2 :].lstrip('-')}"
    # What cleaning made equal is told apart by what it was.
    mark = hashlib.sha256(node_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    again = f"-retry{retry}" if retry else ""
    return f"{words}-{mark}{again}".lstrip("-")


def file_name(kind: str, session: str, number: int, count: int, *, failed: bool) -> str:
    """A file's name, as pytest-playwright has it, with a named session's name in it.

    :param number: which of `count` of its kind in its session it is, from 1 on.
    """
    named = f"-{session}" if session else ""
    if kind == "screenshot":
        return f"test-{'failed' if failed else 'finished'}{named}-{number}.png"
    numbered = f"-{number}" if count > 1 else ""
    return f"{kind}{named}{numbered}{_SUFFIXES[kind]}"


def clear_earlier(folder: Path, *, retry: int) -> None:
    """Remove what an earlier run kept of a test, and nothing else: the folder shows the latest run.

    :param folder: one that :func:`folder_name` named.
    """
    folders = [folder]
    if retry == 0 and folder.parent.is_dir():
        name = re.compile(re.escape(folder.name) + r"-retry[0-9]+")
        folders += [path for path in folder.parent.glob(f"{folder.name}-retry*") if name.fullmatch(path.name)]
    for found in folders:
        if found.is_symlink() or not found.is_dir():
            continue
        with contextlib.suppress(OSError):
            for path in list(found.iterdir()):
                if _OURS.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                    path.unlink()
            found.rmdir()  # if there is nothing else in it


def put(source: Path, folder: Path, name: str) -> Path:
    """Move a finished file into a test's folder, whole or not at all, and never over another one.

    :raises OSError: it can't be put there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = _free(folder / name)
    try:
        source.rename(target)
    except OSError:  # another file system, for one
        part = target.with_name(f"{target.name}.part")
        try:
            shutil.copyfile(source, part)
            part.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    return target


def _free(path: Path) -> Path:
    """The path, or the next one with a number where somebody else, such as pytest-playwright, has put a file."""
    number, free = 2, path
    while free.exists() or free.is_symlink():
        free, number = path.with_name(f"{path.stem}-{number}{path.suffix}"), number + 1
    return free
