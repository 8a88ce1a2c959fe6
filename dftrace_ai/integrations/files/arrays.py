"""`numpy.fromfile`, which reads an array from the system without asking the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.built_in.stand_ins import stand_in
from dftrace_ai.integrations.files.operations import KnownFile, bytes_of, place_of

if TYPE_CHECKING:
    from dftrace_ai.integrations.files.known_files import KnownFiles

__all__ = ["recorded_fromfile"]


def recorded_fromfile(original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of `numpy.fromfile`; `numpy.load` calls it, too.

    Args:
        original: the function.
        files: those that are looked at.
    """
    operations = files.operations

    def before(file: Any = None, *_: Any, **__: Any) -> Any:
        if isinstance(file, (str, bytes, os.PathLike)):
            meant, path = files.meant(file)
            known = KnownFile(path, (0, 0)) if meant and path is not None else None
            number = -1
        else:
            try:
                number = file.fileno()
            except (AttributeError, OSError):  # numpy says so, too
                return None
            known = files.of(number)
        begun = None if known is None else operations.begin("read", known)
        return None if begun is None else (None, begun, number)

    def after(token: Any, result: Any, error: Any) -> None:
        _, begun, number = token
        count = 0 if error else bytes_of(result)
        offset = max(0, place_of(number) - count) if number >= 0 else 0
        operations.end(begun, error, {"bytes": count, "offset": offset})

    return stand_in(original, "numpy", before, after)
