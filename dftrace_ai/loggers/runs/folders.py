"""Which runs there are below a directory, by what their logs call them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.loggers.names import is_made_of, lie_in
from dftrace_ai.loggers.runs.lines import whole_text
from dftrace_ai.loggers.runs.log_files import LOG, NoRunsError, head_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

__all__ = ["RunFolder", "run_folders"]

MOST_DEPTH = 32


class RunFolder(NamedTuple):
    """The directory of a run.

    Attributes:
        key: project and name as they were given, as far as they lie below the directory that was
            searched; its path there, where somebody has called it otherwise.
        path: where it is.
        logs: names of its logs, in the order in which they were begun by each rank.
    """

    key: str
    path: Path
    logs: tuple[str, ...]


def run_folders(root: Path) -> tuple[list[RunFolder], list[str]]:
    """Find the runs below a directory, or the one that it is, in the order of their keys.

    Also returns why some directories could not be searched. Links are not followed.
    """
    # Logs of one directory that were begun under different names are different runs.
    notes: list[str] = []
    found: dict[str, RunFolder] = {}
    waiting = [(root, "", 0)]
    while waiting:
        folder, key, depth = waiting.pop()
        logs: list[str] = []
        below: list[tuple[Path, str, int]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if LOG.fullmatch(entry.name):
                        logs.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False) and depth < MOST_DEPTH:
                        inner = f"{key}/{entry.name}" if key else entry.name
                        below.append((folder / entry.name, inner, depth + 1))
        except OSError as error:
            if not depth:
                raise NoRunsError(f"{folder}: cannot be read: {error.strerror}") from error
            # One that was removed meanwhile is no longer there to be told of.
            if not isinstance(error, FileNotFoundError):
                notes.append(f"{folder}: cannot be read: {error.strerror}")
            continue
        if logs:
            for run in _runs_of(folder, key, logs):
                found[_told_apart(run.key, key, found)] = run
        else:
            # The last is taken first: in the order of their names.
            waiting += sorted(below, reverse=True)
    if not found:
        raise NoRunsError(
            f"{root}: there are no runs; they are written there by the interface `local` with "
            "this directory as its log_dir"
        )
    return sorted(run._replace(key=key) for key, run in found.items()), notes


def _runs_of(folder: Path, key: str, logs: Iterable[str]) -> Iterable[RunFolder]:
    """Yield the runs of a directory: one, or as many as were begun there under names of their own.

    What was moved there, and a log that does not say whose it is, belongs to the only one.
    """
    ordered = sorted(logs, key=_by_rank_and_begin)
    by_names: dict[tuple[str, str] | None, list[str]] = {}
    for log in ordered:
        head = head_of(folder / log)
        names = None if head is None else (head.project, head.name)
        own = names if names is not None and lie_in(names, folder) else None
        by_names.setdefault(own, []).append(log)
    if len(by_names) == 2 and None in by_names:
        by_names = {next(filter(None, by_names)): ordered}
    for names, own_logs in by_names.items():
        yield RunFolder(whole_text(_shown(folder, key, names)), folder, tuple(own_logs))


def _shown(folder: Path, key: str, names: tuple[str, str] | None) -> str:
    """Return the path of a run below what was searched, with names as they were given."""
    parts = key.split("/") if key else [folder.absolute().name]
    for at, name in zip((-2, -1), names or (), strict=False):
        # What somebody has called otherwise since keeps that name.
        if len(parts) >= -at and is_made_of(parts[at], name):
            parts[at] = name
    return "/".join(parts)


def _told_apart(shown: str, key: str, taken: Container[str]) -> str:
    """Return a key that no other run has: there may be slashes in the name of another's project."""
    if shown not in taken:
        return shown
    other, number = whole_text(f"{shown} ({key})"), 1
    while other in taken:
        number += 1
        other = whole_text(f"{shown} ({key}, {number})")
    return other


def _by_rank_and_begin(name: str) -> tuple[int, int, str]:
    rank, begun_ns = LOG.fullmatch(name).groups()  # type: ignore[union-attr]
    return int(rank), int(begun_ns), name
