"""Where files of a run lie: by name and step, within its directory whatever the name holds."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kept_copy", "kept_file", "lent_file", "one_at_a_time", "safe_name"]

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


def kept_copy(source: Path, folder: Path, name: str) -> list[Path]:
    """Copy a file or directory, and return what files there are of it then.

    Args:
        source: what is copied.
        folder: below which the copy lies.
        name: what it is called there.

    Raises:
        OSError: it cannot be read or written.
    """
    target = folder / safe_name(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
        return sorted(path for path in target.rglob("*") if path.is_file())
    shutil.copyfile(source, target)
    return [target]


@contextmanager
def lent_file(data: bytes, suffix: str, stem: str = "file") -> Iterator[Path]:
    """Give a file for as long as the block runs, to a tracker that takes paths and copies.

    Args:
        data: its bytes.
        suffix: of its name, without a dot; may be "".
        stem: its name without it.
    """
    with tempfile.TemporaryDirectory(prefix="dftrace-") as folder:
        path = Path(folder) / safe_name(f"{stem}.{suffix}" if suffix else stem)
        path.write_bytes(data)
        yield path


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process through at a time, such as to make a store that several ranks then share.

    Args:
        path: of a file that is there for this alone.
    """
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
