"""What stands in a marker, and what that says of it; whoever may write there can lie."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import dftrace_ai._native as _native

if TYPE_CHECKING:
    from dftrace_ai.spools.held import HeldDirectory

__all__ = ["BEGUN_MARKER", "MARKER", "MARKER_BYTES", "content_of", "is_copy", "is_elsewhere"]

# The longest path that Linux takes, a newline, a line that says on which boot, and in which
# container of the machine, the path holds, and which number the marker has as a file, on which
# device, and one that stands there when the trace is complete.
MARKER_BYTES = 4096 + 1 + 100 + 10
MARKER = re.compile(
    rb"(?P<path>[^\n]*)\n"
    rb"(?:(?P<boot>[^ \n]*) (?P<container>\d+)(?: (?P<file>\d+)(?: (?P<device>\d+))?)?\n"
    rb"(?P<complete>complete\n)*)?"
)
# What a process leaves that ends between making its marker and writing it.
BEGUN_MARKER = re.compile(rb"(?:/[^\n\0]*)?")


def content_of(directory: HeldDirectory, name: str) -> tuple[bytes, os.stat_result] | None:
    """Return what a marker holds, and what the system tells of it; None for no regular file.

    Never waits, and follows no link.
    """
    # Looked at first, since opening alone does something to some devices.
    mode = directory.look(name).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return None
    with open(directory.open(name, os.O_RDONLY), "rb", buffering=0) as file:  # noqa: PTH123
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return None
        return file.read(MARKER_BYTES + 1), info


def is_elsewhere(said: re.Match[bytes]) -> bool:
    """Return whether a marker is of another container of this machine."""
    own_boot, own_container = _own_place()
    # After a restart of the machine there is no such container any more.
    return said["boot"] == own_boot and said["container"] != own_container


def is_copy(said: re.Match[bytes], marker: os.stat_result) -> bool:
    """Return whether a marker is another file than its process made."""
    if said["file"] is None:
        return False
    if int(said["file"]) != marker.st_ino:
        return True
    # A machine that starts again may number its devices otherwise.
    of_this_boot = said["boot"] == _own_place()[0]
    return of_this_boot and int(said["device"] or marker.st_dev) != marker.st_dev


def _own_place() -> tuple[bytes, bytes]:
    boot, _, container = _native.marker_place().encode().partition(b" ")
    return boot, container
