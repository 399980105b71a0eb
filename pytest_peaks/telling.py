"""Words to the user while a run goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

import pytest


def teller(config: pytest.Config) -> Callable[[str], None]:
    """What tells the user something at once, also from a worker and while output is captured."""

    def say(text: str) -> None:
        capture = config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            stream = sys.__stderr__
            if stream is not None:
                stream.write(f"\npeaks: {text}\n")
                stream.flush()

    return say
