"""Which files are looked at: those below folders that are named, however a path comes to them."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["Places"]

# Below them the kernel answers, and no disk.
NO_DISK: Final = ("/proc", "/sys", "/dev")
MOST_KNOWN: Final = 4096
_UNKNOWN: Final = object()


class Places:
    """Folders, and whether a path leads into one of them.

    A folder on the way may be a symbolic link; a file that is one itself lies where the link does.
    """

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._shown = [(_below(os.path.realpath(one)), _below(one)) for one in folders]
        self._known: dict[str, str | None] = {}

    def is_elsewhere(self, path: str) -> bool:
        """Return whether an absolute path is known to lead elsewhere; the quick way of `shown`."""
        return path[:1] == "/" and self._known.get(path[: path.rfind("/")], path) is None

    def shown(self, path: str) -> str | None:
        """Return the path by which a file is told of; None for one that is elsewhere."""
        if path[:1] != "/":
            try:
                path = f"{os.getcwd()}/{path}"
            except OSError:
                return None
        folder, _, name = path.rpartition("/")
        found: object = self._known.get(folder, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._look_at(folder)
        return None if found is None else f"{found}{name}"

    def _look_at(self, folder: str) -> str | None:
        found = self._place_of(folder)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[folder] = found
        return found

    def _place_of(self, folder: str) -> str | None:
        try:
            forms = _below(os.path.realpath(folder or "/")), _below(os.path.normpath(folder or "/"))
        except ValueError:  # a path with a null byte: to open it fails
            return None
        if any(form.startswith(_below(one)) for form in forms for one in NO_DISK):
            return None
        for form in forms:
            for real, given in self._shown:
                for one in (real, given):
                    if form.startswith(one):
                        return given + form[len(one) :]
        return None


def _below(folder: str) -> str:
    return folder if folder.endswith("/") else f"{folder}/"
