"""The files that `torch.save` writes by their paths: in C++, which asks nothing of Python."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.integrations.files.operations import KnownFile

if TYPE_CHECKING:
    from dftrace_ai.integrations.files.known_files import KnownFiles

__all__ = ["recorded_closing", "recorded_opening"]

# On a writer: what has been begun with its file.
WRITING = "_dftrace_writing"


def recorded_opening(files: KnownFiles, original: Any) -> Any:
    """Return what opens such a writer, recorded; what is written is one ``write`` from then on.

    Args:
        files: those that are looked at.
        original: its `__init__`, which gets the path.
    """
    operations = files.operations

    @functools.wraps(original)
    def opens(writer: Any, name: Any) -> None:
        # A path with other letters is opened by Python, and recorded there.
        written_in_c = str(name).isascii()
        meant, path = files.meant(name) if written_in_c else (False, None)
        if not meant or path is None:
            original(writer, name)
            return
        opening = operations.opens(path)
        try:
            original(writer, name)
        except BaseException as error:
            operations.failed(opening, type(error))
            raise
        file = KnownFile(path, (0, 0))
        operations.opened(opening, file)
        setattr(writer, WRITING, (file, operations.begin("write", file)))

    return opens


def recorded_closing(files: KnownFiles, original: Any) -> Any:
    """Return what closes such a writer; how much was written is known behind it.

    Args:
        files: those that are looked at.
        original: its `__exit__`.
    """
    operations = files.operations

    @functools.wraps(original)
    def closes(writer: Any, *raised: Any) -> Any:
        file, begun = vars(writer).pop(WRITING, (None, None))
        if file is None:
            return original(writer, *raised)
        try:
            return original(writer, *raised)
        finally:
            if begun is not None:
                operations.end(begun, raised[0] if raised else None, _written(writer.name))
            operations.around(operations.begin("close", file), lambda: None)

    return closes


def _written(path: str) -> dict[str, int]:
    try:
        return {"bytes": os.stat(path).st_size, "offset": 0}  # noqa: PTH116 - given as text
    except OSError:  # somebody has taken it away again
        return {"bytes": 0, "offset": 0}
