"""A small disk that a test fills up: a tmpfs, or the shim's counters where none may be mounted."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stress.pressure.shim import UNLIMITED, Shim

DISK_BYTES = 1 << 20


class Disk:
    """A directory with room for so much; in the program, `Disk()` is the one of its test.

    Example::

        disk.fill()
        ...  # whatever is written there now fails with ENOSPC
        disk.make_room()
    """

    def __init__(self, path: Path | None = None, *, real: bool | None = None) -> None:
        """Take the disk of the environment, or the one at `path`."""
        self.path = path if path is not None else Path(os.environ["PRESSURE_DISK"])
        self.real = real if real is not None else os.environ["PRESSURE_DISK_REAL"] == "1"

    @property
    def environment(self) -> dict[str, str]:
        """What a program is told of it."""
        return {
            "PRESSURE_DISK": str(self.path),
            "PRESSURE_DISK_REAL": str(int(self.real)),
            "PRESSURE_SHIM_FOLDER": str(self.path),
        }

    def fill(self) -> None:
        """Leave room for nothing."""
        if not self.real:
            Shim().trace_room = 0
            return
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            piece = 1 << 16
            while piece:
                try:
                    ballast.write(bytes(piece))
                except OSError:
                    piece //= 2

    def make_room(self) -> None:
        """Take the ballast away."""
        if self.real:
            (self.path / "ballast").unlink()
        else:
            Shim().trace_room = UNLIMITED

    def take_all_names(self) -> None:
        """Leave no entry for one more file."""
        if not self.real:
            Shim().create_errno = errno.ENOSPC
            return
        for n in itertools.count():
            try:
                (self.path / f"taken-{n}").touch()
            except OSError:
                return

    def give_names_back(self) -> None:
        """Undo it."""
        Shim().create_errno = 0
        for taken in self.path.glob("taken-*"):
            taken.unlink()

    def refuse(self, error: int) -> None:
        """Have each write to a trace fail so, or none."""
        Shim().write_errno = error

    def set_read_only(self, read_only: bool) -> None:
        """Make it so, or writable. The kernel refuses the first while a file is open for writing."""
        if self.real:
            mode = "ro" if read_only else "rw"
            subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], check=True)
        else:
            Shim().create_errno = errno.EROFS if read_only else 0


def _mount(*arguments: Any) -> bool:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def small_disk(path: Path, *, real: bool) -> Iterator[Disk]:
    """Make a disk of a mebibyte at `path`; a simulated one where a real one is not permitted."""
    path.mkdir()
    options = f"size={DISK_BYTES},nr_inodes=64,mode=0755"
    try:
        real = real and _mount("-t", "tmpfs", "-o", options, "pressure", path)
    except FileNotFoundError:  # no program `mount`
        real = False
    try:
        yield Disk(path, real=real)
    finally:
        if real:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
