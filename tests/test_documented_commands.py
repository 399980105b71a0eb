"""Every command line that the brief, the README and the docs show is run as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from leaks import Surroundings

from pytest_peaks.doors import cli_line
from pytest_peaks.named.front import OWN_FLAGS

Peaks = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{page}.md"
        for page in ("cli", "auth", "desks", "async", "recycling", "architecture")
    ),
)
# What they show as a stand-in, and what takes its place here.
PLACEHOLDERS = {"ID": "peaks-docs", "NAME": "probe-docs", "PREFIX": "probe", "SLUG": "docs", "PATH": "."}


def shown(text: str) -> Iterator[str]:
    """Command lines of `peaks` in the shell blocks of a Markdown text, in their order."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            command = line.removeprefix("$ ").split("  #")[0].strip()
            if command.startswith("peaks "):
                yield command


def inline(text: str) -> Iterator[str]:
    """Command lines of `peaks` within sentences."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for code in re.findall(r"`(peaks [^`]+)`", text):
        if "…" not in code and " | " not in code:
            yield code


def words_of(line: str, site: str) -> list[str]:
    """The words after `peaks`, with places that exist nowhere replaced by the test's own."""
    line = re.sub(r"https?://(127\.0\.0\.1:5000|example\.com)/?", site + "/", line)
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(line)[1:]]


def test_there_are_such_lines() -> None:
    lines = [line for page in PAGES for line in shown(page.read_text())]
    assert sum("peaks cli" in line for line in lines) > 8
    assert sum("peaks playwright" in line for line in lines) >= 3


def test_what_readme_and_docs_show_works_in_the_order_in_which_they_show_it(
    peaks: Peaks, tmp_path: Path, site: str, surroundings: Surroundings
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "state.json").write_text('{"cookies": [], "origins": []}')
    ports = surroundings.ports
    env = {
        "PEAKS_TERMINAL_ID": PLACEHOLDERS["ID"],
        "PEAKS_DESK_PORTS": f"{ports.stop - 10}-{ports.stop - 1}",
    }
    ran = 0
    for page in PAGES:
        for line in shown(page.read_text()):
            words = words_of(line, site)
            if words[:1] == ["install"]:
                continue  # may install something on this machine: .ci/run has it
            if "click" in words:
                # The ref that the shown page has there is another one on ours.
                words[-1] = "body"
            done = peaks(*words, cwd=folder, env=env)
            assert done.returncode == 0, f"{page.name}: {line}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran > 12
    for verb in (("cli", "close-all"), ("playwright", "stop", "--all")):
        assert peaks(*verb, cwd=folder, env=env).returncode == 0
    surroundings.assert_clean(folder)


def test_commands_within_sentences_are_such_as_there_are(peaks: Peaks, tmp_path: Path, site: str) -> None:
    surface = cli_line.surface()
    verbs = set()
    for page in PAGES:
        for line in inline(page.read_text()):
            verb, *rest = words_of(line, site)
            if verb == "cli" and rest:
                args = cli_line.parse([word.replace("…", "x") for word in rest], surface.booleans)
                if args["_"] and not args.get("help"):
                    cli_line.check(args, OWN_FLAGS)
            verbs.add(
                " ".join([verb, *[word for word in rest[:1] if verb in ("playwright", "auth", "session")]])
            )
    assert {"cli", "doctor", "reap", "guard", "name", "brief", "playwright start"} <= verbs
    for verb in sorted(verbs):
        done = peaks(*verb.split(), "--help", cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_every_line_of_a_brief_works(
    peaks: Peaks, tmp_path: Path, site: str, surroundings: Surroundings
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    url = f"{site}/brief?a=1&b=two words"
    brief = peaks("brief", "probe-brief-4", "--url", url, cwd=folder)
    assert brief.returncode == 0, brief.stderr
    lines = [line.strip() for line in brief.stdout.splitlines() if line.startswith("    peaks ")]
    opening, closing, *between = lines
    assert len(between) >= 5
    assert url in shlex.split(opening)
    for line in [opening, *between, closing]:
        words = shlex.split(line.split("  #")[0])[1:]
        if words[2:3] in (["click"], ["fill"]):  # refs of a page that the brief can't know
            args = cli_line.parse(words[1:], cli_line.surface().booleans)
            assert cli_line.check(args).name in ("click", "fill")
            continue
        done = peaks(*words, cwd=folder)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "probe-brief-4" not in peaks("cli", "list", cwd=folder).stdout
    surroundings.assert_clean(folder)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["default", "--url", "http://a/"], "NAME_RESERVED"),
        (["nobody-shop", "--url", "http://a/"], "NAME_PREFIX"),
        (["probe-shop"], "USAGE"),
        (["probe-shop", "--url", "http://a/", "--auth", "../x"], "INVALID_NAME"),
    ],
)
def test_a_brief_that_could_not_be_followed_is_not_written(
    peaks: Peaks, tmp_path: Path, arguments: list[str], code: str
) -> None:
    done = peaks("brief", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{code}:")
    assert done.stdout == ""
