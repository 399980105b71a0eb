"""What a session may be called, and how to make a name that passes."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from pytest_peaks.errors import (
    InvalidNameError,
    InvalidOptionError,
    NameMissingError,
    NamePrefixError,
    NameReservedError,
    NameTooLongError,
    NameTooShortError,
    PeaksError,
)
from pytest_peaks.named.settings import NameRules

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Hex digits that keep two shortened slugs apart: 16 million.
_HASH = 6
# What is built from a name without a prefix that is known begins with it, where the project has it.
_USUAL_PREFIX = "probe"


def check_session_name(name: str, rules: NameRules) -> str:
    """Return `name` if the project's rules allow it.

    :raises NameMissingError: it is empty.
    :raises NameReservedError: nobody may use it.
    :raises InvalidNameError: it has other characters than a-z, 0-9 and single dashes between them.
    :raises NameTooLongError: it has more characters than the rules allow.
    :raises NameTooShortError: it has fewer.
    :raises NamePrefixError: what stands before its first dash is no prefix of the project.
    """
    if not name:
        raise NameMissingError(
            "the session has no name", hint="give it one: `-s=NAME`; `peaks name PREFIX SLUG` makes names"
        )
    fault = _fault(name, rules)
    if fault is not None:
        raise fault[0](fault[1], hint=_hint(name, rules))
    return name


def _fault(name: str, rules: NameRules) -> tuple[type[InvalidNameError], str] | None:
    """What is wrong with `name`: the class of the failure and its sentence; None if nothing is."""
    if name in rules.reserved:
        return NameReservedError, f"the session name {name!r} is reserved"
    if not _NAME.fullmatch(name):
        return InvalidNameError, (
            f"the session name {_shown(name)} has other characters than a-z, 0-9 and single dashes between them"
        )
    if len(name) > rules.max_length:
        return (
            NameTooLongError,
            f"{len(name)} > {rules.max_length}: the session name {_shown(name)} is too long",
        )
    if len(name) < rules.min_length:
        return NameTooShortError, f"{len(name)} < {rules.min_length}: the session name {name!r} is too short"
    prefix, dash, _rest = name.partition("-")
    if not dash or prefix not in rules.prefixes:
        return NamePrefixError, (
            f"the session name {name!r} does not begin with a prefix of the project and a dash: "
            + ", ".join(rules.prefixes)
        )
    return None


def build_name(
    rules: NameRules, prefix: str, slug: str, pass_: int | None = None, cycle: int | None = None
) -> str:
    """Make a name: ``composer-checkout-3-c1`` of `composer`, `checkout`, pass 3, cycle 1.

    The slug may be any text. What does not fit is shortened, and a hash keeps it distinct.

    :raises NamePrefixError: the prefix is none of the project's.
    :raises InvalidNameError: the slug has nothing in it that a name may have.
    :raises InvalidOptionError: pass or cycle is no whole number from 0.
    :raises PeaksError: no slug would fit, or the name is reserved.
    """
    if prefix not in rules.prefixes:
        raise NamePrefixError(
            f"{_shown(prefix)} is not a prefix of the project", hint=f"there are {', '.join(rules.prefixes)}"
        )
    ending = _number("pass", pass_, "-") + _number("cycle", cycle, "-c")
    middle, lossy = _legal(slug)
    if not middle:
        raise InvalidNameError(
            f"the slug {_shown(slug)} has no letter and no digit that a name may have",
            hint="give it one of a-z or 0-9",
        )
    digest = hashlib.sha256(slug.encode(errors="surrogatepass")).hexdigest()
    room = rules.max_length - len(prefix) - 1 - len(ending)
    if lossy:
        middle = f"{middle}-{digest[:_HASH]}"
    if len(middle) > room:
        if room < 1:
            raise NameTooLongError(
                f"{len(prefix) + 2 + len(ending)} > {rules.max_length}: no slug fits between "
                f"{prefix!r} and {ending!r}",
                hint="choose a shorter prefix, or raise max_length in [tool.peaks.names]",
            )
        kept = middle[: max(0, room - _HASH - 1)].rstrip("-")
        middle = f"{kept}-{digest[:_HASH]}" if kept else digest[: min(room, _HASH)]
    missing = rules.min_length - len(prefix) - 1 - len(middle) - len(ending)
    if missing > 0:
        middle += digest[:missing] if missing < 3 else f"-{digest[: missing - 1]}"
    made = f"{prefix}-{middle}{ending}"
    fault = _fault(made, rules)
    if fault is not None:
        raise fault[0](fault[1], hint="choose another slug")
    return made


def suggest_name(given: str, rules: NameRules) -> str | None:
    """A legal name that is as near to `given` as can be; None if nothing can be made of it."""
    prefix, _dash, rest = _legal(given)[0].partition("-")
    if prefix not in rules.prefixes or not rest:
        prefix, rest = usual_prefix(rules), given
    try:
        return build_name(rules, prefix, rest)
    except PeaksError:
        return None


def usual_prefix(rules: NameRules) -> str:
    """The prefix to use where nothing says which."""
    return _USUAL_PREFIX if _USUAL_PREFIX in rules.prefixes else rules.prefixes[0]


def _hint(name: str, rules: NameRules) -> str:
    suggestion = suggest_name(name, rules)
    if suggestion is None:
        return "`peaks name PREFIX SLUG` makes names that are allowed"
    return f"for example {suggestion}; `peaks name PREFIX SLUG` makes such names"


def _legal(slug: str) -> tuple[str, bool]:
    """`slug` with what a name may have, and whether letters or digits of it were lost."""
    characters = []
    lossy = False
    for character in unicodedata.normalize("NFKD", slug).lower():
        if character.isascii() and character.isalnum():
            characters.append(character)
        elif not unicodedata.combining(character):
            characters.append(" ")
            lossy = lossy or character.isalnum()
    return "-".join("".join(characters).split()), lossy


def _number(what: str, value: int | None, before: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**6:
        raise InvalidOptionError(f"the {what} is not a whole number from 0", hint="for example 1")
    return f"{before}{value}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
