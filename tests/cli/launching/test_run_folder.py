"""Each run below `dftrace run` has a folder of its own, in which all ranks of a job write."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import clean_environment

from launching import RUN, environment, ran

# A folder that stays empty goes with its program, and another run gets its name.
TELLS = ("--", "sh", "-c", "echo $DFTRACE_LOG_FILE; touch $DFTRACE_LOG_FILE.kept; true")
NAMED = re.compile(r"traces/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-[\w.-]+/trace")


def prefix(folder: Path, *options: str, **more: str) -> str:
    """Where a program below `dftrace run` is told to write, from the folder in which it is."""
    done = ran((*RUN, *options, *TELLS), environment(folder, **more), folder)
    assert done.returncode == 0, done.stderr
    return os.path.relpath(done.stdout.strip(), folder)


def test_it_is_new_unless_somebody_says_where(tmp_path: Path) -> None:
    environment(tmp_path)
    with ThreadPoolExecutor() as pool:
        each = [*pool.map(lambda _: prefix(tmp_path), range(4))]
    assert len(set(each)) == 4
    assert all(NAMED.fullmatch(one) for one in each), each
    (tmp_path / "settings.yaml").write_text("log_file: file/t\n")
    for options, more, where in (
        (("-o", "out"), {}, "out/trace"),
        (("--out", "out/"), {"DFTRACE_LOG_FILE": "other/t"}, "out/trace"),
        (("--log-file", "out/t"), {}, "out/t"),
        (("--set", "log-file=set/t"), {}, "set/t"),
        (("--config", "settings.yaml"), {}, "file/t"),
        ((), {"DFTRACE_LOG_FILE": "other/t"}, "other/t"),
    ):
        assert prefix(tmp_path, *options, **more) == where
    both = ran((*RUN, "-o", "a", "--log-file", "b", *TELLS), environment(tmp_path), tmp_path)
    assert (both.returncode, both.stdout) == (2, "")


def test_it_is_called_after_the_script(tmp_path: Path) -> None:
    tells = 'import os; print("DFTRACE_LOG_FILE=" + os.environ["DFTRACE_LOG_FILE"])'
    for name in ("packed/train it", "package/train", "tests/deep"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.py").write_text(tells)
    for words, name in (
        (("packed/train it.py", "--lr", "1"), "train-it"),
        (("-m", "package.train"), "package.train"),
        (("-c", tells), "python"),
        (("--", "env", sys.executable, "-O", "tests/deep.py", "other.py"), "deep"),
        (("--", "/usr/bin/env"), "env"),
    ):
        done = ran((*RUN, *words), environment(tmp_path), tmp_path)
        (place,) = [x for x in done.stdout.splitlines() if x.startswith("DFTRACE_LOG_FILE=")]
        assert Path(place).parent.name[20:] == name


@pytest.mark.parametrize(
    "job",
    [
        {"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "1"},
        {"LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none"},
    ],
    ids=["several hosts", "one host"],
)
def test_ranks_without_a_parent_of_ours_find_each_other(
    tmp_path: Path, job: dict[str, str]
) -> None:
    environment(tmp_path)

    def of_rank(rank: int, restart: int = 0) -> str:
        counted = {"TORCHELASTIC_RESTART_COUNT": str(restart)}
        return prefix(tmp_path, RANK=str(rank), WORLD_SIZE="3", **job, **counted)

    with ThreadPoolExecutor() as pool:
        (first,) = {*pool.map(of_rank, range(3))}
    assert NAMED.fullmatch(first)
    # The ranks that are started again are of the same job, and a launch of the same name is not.
    assert {of_rank(rank, 1) for rank in (2, 0)} == {first}
    again = of_rank(1)
    assert again != first
    assert of_rank(0) == again


def test_steps_of_slurm_have_a_folder_each(tmp_path: Path) -> None:
    ranks = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2"}
    each = {
        prefix(tmp_path, SLURM_STEP_ID=step, SLURM_PROCID=rank, **ranks)
        for step in "01"
        for rank in "01"
    }
    assert len(each) == 2


def test_ranks_of_torchrun_that_start_in_other_seconds(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    # A script is between the launcher and what finds the folder.
    line = f'sleep "$RANK.1"; {" ".join(RUN)} -- sh -c "echo $RANK \\$DFTRACE_LOG_FILE"; true'
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = subprocess.run(
        [sys.executable, *torchrun, "--no-python", "sh", "-c", line],
        env={**clean_environment(), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    (_, first), (_, second) = sorted(line.split() for line in done.stdout.splitlines())
    assert first == second
    assert NAMED.fullmatch(os.path.relpath(first, tmp_path))


def test_where_there_can_be_no_folder_it_is_told_where_else(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("a file of the user's")
    (tmp_path / "tmp").mkdir()
    env = environment(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    done = ran((*RUN, *TELLS), env, tmp_path)
    written = Path(done.stdout.strip())
    assert done.returncode == 0
    assert written.is_relative_to(tmp_path / "tmp" / f"dftrace-{os.geteuid()}" / "traces")
    told = "run: there can be no traces here (File exists): the trace goes to"
    assert f"{told} {written.parent}; -o says where else" in done.stderr
    # Not where somebody else may have made it to read along.
    (tmp_path / "tmp" / f"dftrace-{os.geteuid()}").rename(tmp_path / "tmp" / "his")
    (tmp_path / "tmp" / f"dftrace-{os.geteuid()}").symlink_to("his")
    done = ran((*RUN, *TELLS), env, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
