"""A directory held open: what is done in it is done there, whatever becomes of its name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.spools.held_number import HeldNumber

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["HeldDirectory", "directories_at"]

# Of a path; whatever lies deeper has no path by which anybody could ask for it.
PATH_BYTES = 4096

# O_PATH: who may look for a name in a directory may not always list it.
FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class HeldDirectory:
    """A directory that may be renamed, or replaced by a link, without misleading its holder.

    Where the program closes its number meanwhile, it is opened again by its path, if that still
    leads to it: nothing is done in a directory of the program's that has the number by then.

    Args:
        path: its path, for messages; links in it are followed.
        descriptor: of the directory, if it was opened just now; it is closed with this object.

    Raises:
        OSError: there is no such directory.

    Example::

        with HeldDirectory("out") as out:
            for name in out.entries():
                print(out.shown(name), out.look(name).st_size)
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int | None = None) -> None:
        self.path = os.fspath(path)
        self._held = HeldNumber(os.open(self.path, FLAGS) if descriptor is None else descriptor)

    @property
    def descriptor(self) -> int:
        """Its number, for the next call only.

        Raises:
            OSError: the program has closed it, and it does not lie at its path any more.
        """
        if self._held.leads_elsewhere():
            again = HeldNumber(os.open(self.path, FLAGS))
            if not self._held.is_same(again):
                again.close()
                raise OSError(errno.ESTALE, "another directory lies there now", self.path)
            self._held = again
        return self._held.now()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def shown(self, name: str) -> str:
        """Return the path of what has this name, for messages."""
        return os.path.join(self.path, name)

    def is_same(self, path: str) -> bool:
        """Return whether a path leads to this directory.

        Raises:
            OSError: it leads nowhere.
            ValueError: it is no path.
        """
        return os.path.samestat(Path(path).stat(), os.fstat(self.descriptor))

    def entries(self) -> dict[str, bool]:
        """Return the names in it, and which of them are directories (a link is none).

        Raises:
            OSError: it cannot be listed.
        """
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            with os.scandir(listed) as entries:
                return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        finally:
            os.close(listed)

    def look(self, name: str) -> os.stat_result:
        """Return what lies under a name; a link is not followed.

        Raises:
            OSError: there is nothing of the name.
        """
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def open(self, name: str, flags: int) -> int:
        """Open a file to read it, and no link; nothing is waited for.

        Raises:
            OSError: it cannot be opened; it is a link.
        """
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(name, flags, dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file or link, if there is one.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return

    def below(self, names: tuple[str, ...]) -> HeldDirectory:
        """Return the directory that names lead to from here, through directories and no link.

        Raises:
            OSError: they do not lead to one.
        """
        descriptor = os.dup(self.descriptor)
        for name in names:
            try:
                inner = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return HeldDirectory(os.path.join(self.path, *names), descriptor)


def directories_at(path: str | os.PathLike[str]) -> Iterator[tuple[HeldDirectory, list[str]]]:
    """Yield a directory and those below it, in the order of their names; no link is followed.

    Args:
        path: the directory; links that lead to it are followed.

    Yields:
        Each directory, held until the next one is asked for, and the names in it. One that
        cannot be listed is taken to be empty, and one that goes away meanwhile is left out.

    Raises:
        OSError: there is no directory at `path`.

    Example::

        for directory, names in directories_at("out"):
            print(directory.path, len(names))
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
