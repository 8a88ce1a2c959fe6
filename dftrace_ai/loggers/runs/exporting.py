"""Tables and pages written to files, which are whole when they get their names."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.runs.tables import TABLES
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dftrace_ai.loggers.runs.tables import RunTables

__all__ = ["export", "write_page"]


def export(tables: RunTables, folder: Path, form: str) -> list[Path]:
    """Write each table to a file of its own.

    Args:
        tables: what to write.
        folder: the files' directory, which is made where it is not there.
        form: ``"parquet"`` or ``"csv"``, also the suffix of their names.

    Returns:
        The files; those that had their names are replaced.

    Raises:
        DftraceError: they cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: cannot be made: {error.strerror}") from error
    for table in TABLES:
        path = folder / f"{table}.{form}"
        with new_file(path) as unnamed:
            tables.copy_out(table, unnamed, form)
        written.append(path)
    return written


def write_page(path: Path, page: str) -> None:
    """Write a page to a file; one of the name is replaced.

    Raises:
        DftraceError: it cannot be written.
    """
    with new_file(path) as unnamed:
        unnamed.write_text(page, encoding="utf-8", errors="backslashreplace")


@contextmanager
def new_file(path: Path, mode: int = 0o600) -> Iterator[Path]:
    """Give a new file, which gets the name when its block has ended well.

    Args:
        path: the name; a file or link that has it is replaced.
        mode: of the file; by default it is its owner's alone.

    Raises:
        DftraceError: it cannot be made, written or named.
    """
    unnamed = path.with_name(f".{path.name[:100]}-{secrets.token_hex(4)}")
    try:
        number = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(number, mode)
        finally:
            os.close(number)
        try:
            yield unnamed
            unnamed.replace(path)
        finally:
            unnamed.unlink(missing_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(path))}: cannot be written: {error.strerror}") from error
