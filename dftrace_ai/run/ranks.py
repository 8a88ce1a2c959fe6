"""Which rank this process is, found from what its launcher put into the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

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


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def find_rank(environ: Mapping[str, str] | None = None) -> RankInfo:
    """Find rank, world size and local rank, as a launcher says them; all None outside of one."""
    variables = os.environ if environ is None else environ
    for launcher, rank, size, local in _LAUNCHERS:
        found = _number(variables.get(rank))
        if found is None:
            continue
        # A batch step of SLURM has a rank and is no rank of a job.
        if launcher == "slurm" and "SLURM_STEP_ID" not in variables and size not in variables:
            continue
        return RankInfo(
            found, _number(variables.get(size)), _number(variables.get(local)), launcher
        )
    return RankInfo()
