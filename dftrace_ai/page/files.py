"""Pages, and tables beside them, written to files that are whole when they get their names."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dftrace_ai import system
from dftrace_ai.errors import DftraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def write_page(path: Path, page: str) -> None:
    """Write a page, or a plot, to a file; a DftraceError says why it cannot be written."""
    with new_file(path) as unnamed:
        unnamed.write_text(page, encoding="utf-8", errors="backslashreplace")


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """Hold, before anybody works for them, that names are free; by force they need not be."""
    for path in paths:
        if not force and os.path.lexists(path):
            raise DftraceError(f"{quoted(str(path))}: is there already; --force replaces it")


@contextmanager
def new_file(path: Path, mode: int = 0o600) -> Iterator[Path]:
    """Give a new file, its owner's alone by default, for as long as the block runs.

    It gets the name when the block has ended well: whatever file or link has it is replaced, but
    no device and no pipe. All that is written by this can be made again, so nobody waits for the
    disk.

    Raises:
        DftraceError: it cannot be made, written or named.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DftraceError(f"{quoted(str(path))}: is no file; it is left as it is")
    unnamed = path.with_name(f".{path.name[:100]}-{secrets.token_hex(4)}")
    try:
        number = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "fchmod"):
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
