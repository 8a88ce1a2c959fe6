"""Rank and world size from the launcher's environment, into the header and the process name."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from conftest import trace_files
from perfetto.agreement import agree
from perfetto.trace_file import read

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.run.ranks import find_rank

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}
OMPI = {f"OMPI_COMM_WORLD_{name}": n for name, n in zip(("RANK", "LOCAL_RANK", "SIZE"), "318")}
SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (TORCHRUN, (3, 8, 1, "torchrun")),
        (SLURM, (3, 8, 1, "slurm")),
        (OMPI, (3, 8, 1, "open mpi")),
        ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"}, (3, 8, 1, "mpich")),
        # The scheduler that it runs under says something else of itself.
        ({**TORCHRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (3, 8, 1, "torchrun")),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, (0, 1, 0, "torchrun")),
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "77"}, (None, None, None, None)),
        *(
            ({"RANK": text, "WORLD_SIZE": "8"}, (None, None, None, None))
            for text in ("", "x", "-1", "1e3")
        ),
    ],
)
def test_what_a_launcher_says(environ: dict[str, str], found: tuple[object, ...]) -> None:
    assert find_rank(environ) == found


@pytest.mark.parametrize(
    ("environ", "given", "said", "name"),
    [
        (TORCHRUN, {}, (3, 8), "rank 3"),
        (TORCHRUN, {"rank": 5, "world_size": 6}, (5, 6), "rank 5"),
        ({}, {}, (None, None), "python"),
    ],
)
def test_it_is_in_the_header_unless_another_one_is_given(
    environ: dict[str, str],
    given: dict[str, int],
    said: tuple[int | None, int | None],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, text in environ.items():
        monkeypatch.setenv(variable, text)
    with dftrace_ai.tracing(log_file=tmp_path / "t", **given), ai.compute.forward:
        pass
    (path,) = trace_files(tmp_path)
    trace = read(path)
    assert (trace.header.get("rank"), trace.header.get("world_size")) == said
    assert trace.process_name == f"{name} · {platform.node()}"
    assert [*agree(trace).process_names.values()] == [trace.process_name]
