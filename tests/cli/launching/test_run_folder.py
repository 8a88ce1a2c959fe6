"""Each run below `dftrace run` has a folder of its own, in which all ranks of a job write."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import LEAN_ENDS, clean_environment

from dftrace_ai.cli import run_folder
from dftrace_ai.run.ranks import JobName
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
    for name in ("packed/train it", "package/train", "tests/deep", "größe/ünï"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.py").write_text(tells)
    for words, name in (
        (("packed/train it.py", "--lr", "1"), "train-it"),
        (("größe/ünï.py",), "ünï"),
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
        env={**clean_environment(), **LEAN_ENDS, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    (_, first), (_, second) = sorted(line.split() for line in done.stdout.splitlines())
    assert first == second
    assert NAMED.fullmatch(os.path.relpath(first, tmp_path))


def test_a_name_is_as_readable_as_file_systems_allow() -> None:
    for word, name in (
        ("...py", "py"),
        (".hidden.py", "hidden"),
        ("-train.py", "train"),
        ("学習.py", "学習"),
        ("u\u0308.py", "u\u0308"),
        ("🚀 now.py", "🚀-now"),
        ("a\u202eb\tc\x1b[0m'$(d).py", "a-b-c-0m-d"),
        (os.fsdecode(b"caf\xe9.py"), "caf"),
        ("x" * 300 + ".py", "x" * run_folder.NAME_BYTES),
        ("学" * 100 + ".py", "学" * (run_folder.NAME_BYTES // 3)),
        ("-mpackage", "package"),
    ):
        assert run_folder.label([word]) == name


def test_what_others_plant_beside_the_links_of_a_job_leads_nobody_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobName("torchrun 3 of today", is_own=True)

    def of_rank(rank: int) -> Path:
        ranks = {"RANK": str(rank), "WORLD_SIZE": "3"}
        folder = run_folder.writable_folder(None, "train", job, ranks, lambda _: None)
        return folder.path.relative_to(tmp_path)

    monkeypatch.chdir(tmp_path)
    first = of_rank(0)
    jobs = tmp_path / "traces" / ".jobs"
    (link,) = (
        one for one in jobs.iterdir() if one.name.endswith(".0") and one.name.count(".") == 1
    )
    key = link.stem
    for one in jobs.iterdir():
        one.unlink()
    (tmp_path / first).rmdir()
    for number, target in enumerate(("..", "../..", "/etc", "../.jobs", f"../x/../y-{key[:6]}")):
        (jobs / f"{key}.{number}").symlink_to(target)
    (jobs / f"{key}.5").touch()
    (jobs / f"{key}.6").mkdir()
    (jobs / f"{key}.7").symlink_to(f"../elsewhere-{key[:6]}-7")
    (tmp_path / "traces" / f"elsewhere-{key[:6]}-7").symlink_to("/etc")
    others = 8
    if os.geteuid() == 0:
        (jobs / f"{key}.8").symlink_to(f"../his-{key[:6]}-8")
        os.lchown(jobs / f"{key}.8", 65534, 65534)
        others = 9
    # What is forgotten after a week are links, and whatever else lies there is somebody's.
    kept = [jobs / "train.py", jobs / f"{key[::-1]}.0"]
    for one in kept:
        one.write_text("of the user's")
        os.utime(one, (0, 0))
    with ThreadPoolExecutor() as pool:
        (found,) = {*pool.map(of_rank, range(3))}
    assert NAMED.fullmatch(f"{found}/trace")
    assert found.name.endswith(f"-train-{key[:6]}-{others}")
    assert all(one.read_text() == "of the user's" for one in kept)
    # A folder of links that is one itself leads away as well.
    shutil.rmtree(tmp_path / "traces")
    (tmp_path / "traces").mkdir()
    (tmp_path / "his").mkdir()
    jobs.symlink_to("../his")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert of_rank(0).parts[0] == f"dftrace-{os.geteuid()}"
    assert not [*(tmp_path / "his").iterdir()]


def test_a_program_is_started_wherever_its_trace_can_be(tmp_path: Path) -> None:
    """Told once, the program's status, and nothing left behind."""
    (tmp_path / "traces").write_text("a file of the user's")
    (tmp_path / "tmp").mkdir()
    own = tmp_path / "tmp" / f"dftrace-{os.geteuid()}"
    env = environment(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    ends = (
        "echo $DFTRACE_LOG_FILE; test -z $DFTRACE_LOG_FILE || touch $DFTRACE_LOG_FILE.kept; exit 5"
    )
    program = ("--", "sh", "-c", ends)
    for words, told in (
        ((), "there can be no traces here (File exists)"),
        (("-o", "traces/x"), "there can be no traces in traces/x (Not a directory)"),
        (("-o", "/proc/no"), "there can be no traces in /proc/no (No such file or directory)"),
    ):
        done = ran((*RUN, *words, *program), env, tmp_path)
        written = Path(done.stdout.strip())
        assert done.returncode == 5
        assert written.is_relative_to(own / "traces")
        said = f"dftrace: run: {told}: the trace goes to {written.parent}; -o says where else\n"
        assert done.stderr == said
    # Not where somebody else may have made it to read along; nor where there is no room at all.
    own.rename(tmp_path / "tmp" / "his")
    own.symlink_to("his")
    (tmp_path / "small").mkdir()
    limited = ("sh", "-c", 'ulimit -f 1; cd small; exec "$@"', "sh")
    for by, told in (
        (RUN, f"nothing will be recorded: File exists ({tmp_path}/traces)"),
        ((*limited, *RUN), "nothing will be recorded: the trace cannot be written: File too large"),
        ((*limited, *RUN, "-o", "a/b"), "nothing will be recorded: the trace cannot be written: "),
    ):
        done = ran((*by, *program), env, tmp_path)
        assert (done.returncode, done.stdout) == (5, "\n")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"dftrace: run: {told}")
    assert not [*(tmp_path / "small").iterdir()]
