"""Putting the functions that record into the places of Python's own, and back."""

from __future__ import annotations

import functools
import logging
import os
import sys
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from dftrace_ai.integrations.files.arrays import recorded_fromfile
from dftrace_ai.integrations.files.descriptors import (
    OF_NUMBERS,
    recorded_number,
    recorded_os_open,
)
from dftrace_ai.integrations.files.known_files import KnownFiles
from dftrace_ai.integrations.files.opening import recorded_open
from dftrace_ai.integrations.files.operations import Operations
from dftrace_ai.integrations.files.places import Places
from dftrace_ai.integrations.files.writers import recorded_closing, recorded_opening
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.integrations.wrapping.listening import needed, once_imported
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install", "record_files"]

# Where the same functions stand, and are the same to who compares or pickles them. What imports
# modules goes by `_io.open`.
HOMES_OF_OPEN = ("builtins", "io")
HOMES_OF_NUMBERS = ("os", "posix")
# What functions of `os` can do.
ABLE = (os.supports_dir_fd, os.supports_fd, os.supports_effective_ids, os.supports_follow_symlinks)

_operations: Operations | None = None


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what is read and written in the folders that the options name, and by checkpoints.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: something has taken the place of a built-in function.
    """
    if not options.folders:
        tell(
            logging.WARNING,
            "auto(io=True) records the files of checkpoints alone: data_dir, which names the "
            "folders of the data, is not set",
        )
    return record_files(options)


def record_files(options: AutoOptions) -> Callable[[], None]:
    """Record files in this process; where that is done already, it is done by these options.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: something has taken the place of a built-in function.
    """
    global _operations
    if _operations is not None:
        _operations.options = options
        return lambda: None
    operations = Operations(options)
    files = KnownFiles(Places(options.folders), operations)
    with Swaps() as swaps:
        _put(swaps, HOMES_OF_OPEN, "open", lambda original: recorded_open(original, files))
        _put(swaps, HOMES_OF_NUMBERS, "open", lambda original: recorded_os_open(original, files))
        for name in OF_NUMBERS:
            if hasattr(os, name):
                make = functools.partial(recorded_number, name, files=files)
                _put(swaps, HOMES_OF_NUMBERS, name, make)
    removals = [
        swaps.restore,
        once_imported("io", "numpy", functools.partial(_record_arrays, files)),
        once_imported("io", "torch.serialization", functools.partial(_record_writer, files)),
    ]
    _operations = operations

    def remove() -> None:
        global _operations
        _operations = None
        while removals:
            removals.pop()()

    return remove


def _put(swaps: Swaps, homes: Sequence[str], name: str, make: Callable[[Any], Any]) -> None:
    home, *others = (sys.modules[module] for module in homes)
    original = getattr(home, name)
    if not isinstance(original, BuiltinFunctionType):
        raise NotInThisVersion(f"{home.__name__}.{name} as a built-in function")
    made = make(original)
    swaps.put(home, name, made)
    for other in others:
        if getattr(other, name, None) is original:
            swaps.put(other, name, made)
    for able in ABLE:
        # Asked with the function itself, as `shutil` asks when it is imported.
        if original in able:
            able.add(made)
            swaps.then(functools.partial(able.discard, made))


def _record_arrays(files: KnownFiles, swaps: Swaps, numpy: ModuleType) -> None:
    _put(swaps, [numpy.__name__], "fromfile", lambda original: recorded_fromfile(original, files))


def _record_writer(files: KnownFiles, swaps: Swaps, home: ModuleType) -> None:
    writer = needed(home, "_open_zipfile_writer_file")
    swaps.swap(writer, "__init__", functools.partial(recorded_opening, files))
    swaps.swap(writer, "__exit__", functools.partial(recorded_closing, files))
