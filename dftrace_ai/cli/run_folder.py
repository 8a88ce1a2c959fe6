"""The folder into which a run below `dftrace run` writes: its name, who makes it, and when it goes.

A launch makes it, as does each rank that has a `dftrace run` of its own; the process that waits for
the end of a launch removes it where it stayed empty, for which this loads little.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.run.ranks import JobName

FOLDER = "traces"
# In it: which folder a job has whose ranks have no parent in common that says it.
JOBS = ".jobs"
# File systems take names of 255 bytes, some of 143; beside it stands when the run began.
NAME_BYTES = 64
# So far apart ranks of a job start, and so long what they find each other by is kept.
STARTED_WITHIN_S = 600.0
JOBS_KEPT_S = 7 * 24 * 3600.0
LINK_OF_JOB = r"[0-9a-f]{16}\.\d{1,5}"
# What file systems say that have no such letters.
NO_SUCH_NAME = (errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG)


class NewFolder(NamedTuple):
    """A folder, and what was made for it, in the order in which that goes again."""

    path: Path
    made: tuple[Path, ...] = ()
    is_named: bool = False
    """Whether somebody has said that it is to be there."""
    failure: OSError | None = None
    """Why it is not where it was to be, but among temporary files."""

    def take_back(self) -> None:
        """Remove what was made, if nobody has put anything there."""
        for one in self.made:
            # The link by which the ranks of a job find it stays while one of them goes by it.
            if not (re.fullmatch(LINK_OF_JOB, one.name) and any(one.parent.glob(f"{one.name}.*"))):
                remove_empty([one])


def remove_empty(paths: Iterable[str | Path]) -> None:
    """Remove links, and folders that are empty, as far as that goes."""
    for path in map(Path, paths):
        with contextlib.suppress(OSError):
            if path.is_symlink():
                path.unlink()
            else:
                path.rmdir()


def not_there(path: Path) -> tuple[Path, ...]:
    """Return a folder and those above that would have to be made for it, itself first."""
    found = []
    for one in (path, *path.parents):
        if os.path.lexists(one):
            break
        found.append(one)
    return tuple(found)


def label(words: Sequence[str]) -> str:
    """Return what a run is called by its program: the script that it is about in the end."""
    scripts = [word for word in words if word.endswith(".py")]
    file = Path(scripts[0] if scripts else words[0]).name
    names = [Path(file).stem, file] if scripts else [file]
    if not scripts and words[0].startswith("-"):
        module = words[0][2:] or next(iter(words[1:]), "")
        names = [module] if words[0].startswith("-m") else []
    return next(filter(None, map(_as_name, names)), "python")


def _as_name(text: str) -> str:
    """Return a text as a part of a file's name, with what shells or eyes trip over replaced."""
    # By letters: to compile a pattern with all of Unicode in it takes longer than all else here.
    coding = sys.getfilesystemencoding()
    known = text.encode(coding, "replace").decode(coding, "replace").replace("\ufffd", " ")
    words = "".join(one if _is_kept(one) else " " for one in known).split()
    return "-".join(words).encode()[:NAME_BYTES].decode(errors="ignore").strip("-.")


def _is_kept(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter in "_.+-"
    return letter.isprintable() and not letter.isspace()


def writable_folder(
    given: Path | None,
    what: str,
    job: JobName | None,
    environ: Mapping[str, str],
    check: Callable[[Path | None], None],
) -> NewFolder:
    """Return the folder that was given, a new one, or one among temporary files; or an OSError."""
    # `check` raises one where there is no room in a folder; None for that which was given.
    from dftrace_ai.run.core_settings import absolute

    failure: OSError | None = None
    for place in (given or _here, _among_temporary_files):
        folder = NewFolder(Path())
        try:
            if isinstance(place, Path):
                where = absolute(place)
                folder = NewFolder(where, not_there(where), is_named=True)
                check(None)
            else:
                folder = _made_folder(place(), what, job, environ)
                check(folder.path)
        except OSError as error:
            folder.take_back()
            failure = failure or error
            continue
        return folder._replace(failure=failure)
    raise failure or AssertionError


def _here() -> Path:
    from dftrace_ai.run.core_settings import absolute

    return absolute(Path(FOLDER))


def _among_temporary_files() -> Path:
    import tempfile

    place = Path(tempfile.gettempdir(), f"dftrace-{os.geteuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    # What anybody may write to, another user may have made beforehand.
    if not _is_folder_of(os.geteuid(), place):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    return place / FOLDER


def _is_folder_of(user: int, path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user


def _made_folder(
    traces: Path, what: str, job: JobName | None, environ: Mapping[str, str]
) -> NewFolder:
    above = not_there(traces)
    try:
        traces.mkdir(parents=True, exist_ok=True)
        now = time.strftime("%Y-%m-%d_%H-%M-%S")
        if job is not None:
            found = _folder_of_job(traces, f"{now}-{what}", job, environ)
        else:
            found = _own_folder(traces, f"{now}-{what}")
    except OSError as error:
        remove_empty(above)
        if what.isascii() or error.errno not in NO_SUCH_NAME:
            raise
        plain = re.sub(r"[^\x20-\x7e]+", "-", what).strip("-.") or "python"
        return _made_folder(traces, plain, job, environ)
    return found._replace(made=(*found.made, *above))


def _own_folder(traces: Path, name: str) -> NewFolder:
    for number in range(1, 1000):
        with contextlib.suppress(FileExistsError):
            folder = traces / (name + (f"-{number}" if number > 1 else ""))
            # With those above, which another run may have removed as they were empty.
            folder.mkdir(parents=True)
            return NewFolder(folder, (folder,))
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(traces))


def _folder_of_job(traces: Path, name: str, job: JobName, environ: Mapping[str, str]) -> NewFolder:
    """Return the folder of a job, which the first of its ranks has named and made."""
    # A link says it: it is made at once, with what it says, or not at all, on network file systems,
    # too. Each rank of each start of the job leaves another one; where that is there, the folder is
    # of an earlier launch under the same name. Whoever may write to the folder can plant links:
    # those of others, and those that say anything but a name that is given here, count as taken.
    import hashlib

    from dftrace_ai.run.ranks import find_rank, restart_of

    jobs = traces / JOBS
    is_new = not jobs.exists()
    jobs.mkdir(exist_ok=True)
    if jobs.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(jobs))
    user = _user_there(jobs)
    key = hashlib.sha256(job.name.encode(errors="replace")).hexdigest()[:16]
    rank = f"{find_rank(environ).rank}.{restart_of(environ) or 0}"
    for number in range(10_000):
        link = jobs / f"{key}.{number}"
        end = f"-{key[:6]}" + (f"-{number}" if number else "")
        with contextlib.suppress(FileExistsError):
            link.symlink_to(f"../{name}{end}")
            _forget_old(jobs)
        folder = _folder_by(link, end, user)
        if folder is None or not (job.is_own or _age_s(link) < STARTED_WITHIN_S):
            continue
        mark = jobs / f"{link.name}.{rank}"
        try:
            mark.symlink_to(f"../{folder.name}")
        except FileExistsError:
            if _folder_by(mark, end, user) is not None:
                continue
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        if _is_folder_of(user, folder):
            return NewFolder(folder, (mark, link, folder, *([jobs] if is_new else [])))
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(jobs))


def _user_there(folder: Path) -> int:
    """Return whose the files are that this process makes there; file servers have own users."""
    probe = folder / f".{os.urandom(8).hex()}"
    probe.symlink_to("probe")
    try:
        return probe.lstat().st_uid
    finally:
        probe.unlink()


def _folder_by(link: Path, end: str, user: int) -> Path | None:
    """Return the folder that a link of this user names; None for what is no such link."""
    try:
        is_own = link.lstat().st_uid == user
        name = os.readlink(link).removeprefix("../")  # noqa: PTH115 - as it is, not as a path
    except OSError:
        return None
    is_plain = "/" not in name and not name.startswith(".") and name.endswith(end)
    return link.parent.parent / name if is_own and is_plain else None


def _age_s(link: Path) -> float:
    return time.time() - link.lstat().st_mtime


def _forget_old(jobs: Path) -> None:
    with contextlib.suppress(OSError):
        for link in jobs.iterdir():
            if re.fullmatch(LINK_OF_JOB, link.name) and _age_s(link) > JOBS_KEPT_S:
                remove_empty([*jobs.glob(f"{link.name}.*"), link])  # the ranks first
