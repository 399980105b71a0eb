"""``peaks cli -s=NAME …``: a guarded front to playwright-cli.

What drives a page goes to the session's daemon as it is, and comes back as playwright-cli would print it.
What is about sessions (open, close, list, …) is done here, for the sessions of this project alone.

No click here: these commands take whatever playwright-cli takes, and one of them is to cost no more than
that itself does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from pytest_peaks.doors import cli_client, cli_line
from pytest_peaks.errors import CliUsageError, PeaksError
from pytest_peaks.named.call import Call, print_json, print_text

SCHEMA = 1
# Options that playwright-cli does not have.
OWN_FLAGS = ("project", "auth", "executable")
# What is about sessions, and the function that does it: module and name.
OWN_WAYS = {
    "open": ("begin", "open_"),
    "attach": ("begin", "attach"),
    "list": ("verbs", "list_"),
    "close": ("verbs", "close"),
    "detach": ("verbs", "detach"),
    "close-all": ("verbs", "close_all"),
    "kill-all": ("verbs", "kill_all"),
    "delete-data": ("verbs", "delete_data"),
    "state-save": ("logins", "save"),
    "state-load": ("logins", "replay"),
}
# What is about no session at all, and is left to the original.
ORIGINAL = frozenset({"install", "install-browser", "show"})
_OWN_HELP = """
Options of peaks cli itself:
  -s=<session>                the session's name: PREFIX-…; `peaks name` makes one
  --project=<path>            a folder of the project; default: the working directory
  --auth=<name>               open: log in from a saved login before the first navigation
  --executable=<path>         open: the browser's executable"""


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Every failure ends here."""
    words = list(arguments)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return _fail("INTERRUPTED", "interrupted", "", 130, as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads it any more
        return 1
    except PeaksError as error:
        _show_traceback()
        return _fail(error.code, error.message, error.hint, error.exit_code, as_json=as_json)
    except Exception as error:
        _show_traceback()
        hint = "this is a mistake in pytest-peaks; PEAKS_DEBUG=1 shows where"
        return _fail("UNEXPECTED", f"{type(error).__name__}: {error}", hint, 1, as_json=as_json)


def _show_traceback() -> None:
    if os.environ.get("PEAKS_DEBUG"):
        import traceback

        traceback.print_exc(file=sys.stderr)


def _fail(code: str, message: str, hint: str, exit_code: int, *, as_json: bool) -> int:
    if as_json:
        # `isError` is how playwright-cli's own object says it.
        what = {"schema": SCHEMA, "ok": False, "action": "cli", "isError": True}
        print_json({**what, "error": code, "message": message, "hint": hint})
    else:
        print(f"{code}: {message}", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
    return exit_code


def _run(words: list[str]) -> int:
    surface = cli_line.surface()
    args = cli_line.parse(words, surface.booleans)
    name = args["_"][0] if args["_"] else ""
    if args.get("version") or args.get("v"):
        return _original(["--version"])
    if args.get("help") or args.get("h") or not name:
        return _help(name, as_json=bool(args.get("json")))
    command = cli_line.check(args, OWN_FLAGS)
    call = Call(args, command)
    if name != "open":
        for flag in ("auth", "executable"):
            if args.pop(flag, None) is not None:
                raise CliUsageError(f"--{flag} is for open", hint="`peaks cli --help open` says more")
    if name in ORIGINAL:
        return _original([word for word in words if not word.startswith("--project=")])
    if name in OWN_WAYS:
        from importlib import import_module

        module, function = OWN_WAYS[name]
        exit_code: int = getattr(import_module(f"pytest_peaks.named.{module}"), function)(call)
        return exit_code
    answer = call.ask(call.session(), args)
    if answer.refused:
        raise cli_client.failure(answer, name)
    if answer.text:
        print_text(answer.text)
    return 1 if answer.is_error else 0


def _help(name: str, *, as_json: bool) -> int:
    surface = cli_line.surface()
    command = surface.commands.get(name)
    text = command.help if command else f"peaks cli - playwright-cli, guarded\n\n{surface.help}"
    text = text.replace("playwright-cli <", "peaks cli <").replace("playwright-cli -s", "peaks cli -s")
    text = text.replace(f"playwright-cli {name}", f"peaks cli {name}") if name else text
    if command is None or name == "open":
        text += f"\n{_OWN_HELP}"
    if as_json:
        print_json({"help": text})
    else:
        print_text(text)
    return 0


def _original(words: Sequence[str]) -> int:
    """Run the wheel's own playwright-cli."""
    from pytest_peaks.doors.bundled import driver_command

    return subprocess.run([*driver_command(), "cli", *words], check=False).returncode
