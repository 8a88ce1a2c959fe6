"""Which run it is: its name, its directory, its rank, and whether there was one before."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

from dftrace_ai.errors import ConfigError, LogDirectoryError
from dftrace_ai.loggers.names import is_safe_name, plain_name, safe_name, told_apart
from dftrace_ai.loggers.runs.lines import whole_text
from dftrace_ai.loggers.runs.log_files import LOG, head_of
from dftrace_ai.loggers.runs.processes import process_start
from dftrace_ai.loggers.trackers.base import RunFacts
from dftrace_ai.run.ranks import RankInfo, find_rank, number_of
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.loggers.config import EntryConfig

# What all ranks of a job have in common, where no name is configured.
JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE")
NO_JOB = ("", "none")

MOST_LOOKED_AT = 64
"""Logs of a directory; each says in its first line which run it is of."""

ELSEWHERE = "choose another place with log_dir"


def rank_here() -> RankInfo:
    """Return which rank this is; of those that Lightning has started, too."""
    found = find_rank()
    local, node, size = (
        number_of(os.environ.get(name)) for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    )
    if found.rank is not None or local is None or size is None:
        return found
    # Lightning does not say how many there are on a node: of other nodes than the first the number
    # is no other rank's, and that is all that is known of it.
    return RankInfo((node or 0) * size + local, size, local, "lightning")


def rank_logs(config: EntryConfig) -> bool:
    """Return whether this process logs: the first rank, or all where so configured."""
    return config.ranks == "all" or not rank_here().rank


def named_now() -> str:
    """Return a name for a run that begins now; in a job of ranks the same in all of them."""
    rank = rank_here()
    if rank.rank is not None and (rank.world_size or 1) > 1:
        for name in JOB_VARIABLES:
            value = os.environ.get(name, "")
            if value not in NO_JOB:
                return f"job-{value}"
        # Ranks that one launcher has started on this machine; a later one may have its number.
        launcher = os.getppid()
        port = os.environ.get("MASTER_PORT", "0")
        return f"job-{launcher}-{port}-{process_start(launcher)}"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def place_of(config: EntryConfig, run_name: str) -> RunFacts:
    """Make the directory of a run, configured or made; raises as `make_loggers` does."""
    rank = rank_here()
    root = _absolute(config.log_dir)
    try:
        folder = _folder_of(root, (config.project, run_name), must=config.resume == "must")
        there = _holds_something(folder)
    except OSError as error:
        raise LogDirectoryError(
            f"{quoted(error.filename or str(root))}: cannot be read: {error.strerror}; {ELSEWHERE}"
        ) from error
    of_several = config.ranks == "all" and (rank.world_size or 1) > 1
    if config.resume == "must" and not there:
        raise ConfigError(f"resume: must, and there is no run in {quoted(str(folder))}")
    if config.resume == "never" and there and not of_several:
        raise ConfigError(f"resume: never, and there is a run in {quoted(str(folder))}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogDirectoryError(
            f"{quoted(str(folder))}: cannot be made: {error.strerror}; {ELSEWHERE}"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LogDirectoryError(f"{quoted(str(folder))}: cannot be written; {ELSEWHERE}")
    return RunFacts(
        project=config.project,
        run_name=run_name,
        log_dir=folder,
        root=root,
        resume=config.resume,
        rank=rank.rank or 0,
        world_size=rank.world_size or 1,
        group=config.group or (run_name if of_several else ""),
        tags=tuple(config.tags),
        options=dict(config.options),
        all_ranks=of_several,
        file_mode=int(config.file_mode, 8),
        mask_secrets=config.mask_secrets,
        begun_ns=time.time_ns(),
    )


def _absolute(log_dir: Path) -> Path:
    try:
        return log_dir.absolute()
    except FileNotFoundError as error:
        raise LogDirectoryError(
            f"{quoted(str(log_dir))}: the current directory is gone; give an absolute path with "
            "log_dir"
        ) from error


def _folder_of(root: Path, names: tuple[str, str], *, must: bool) -> Path:
    """Return the directory of a run, which is no other run's."""
    project, name = names
    own = (whole_text(project), whole_text(name))
    folder = _part(_part(root, project), name)
    former = root / plain_name(project) / plain_name(name)
    if former != folder and not folder.exists():
        # Where it was begun before names were told apart; without a log nobody knows whose it is.
        named = _names_in(former)
        if own in named or (must and not named and _holds_something(former)):
            return former
    for other in _names_in(folder) - {own}:
        if all(map(is_safe_name, folder.parts[-2:], other)):
            return folder.with_name(told_apart(folder.name, name))
    return folder


def _part(folder: Path, name: str) -> Path:
    """Return what is called by a name; on a file system without cases, where no other is."""
    path, other = folder / safe_name(name), folder / told_apart(safe_name(name), name)
    if other.exists() or (path.exists() and path not in folder.iterdir()):
        return other
    return path


def _names_in(folder: Path) -> set[tuple[str, str]]:
    """Return the projects and names of the runs that some logs of a directory are of."""
    try:
        logs = sorted(path for path in folder.iterdir() if LOG.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    heads = map(head_of, logs[:MOST_LOOKED_AT])
    return {(head.project, head.name) for head in heads if head is not None}


def _holds_something(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False  # it is made, or cannot be, which is told then
