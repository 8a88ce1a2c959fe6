"""Where files of a run lie: by name and step, within its directory whatever the name holds."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["kept_file", "safe_name"]

MOST_LETTERS = 120
MOST_TWINS = 1000
UNSAFE = re.compile(r"[^\w.+=@ -]", re.ASCII)


def safe_name(name: str) -> str:
    """Return one part of a path made of a name that somebody else chose."""
    part = UNSAFE.sub("_", name)[:MOST_LETTERS]
    return part if part.strip(". ") else f"_{part}"


def kept_file(folder: Path, name: str, suffix: str, step: int, data: bytes) -> Path:
    """Write a file, and return its path; where it lies already it is not written again.

    Args:
        folder: below which it lies.
        name: what it is of; its slashes make directories.
        suffix: of the file, without a dot; may be "".
        step: part of its name; another file of one name and step gets a number besides.
        data: its bytes.

    Raises:
        OSError: it cannot be written.

    Example::

        kept_file(Path("runs/a"), "render/gt", "png", 7, png)  # runs/a/render/gt/000000007.png
    """
    parts = [safe_name(part) for part in name.split("/") if part] or ["_"]
    directory = folder.joinpath(*parts)
    directory.mkdir(parents=True, exist_ok=True)
    ending = f".{safe_name(suffix)}" if suffix else ""
    # Whole when it gets its name: others write the same file, and readers look meanwhile.
    unnamed = directory / f".{os.getpid()}-{threading.get_ident()}"
    try:
        unnamed.write_bytes(data)
        for again in range(1, MOST_TWINS):
            path = directory / f"{step:09}{'' if again == 1 else f'-{again}'}{ending}"
            try:
                path.hardlink_to(unnamed)
            except FileExistsError:
                if path.read_bytes() == data:
                    return path
            else:
                return path
    finally:
        unnamed.unlink(missing_ok=True)
    raise FileExistsError(f"{directory}: {MOST_TWINS} files of step {step}")
