"""The ``peaks`` command."""

from __future__ import annotations

import sys

from pytest_peaks.cli.plain import JSON


def main() -> None:
    """Entry point of the ``peaks`` script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        fast = _without_click(arguments)
        if fast is not None:
            return fast
        from pytest_peaks.cli import output
        from pytest_peaks.cli.commands import peaks
    except KeyboardInterrupt:  # before there is anything that could answer
        return 130
    return output.run(peaks, arguments)


def _without_click(arguments: list[str]) -> int | None:
    """Run a verb that is called again and again by other programs, without the import of all the others.

    None if it is another one.
    """
    before = [word for word in arguments[:2] if word == JSON][:1] if arguments[:1] == [JSON] else []
    verb, *rest = arguments[len(before) :] or [""]
    if verb == "cli":
        from pytest_peaks.named import front

        return front.main([*before, *rest])
    if verb == "guard" and "--help" not in rest:
        from pytest_peaks.guard import hook

        return hook.main([*before, *rest])
    words = [word for word in arguments if word != JSON]
    if words == ["playwright", "ls"]:
        from pytest_peaks.cli import listed

        return listed.without_click(as_json=len(words) < len(arguments))
    return None
