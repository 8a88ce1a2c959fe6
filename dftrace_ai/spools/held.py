"""Directories and logs held open, in a process where others close numbers that are not theirs.

A program that closes all the numbers there are, as daemons do, or one twice, closes ours. The next
file that it opens gets the number, and what was meant for ours: the core's `HeldFile` looks before
each use whether it leads there still.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai import system
from dftrace_ai._native import HeldFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

__all__ = ["HeldDirectory", "HeldFile", "HeldLog", "directories_at"]

# Of a path; whatever lies deeper has no path by which anybody could ask for it.
PATH_BYTES = 4096

# O_PATH: who may look for a name in a directory may not always list it.
FLAGS = system.O_PATH | system.O_DIRECTORY | system.O_CLOEXEC
# Not waiting for a reader, should it be a pipe.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | system.O_CLOEXEC | system.O_NOFOLLOW | system.O_NONBLOCK
OWNERS = 0o600


class HeldDirectory:
    """A directory that may be renamed, or replaced by a link, without misleading its holder.

    `path` is for messages, links in it are followed; a `descriptor` of it that was opened just now
    is closed with this object.
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int | None = None) -> None:
        self.path = os.fspath(path)
        self._held = HeldFile(os.open(self.path, FLAGS) if descriptor is None else descriptor)

    @property
    def descriptor(self) -> int:
        """Its number, for the next call only.

        Raises:
            OSError: the program has closed it, and it does not lie at its path any more.
        """
        if self._held.leads_elsewhere():
            # By its own entry: links that lead to it are followed.
            self._held.open_again(os.path.join(self.path, "."), FLAGS)
        return self._held.now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._held.close()

    def shown(self, name: str) -> str:
        """Return the path of what has this name, for messages."""
        return os.path.join(self.path, name)

    def is_same(self, path: str) -> bool:
        """Return whether a path leads to this directory; OSError where it leads nowhere."""
        return os.path.samestat(Path(path).stat(), os.fstat(self.descriptor))

    def entries(self) -> dict[str, bool]:
        """Return the names in it, and which of them are directories (a link is none)."""
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            with os.scandir(listed) as entries:
                return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        finally:
            os.close(listed)

    def look(self, name: str) -> os.stat_result:
        """Return what lies under a name; a link is not followed."""
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def open(self, name: str, flags: int) -> int:
        """Open a file to read it, and no link; nothing is waited for."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(name, flags, dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file or link, if there is one."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return

    def below(self, names: tuple[str, ...]) -> HeldDirectory:
        """Return the directory that names lead to from here, through directories and no link."""
        descriptor = os.dup(self.descriptor)
        for name in names:
            try:
                inner = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return HeldDirectory(os.path.join(self.path, *names), descriptor)


def directories_at(path: str | os.PathLike[str]) -> Iterator[tuple[HeldDirectory, list[str]]]:
    """Yield a directory and those below it, in the order of their names, each with the names in it.

    Links that lead to the first are followed, no other. Each is held until the next one is asked
    for. One that cannot be listed is taken to be empty, and one that goes away meanwhile is left
    out.
    """
    with HeldDirectory(path) as top:
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            way = waiting.pop()
            try:
                held = top.below(way)
            except OSError:
                continue  # removed, or replaced by a link
            with held:
                try:
                    entries = held.entries()
                except OSError:
                    entries = {}
                inner = sorted((name for name, is_one in entries.items() if is_one), reverse=True)
                waiting.extend(
                    (*way, name)
                    for name in inner
                    if len(os.fsencode(held.path)) + len(os.fsencode(name)) + 1 < PATH_BYTES
                )
                yield held, list(entries)


class HeldLog:
    """A regular file that is appended to, wherever it ends, and that is made where it is not there.

    `mode` is that of one that is made, whatever the umask says. The program may change its
    directory later.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, mode: int = OWNERS) -> None:
        self.path = path.absolute()
        self._mode = mode
        self._held = self._opened(os.O_TRUNC if overwrite else 0)

    def number(self) -> int:
        """Return its number, for the next call only.

        A log that the program has closed is opened again by its name. Of one that was removed
        whichever file has its name is taken, or another one made.

        Raises:
            OSError: it cannot be opened, or, since it was closed, another file lies there now.
        """
        if self._held.leads_elsewhere():
            try:
                self._held.open_again(self.path, LOG_FLAGS)
            except FileNotFoundError:
                self._open_another()
        elif self._held.has_no_name():
            self._open_another()
        return self._held.now()

    def _open_another(self) -> None:
        # Before there is another: that may get the same number, and as a file the same one, too.
        self._held.close()
        self._held = self._opened()

    def close(self) -> None:
        """Close it; a number that is the program's by now is left alone."""
        self._held.close()

    def _opened(self, flags: int = 0) -> HeldFile:
        while True:
            try:
                number = os.open(self.path, LOG_FLAGS | flags)
                break
            except FileNotFoundError:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process was first
                return self._made()
        if stat.S_ISREG(os.fstat(number).st_mode):
            return HeldFile(number)
        os.close(number)
        raise OSError(errno.EINVAL, "is no file", str(self.path))

    def _made(self) -> HeldFile:
        number = os.open(self.path, LOG_FLAGS | os.O_CREAT | os.O_EXCL, OWNERS)
        if self._mode != OWNERS:
            with contextlib.suppress(OSError):  # a file system that has no modes
                os.fchmod(number, self._mode)
        return HeldFile(number)
