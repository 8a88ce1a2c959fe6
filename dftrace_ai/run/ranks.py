"""Which rank this process is: by what its launcher put into the environment, or by its groups."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class RankInfo(NamedTuple):
    """A process's place in a job; None where nothing is known."""

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    launcher: str | None = None


# Launcher, and its variables for rank, world size and local rank; the first that fits wins.
# torchrun's own come first: it may itself run under any of the others.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("open mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("pmi", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK"),
    ("mvapich2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def number_of(text: str | None) -> int | None:
    """Return the number that a variable says; None for what is none."""
    return int(text) if text is not None and text.strip().isdecimal() else None


def find_rank(environ: Mapping[str, str] | None = None) -> RankInfo:
    """Find rank, world size and local rank, as a launcher says them; all None outside of one."""
    variables = os.environ if environ is None else environ
    for launcher, rank, size, local in _LAUNCHERS:
        found = number_of(variables.get(rank))
        if found is None:
            continue
        # A batch step of SLURM has a rank and is no rank of a job.
        if launcher == "slurm" and "SLURM_STEP_ID" not in variables and size not in variables:
            continue
        return RankInfo(
            found, number_of(variables.get(size)), number_of(variables.get(local)), launcher
        )
    return RankInfo()


GROUPS = "torch.distributed.distributed_c10d"
OF_GROUPS = "torch.distributed"
# Of a child whose parent is a rank that its group knows; it may be a rank of its own.
OF_PARENT = "parent"


def rank_of_groups() -> RankInfo | None:
    """Return the place in the group of all ranks; None where there is none, or no torch."""
    groups: Any = sys.modules.get(GROUPS)
    try:
        if groups is None or not groups.is_initialized():
            return None
        rank, size = groups.get_rank(), groups.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        return None  # in the middle of an import, or of the end of a group
    if not 0 <= rank < size < 2**31:
        return None
    return RankInfo(int(rank), int(size), number_of(os.environ.get("LOCAL_RANK")), OF_GROUPS)


def is_told_better(by_groups: RankInfo, by_launcher: RankInfo) -> bool:
    """Return whether groups know the rank where launchers do not, or know another process by it.

    Who has one task a node, and starts the ranks of each by itself, has in all of these the rank of
    the node. A smaller group is one of some ranks.
    """
    if by_launcher.rank is None or by_launcher.launcher == OF_PARENT:
        return True
    if by_groups.rank == by_launcher.rank:
        return False
    return (by_groups.world_size or 0) >= (by_launcher.world_size or 0)


class JobName(NamedTuple):
    """What the ranks of a job have in common, by which they find each other without a parent."""

    name: str
    is_own: bool
    """Whether it is of this start of a job; else one of another day may have it, too."""


# How many ranks are on this host, by launchers that say it.
_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PMIX_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "MASTER_ADDR", "MASTER_PORT")
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def restart_of(environ: Mapping[str, str]) -> int | None:
    """Return how often the job was started again; None where nobody counts it."""
    for variable in _RESTARTS:
        count = environ.get(variable, "").strip()
        if count.isascii() and count.isdecimal() and len(count) < 10:
            return int(count)
    return None


def is_on_one_host(environ: Mapping[str, str]) -> bool:
    """Return whether all ranks of the job are on this host, as its launcher says."""
    size = find_rank(environ).world_size
    return size is not None and any(number_of(environ.get(name)) == size for name in _LOCAL_SIZES)


# How many hosts a job has, by launchers that say it; torchrun starts one group of ranks on each.
_HOSTS = ("GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")


def host_of_groups() -> str:
    """Return the host at which ranks meet, as their groups have it; empty where that is no host."""
    groups: Any = sys.modules.get(GROUPS)
    try:
        return host_of_store(groups._get_default_store())
    except Exception:  # noqa: BLE001 - no group, or a store that answers as its author likes
        return ""


def host_of_store(store: Any) -> str:
    """Return the host of a store of torch's, be it within others; empty for a file or memory."""
    for _ in range(MOST_STORES):
        if store is None:
            break
        if host := getattr(store, "host", ""):
            return str(host)
        store = getattr(store, "underlying_store", None)
    return ""


MOST_STORES = 8


def _is_this_host(address: str) -> bool:
    """Return whether an address reaches no other host; of one that is no loopback nobody knows."""
    return address.startswith("127.") or address in {"", "localhost", "::1"}


def spans_hosts(environ: Mapping[str, str], size: int | None = None, meets_at: str = "") -> bool:
    """Return whether the job may have ranks on several hosts, as its launcher says or they meet.

    Args:
        environ: of the process.
        size: how many ranks there are, where the launcher does not know it.
        meets_at: the host at which they meet, where `MASTER_ADDR` does not say it.
    """
    size = find_rank(environ).world_size or size
    if size is None or size < 2:
        return False
    local = [number_of(environ.get(name)) for name in _LOCAL_SIZES]
    here = next((count for count in local if count is not None), None)
    if here is not None:
        return size > here
    hosts = [number_of(environ.get(name)) for name in _HOSTS]
    count = next((count for count in hosts if count is not None), None)
    if count is not None:
        return count > 1
    # Nobody counts them: where ranks are spawned on each host by hand they meet at one of these.
    return not _is_this_host(environ.get("MASTER_ADDR", "") or meets_at)


def job_name(environ: Mapping[str, str]) -> JobName | None:
    """Return the name of the job of which this is a rank; None where it is one of no others."""
    found = find_rank(environ)
    if found.rank is None or (found.world_size or 1) < 2:
        return None
    step = environ.get("SLURM_STEP_ID", "")
    if found.launcher == "slurm" and step:
        job = environ.get("SLURM_JOB_ID", "")
        return JobName(f"slurm {environ.get('SLURM_CLUSTER_NAME', '')} {job}.{step}", is_own=True)
    size = f"{found.launcher} {found.world_size}"
    if is_on_one_host(environ):
        return JobName(f"{size} {_launching_process(found)}", is_own=True)
    named = [environ.get(name, "") for name in _JOB_NAMES]
    return JobName(f"{size} {' '.join(named)}", is_own=False) if any(named) else None


def _launching_process(found: RankInfo) -> str:
    """Return the boot, number and start of the process that has made this one a rank."""
    from pathlib import Path

    variable = next(name for launcher, name, *_ in _LAUNCHERS if launcher == found.launcher)
    own = f"{variable}={found.rank}".encode()
    pid = os.getppid()
    try:
        # What a script between the launcher and this process was started with says the rank, too.
        while pid > 1 and own in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            pid = int(_state(pid)[1])
    except OSError:
        pass  # another user's, as launchers that belong to the system are
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {pid} {_state(pid)[19]}"
    except OSError:
        return str(pid)


def _state(pid: int) -> list[str]:
    """Return what the system tells of a process behind its name, which may hold anything."""
    from pathlib import Path

    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
