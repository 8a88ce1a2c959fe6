"""Pages and plots written to files, which are whole when they get their names."""

from __future__ import annotations

import os
from errno import EACCES
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.trace_file import open_regular
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.page.files import write_page
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dftrace_ai.page.svg import Plot

MADE_BY: Final = "dftrace report"
PAGE_MARK: Final = f'<meta name="generator" content="{MADE_BY}">'
PLOT_MARK: Final = f"<!-- {MADE_BY} -->"
HEAD_BYTES: Final = 4096
NO_FOLDER: Final = "there is no such directory"


def check_page(path: Path, inputs: Iterable[Path] = (), *, force: bool = False) -> None:
    """Hold, before anybody works for it, that a page can be written; by force over any file.

    What is read for it, the `inputs`, is never replaced.
    """
    if path.is_dir():
        raise DftraceError(f"{quoted(str(path))}: cannot be written: it is a directory")
    _check(path, PAGE_MARK, force=force)
    real = os.path.realpath(path)
    if any(os.path.realpath(one) == real for one in inputs):
        raise DftraceError(f"{quoted(str(path))}: is read for the report; choose another place")
    folder = path.parent
    if not folder.is_dir():
        raise DftraceError(f"{quoted(str(path))}: cannot be written: {NO_FOLDER}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DftraceError(f"{quoted(str(path))}: cannot be written: {os.strerror(EACCES)}")


def check_plots(folder: Path) -> None:
    """Make the directory of plots, before anybody works for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DftraceError(f"{quoted(str(folder))}: cannot be written: {os.strerror(EACCES)}")


def write_report(path: Path, page: str, *, force: bool = False) -> None:
    """Write a page; a report of that name is replaced, by force any file."""
    check_page(path, force=force)
    write_page(path, page)


def write_plots(folder: Path, plots: Iterable[Plot], *, force: bool = False) -> list[Path]:
    """Write each plot as a file of its own to a directory, which is made; returns the files."""
    check_plots(folder)
    named = [(folder / f"{plot.name}.svg", plot) for plot in plots]
    for path, _ in named:
        _check(path, PLOT_MARK, force=force)
    for path, plot in named:
        write_page(path, plot.alone(PLOT_MARK))
    return [path for path, _ in named]


def _check(path: Path, mark: str, *, force: bool) -> None:
    """Hold that a name is free, or that of a file that we made."""
    if not os.path.lexists(path):
        return
    # A device or a pipe is written to by others, who would miss it.
    if force and (path.is_file() or not path.exists()):
        return
    try:
        with open_regular(path) as file:
            head = file.read(HEAD_BYTES)
    except TraceError as error:
        raise DftraceError(f"{quoted(str(path))}: is no report; it is left as it is") from error
    if mark.encode() not in head:
        raise DftraceError(
            f"{quoted(str(path))}: is no report of ours and is left as it is; give another name, "
            "or --force to replace it"
        )
