"""Patterns for paths, as the shell knows them."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["matching_paths"]

WILD = "*?["


def matching_paths(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return paths, for each pattern (`*`, `?`, `[ab]`, `**`) those that it matches, sorted.

    What exists by its very name is no pattern.

    Raises:
        TraceError: nothing matches a pattern.
    """
    found: list[Path] = []
    for given in paths:
        text = os.fspath(given)
        if not any(letter in text for letter in WILD) or os.path.lexists(text):
            found.append(Path(given))
            continue
        names = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - may be absolute
        if not names:
            raise TraceError(f"{text}: no file matches this pattern")
        found += map(Path, names)
    return found
