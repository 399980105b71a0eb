"""What every verb has in common: ``--json`` before or after it, errors, exit codes. Nothing else prints.

A verb is a function that returns a :class:`Reply` or raises a :class:`PeaksError`. With ``--json``
exactly one flat JSON object goes to stdout, whatever happens; without it the text goes to stdout
and failures to stderr.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click

from pytest_peaks.cli.plain import JSON, object_text
from pytest_peaks.errors import PeaksError

USAGE_EXIT = 2
# What shells report of a program that Ctrl-C ended: 128 + SIGINT.
INTERRUPTED_EXIT = 130


@dataclass(frozen=True, slots=True)
class Reply:
    """What a verb has to say.

    :ivar message: one sentence; never empty.
    :ivar fields: further keys of the JSON object. A ``Path`` is written as text.
    :ivar text: what a person reads instead of `message`; None for the message itself.
    :ivar failure: the verb did its work and the outcome is a failure: the JSON object has ``ok``
        false besides its fields, the text is followed by the error, and the exit code is the error's.
    """

    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    failure: PeaksError | None = None


class Printer:
    """How this call of the command answers.

    :ivar as_json: whether one JSON object is wanted.
    :ivar action: the verb, as far as it is known.
    :ivar lower: codes are told as ``lower_snake``.
    """

    def __init__(self) -> None:
        self.as_json = False
        self.action = "peaks"
        self.lower = False

    def reply(self, reply: Reply) -> int:
        """Print the answer of a verb; returns the exit code."""
        if reply.failure is not None:
            if not self.as_json and reply.text is not None:
                click.echo(reply.text)
            return self.failure(reply.failure, reply.fields)
        if self.as_json:
            self._object(ok=True, message=reply.message, **reply.fields)
        else:
            click.echo(reply.message if reply.text is None else reply.text)
        return 0

    def failure(self, error: PeaksError, fields: Mapping[str, Any] | None = None) -> int:
        """Print a failure; returns its exit code."""
        return self.error(error.code, error.message, error.hint, error.exit_code, fields)

    def error(
        self, code: str, message: str, hint: str, exit_code: int, fields: Mapping[str, Any] | None = None
    ) -> int:
        code = code.lower() if self.lower else code
        if self.as_json:
            self._object(ok=False, error=code, message=message, hint=hint, **(fields or {}))
        else:
            click.echo(f"{code}: {message}", err=True)
            if hint:
                click.echo(f"hint: {hint}", err=True)
        return exit_code

    def _object(self, *, ok: bool, **fields: Any) -> None:
        click.echo(object_text(ok=ok, action=self.action, **fields))


class PeaksCommand(click.Command):
    """A verb: takes ``--json``, and its function's :class:`Reply` is printed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())

    def invoke(self, ctx: click.Context) -> int:
        printer = ctx.ensure_object(Printer)
        printer.action = ctx.info_name or printer.action
        result = super().invoke(ctx)
        return printer.reply(result) if isinstance(result, Reply) else 0


class PeaksGroup(click.Group):
    """A group of verbs: takes ``--json``; what is below it is a :class:`PeaksCommand` or another group."""

    command_class = PeaksCommand
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("no_args_is_help", False)  # "no verb" is an error like the others
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())


def _json_option() -> click.Option:
    def note(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            ctx.ensure_object(Printer).as_json = True

    return click.Option(
        [JSON], is_flag=True, is_eager=True, expose_value=False, callback=note, help="Print one JSON object."
    )


def version_option(version: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--version`` for the top group."""

    def show(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            printer = ctx.ensure_object(Printer)
            printer.action = "version"
            printer.reply(Reply(f"pytest-peaks {version}", {"version": version}))
            ctx.exit()

    # Not eager, so that --json is known by then, on whichever side of it it stands.
    return click.option(
        "--version", is_flag=True, expose_value=False, callback=show, help="Show the version and exit."
    )


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name; returns the exit code. Every failure ends here."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_print(stream)
    printer = Printer()
    try:
        result = group.main(list(arguments), prog_name="peaks", standalone_mode=False, obj=printer)
    except click.ClickException as error:
        # What was wrong may have stood before the option that says how to answer.
        printer.as_json = printer.as_json or _asks_for_json(arguments)
        return _usage(printer, error, first_call=not arguments)
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(printer)
    except PeaksError as error:
        _show_traceback()
        return printer.failure(error)
    except Exception as error:
        _show_traceback()
        return printer.error(
            "UNEXPECTED",
            f"{type(error).__name__}: {error}",
            "this is a mistake in pytest-peaks; PEAKS_DEBUG=1 shows where",
            1,
        )
    return result if isinstance(result, int) else 0


def interrupted_without_click(action: str, *, as_json: bool) -> int:
    """What :func:`run` says if a verb is interrupted, for one that runs without it."""
    printer = Printer()
    printer.as_json, printer.action = as_json, action
    click.echo(err=True)  # as click does
    return _interrupted(printer)


def _interrupted(printer: Printer) -> int:
    return printer.error("INTERRUPTED", "interrupted", "", INTERRUPTED_EXIT)


def _usage(printer: Printer, error: click.ClickException, *, first_call: bool) -> int:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx is not None else "peaks"
    if ctx is not None:
        printer.action = ctx.info_name or printer.action
        if first_call and not printer.as_json:
            click.echo(ctx.get_help() + "\n", err=True)
    hint = f"`{path} --help` says what it takes"
    return printer.error("USAGE", error.format_message(), hint, USAGE_EXIT)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` was given, where click gave up before it got there."""
    before_the_rest = list(arguments)
    if "--" in before_the_rest:
        before_the_rest = before_the_rest[: before_the_rest.index("--")]
    return JSON in before_the_rest


def _show_traceback() -> None:
    if os.environ.get("PEAKS_DEBUG"):
        traceback.print_exc(file=sys.stderr)


def _never_fail_to_print(stream: TextIO | Any) -> None:
    """A path with bytes that the terminal's encoding lacks must not turn an answer into a failure."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
