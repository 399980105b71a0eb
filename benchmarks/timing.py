"""What the benchmarks share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def outside_of_ci() -> dict[str, str]:
    """The environment, but for what has pytest-peaks ignore `--peaks-reuse`."""
    return {key: value for key, value in os.environ.items() if key != "CI"}


def seconds_of(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """Seconds of one run of `command` in `folder`; ends the benchmark if it fails."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return took
