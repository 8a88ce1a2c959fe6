"""What the calls of tensor inspection are given: checked, and brought to one form."""

from __future__ import annotations

import operator
import os
import runpy
from pathlib import Path
from typing import Any

from dftrace_ai.inspect.errors import InspectAssertionError, InspectValueError
from dftrace_ai.wording import in_short

BUILT_IN_DIRECTORY = ("transformer_engine", "debug", "features")


def iteration_of(value: Any, argument: str) -> int:
    """Return the number of an iteration."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InspectValueError(
            f"{argument}: {in_short(value)} is not accepted; accepted: a whole number, 0 or more"
        )
    return number


def executed(feature_dirs: Any) -> list[str]:
    """Execute the files of custom features; return the directories that are not needed."""
    # `feature_dirs` is a directory or a list of them.
    if feature_dirs is None:
        return []
    directories = [feature_dirs] if isinstance(feature_dirs, (str, os.PathLike)) else feature_dirs
    if not isinstance(directories, list) or not all(
        isinstance(one, (str, os.PathLike)) for one in directories
    ):
        raise InspectValueError(
            f"feature_dirs: a path or a list of paths is accepted, not {in_short(feature_dirs)}"
        )
    built_in = []
    for directory in map(Path, directories):
        if directory.parts[-3:] == BUILT_IN_DIRECTORY:
            built_in.append(str(directory))
            continue
        if not directory.is_dir():
            raise InspectAssertionError(f"feature_dirs: {directory} is no directory")
        for file in sorted(directory.rglob("*.py")):
            runpy.run_path(str(file))
    return built_in
