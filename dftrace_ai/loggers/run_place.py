"""Which run it is: its name, its directory, its rank, and whether there was one before."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

from dftrace_ai.errors import ConfigError, LogDirectoryError
from dftrace_ai.loggers.interfaces.base import RunFacts
from dftrace_ai.loggers.interfaces.file_paths import safe_name
from dftrace_ai.run.ranks import RankInfo, find_rank
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.loggers.config import EntryConfig

__all__ = ["named_now", "place_of", "rank_logs"]

# What all ranks of a job have in common, where no name is configured.
JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE")
NO_JOB = ("", "none")

ELSEWHERE = "choose another place with log_dir"


def rank_here() -> RankInfo:
    """Return which rank this is; of those that Lightning has started, too."""
    found = find_rank()
    local, node, size = (
        _number(os.environ.get(name)) for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    )
    if found.rank is not None or local is None or size is None:
        return found
    # Lightning does not say how many there are on a node: of other nodes than the first the number
    # is no other rank's, and that is all that is known of it.
    return RankInfo((node or 0) * size + local, size, local, "lightning")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


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
                return f"job-{safe_name(value)}"
        # Ranks that one launcher has started on this machine.
        return f"job-{os.getppid()}-{os.environ.get('MASTER_PORT', '0')}"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def place_of(config: EntryConfig, run_name: str) -> RunFacts:
    """Make the directory of a run.

    Args:
        config: the entry's settings.
        run_name: of the run, configured or made.

    Raises:
        ConfigError: the run is there and must not, or is not and must.
        LogDirectoryError: the directory cannot be made or written.
    """
    rank = rank_here()
    root = _absolute(config.log_dir)
    folder = root / safe_name(config.project) / safe_name(run_name)
    there = _holds_something(folder)
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
    )


def _absolute(log_dir: Path) -> Path:
    try:
        return log_dir.absolute()
    except FileNotFoundError as error:
        raise LogDirectoryError(
            f"{quoted(str(log_dir))}: the current directory is gone; give an absolute path with "
            "log_dir"
        ) from error


def _holds_something(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False  # it is made, or cannot be, which is told then
    except OSError as error:
        raise LogDirectoryError(
            f"{quoted(str(folder))}: cannot be read: {error.strerror}; {ELSEWHERE}"
        ) from error
