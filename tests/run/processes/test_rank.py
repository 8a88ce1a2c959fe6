"""Rank and world size from the launcher's environment, into the header and the process name."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import trace_files
from perfetto.agreement import agree
from perfetto.trace_file import read

import dftrace_ai
from dftrace_ai import ai

LAUNCHERS = {
    "torchrun": {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "none",
    },
    "slurm": {
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "8",
        "SLURM_JOB_ID": "77",
    },
    "openmpi": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "8",
    },
    "mpich": {"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"},
}


def header_of(folder: Path, **overrides: object) -> tuple[dict[str, object], str]:
    """The header and the process name of a short run."""
    with dftrace_ai.tracing(log_file=folder / "t", **overrides), ai.compute.forward:
        pass
    (path,) = trace_files(folder)
    t = read(path)
    view = agree(t)
    assert list(view.process_names.values()) == [t.process_name]
    return t.header, t.process_name


def use(monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]) -> None:
    """Sets variables."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("launcher", list(LAUNCHERS))
def test_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    use(monkeypatch, LAUNCHERS[launcher])
    header, name = header_of(tmp_path)
    assert (header["rank"], header["local_rank"], header["world_size"]) == (3, 1, 8)
    assert name == f"rank 3 · {platform.node()}"


def test_torchrun_wins_over_the_scheduler_it_runs_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, {**LAUNCHERS["torchrun"], "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    header, _ = header_of(tmp_path)
    assert (header["rank"], header["world_size"]) == (3, 8)


def test_given_numbers_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, LAUNCHERS["torchrun"])
    header, name = header_of(tmp_path, rank=5, world_size=6)
    assert (header["rank"], header["world_size"]) == (5, 6)
    assert name.startswith("rank 5 ")


def test_no_launcher(tmp_path: Path) -> None:
    header, name = header_of(tmp_path)
    assert "rank" not in header
    assert name == f"python · {platform.node()}"


@pytest.mark.parametrize("value", ["", "x", "-1", "1e3"])
def test_a_launcher_value_that_is_no_rank_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    use(monkeypatch, {"RANK": value, "WORLD_SIZE": "8"})
    header, _ = header_of(tmp_path)
    assert "rank" not in header


def test_rank_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"})
    header, name = header_of(tmp_path)
    assert (header["rank"], header["local_rank"], header["world_size"]) == (0, 0, 1)
    assert name.startswith("rank 0 ")
