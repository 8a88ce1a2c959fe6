"""Where files of a run lie: by name and step, within its directory whatever the name holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.loggers.names import safe_file_name, safe_name, safe_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_TWINS = 1000
OWNERS = 0o600
"""The mode of files that nobody else reads."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def lead_nowhere(folder: str) -> None:
    """Have what this process, a forked child, has open below a folder lead nowhere."""
    # The parent's buffers were forked, too: who closes its files here would write them once
    # more.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # that of the list itself is gone
            if str(number.readlink()).startswith(f"{folder}/"):
                os.dup2(nothing, int(number.name), inheritable=False)
    os.close(nothing)


def kept_file(
    folder: Path, name: str, suffix: str, step: int, data: bytes, mode: int = OWNERS
) -> Path:
    """Write a file, and return its path; where it lies already it is not written again.

    The slashes of the name make directories. Another file of one name and step gets a number.
    """
    directory = folder.joinpath(*safe_parts(name))
    directory.mkdir(parents=True, exist_ok=True)
    ending = f".{safe_name(suffix)}" if suffix else ""
    # Whole when it gets its name: others write the same file, and readers look meanwhile.
    unnamed = directory / _new_name()
    try:
        with os.fdopen(opened_file(unnamed, NEW, mode), "wb") as file:
            file.write(data)
        for again in range(1, MOST_TWINS):
            path = directory / f"{step:09}{'' if again == 1 else f'-{again}'}{ending}"
            try:
                path.hardlink_to(unnamed)
            except FileExistsError:
                if _holds(path, data):
                    return path
            else:
                return path
    finally:
        unnamed.unlink(missing_ok=True)
    raise FileExistsError(f"{directory}: {MOST_TWINS} files of step {step}")


def opened_file(path: Path, flags: int, mode: int = OWNERS) -> int:
    """Open a file, and nothing else: who else may write there can put a link or a pipe there.

    One that is made has the mode, whatever the umask says.
    """
    number = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, OWNERS)
    found = os.fstat(number)
    if stat.S_ISREG(found.st_mode):
        if flags & os.O_CREAT and mode != OWNERS and not found.st_size:
            os.fchmod(number, mode)
        return number
    os.close(number)
    raise OSError(errno.EINVAL, "is no file", str(path))


def _new_name() -> str:
    # Nobody else knows it beforehand.
    return f".{os.getpid()}-{secrets.token_hex(8)}"


def _holds(path: Path, data: bytes) -> bool:
    try:
        with os.fdopen(opened_file(path, os.O_RDONLY), "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


def _copied(source: str, target: str) -> str:
    """Copy a file; what lies at its place is replaced by it, and not written to."""
    if not Path(source).is_file():
        raise OSError(errno.EINVAL, "is no file", source)
    unnamed = Path(target).with_name(_new_name())
    try:
        with Path(source).open("rb") as read, os.fdopen(opened_file(unnamed, NEW), "wb") as file:
            shutil.copyfileobj(read, file)
        shutil.copystat(source, unnamed)
        unnamed.replace(target)
    finally:
        unnamed.unlink(missing_ok=True)
    return target


def kept_copy(source: Path, folder: Path, name: str) -> list[Path]:
    """Copy a file or directory below a folder, and return what files there are of it then."""
    target = folder / safe_file_name(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_copied)
        return sorted(path for path in target.rglob("*") if path.is_file())
    _copied(str(source), str(target))
    return [target]


@contextmanager
def lent_file(data: bytes, suffix: str, stem: str = "file") -> Iterator[Path]:
    """Give a file for as long as the block runs, to a tracker that takes paths and copies."""
    with tempfile.TemporaryDirectory(prefix="dftrace-") as folder:
        path = Path(folder) / safe_file_name(f"{stem}.{suffix}" if suffix else stem)
        path.write_bytes(data)
        yield path


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process through at a time, such as to make a store that several ranks then share.

    The file is there for this alone.
    """
    number = opened_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
