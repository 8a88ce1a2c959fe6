"""Dumps that torch writes for jobs on gloo, which torchrun starts: who is named, and that nobody else is."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LEAN_ENDS, clean_environment
from printed_json import checked

from dftrace_ai.live import snapshot_json
from dftrace_ai.live.dumps import judge, read_dumps
from live.dumps.gloo_jobs import CASES
from live.dumps.made_dumps import touched
from live.made import dead, snapshot_of
from live.programs import dftrace

JOBS = Path(__file__).with_name("gloo_jobs.py")
LIMIT_S = 300

FAULTS = {
    "missing": "missing",
    "op": "mismatched collective",
    "size": "mismatched size",
    "gathered": "mismatched size",
    "dtype": "mismatched dtype",
    "order": "wrong order",
}
CLEAN = CASES.keys() - FAULTS


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dumps for each case, as if written a minute after the last call."""
    folder = tmp_path_factory.mktemp("gloo")
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"),
            *(str(JOBS), str(folder), *CASES),
        ],
        env=clean_environment()
        | LEAN_ENDS
        | {"TORCH_FR_BUFFER_SIZE": "200", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    for case in folder.iterdir():
        said = [json.loads(path.read_bytes()) for path in case.glob("fr_*.json")]
        # A busy machine has ranks call long after each other.
        together = {"entries": [entry for dump in said for entry in dump["entries"]]}
        for file in case.glob("fr_*"):
            touched(file, together, after_s=61.0)
    return folder


@pytest.mark.parametrize("case", FAULTS)
def test_who_hangs_is_named(dumps: Path, case: str) -> None:
    # By JSON alone as by both: a pickle is taken where there is one.
    for paths in ([dumps / case], sorted((dumps / case).glob("*.json"))):
        cause = judge(read_dumps(paths)).cause
        assert (cause.kind, cause.ranks) == (FAULTS[case], (1,))


@pytest.mark.parametrize("case", sorted(CLEAN))
def test_nobody_is_accused_of_a_job_that_ends(dumps: Path, case: str) -> None:
    found = judge(read_dumps([dumps / case]), idle_s=0.0)
    assert found.cause.kind == "none"
    assert found.problems == ()


def test_real_pickles_are_read_as_pickle_reads_them(dumps: Path) -> None:
    from dftrace_ai.live.dumps.plain_pickle import plain_pickle

    for path in dumps.glob("*/fr_?"):
        assert plain_pickle(path.read_bytes()) == pickle.loads(path.read_bytes())


def test_what_is_told_of_a_hang(dumps: Path, tmp_path: Path) -> None:
    folder = dumps / "missing"
    done = dftrace("stuck", folder)
    assert done.status == 1
    line = next(
        number
        for number, line in enumerate(JOBS.read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith("def missing")
    )
    assert done.out.splitlines() == [
        (
            "rank 1 has not come to all_reduce 2 of default_pg (3 ranks), the others have been in it "
            "for 61 s"
        ),
        "  rank 1 in no collective",
        f"  it was called at gloo_jobs.py:{line + 2} in missing",
        done.out.splitlines()[-1],
    ]
    assert " is guessed, by the dumps" in done.out
    # With what our own recorder knew of the ranks.
    path = ("pipeline.train", "dataloader.fetch.iter")
    ranks = [dead(rank, *path, for_s=63.0) for rank in range(3)]
    seen = replace(snapshot_of(*ranks), problems=[])
    (tmp_path / "seen.json").write_bytes(snapshot_json(seen))
    done = dftrace("stuck", tmp_path / "seen.json", folder)
    assert done.out.splitlines()[1].startswith(
        "  rank 1 in no collective; died in dataloader.fetch.iter, last sign of life 63 s ago"
    )
    said = checked(dftrace("stuck", "--json", tmp_path / "seen.json", folder).out, "stuck-dumps")
    assert said["verdict"]["kind"] == "missing"
    assert [one["rank"] for one in said["standing"]] == [1]
    assert said["dumps"]["ranks"] == [0, 1, 2]


def test_a_directory_has_dumps_and_what_else_a_run_leaves(dumps: Path, tmp_path: Path) -> None:
    for path in (dumps / "op").glob("fr_?"):
        os.link(path, tmp_path / path.name)
    (tmp_path / "notes-7.json").write_text('{"lr": 1}')
    (tmp_path / "checkpoint_7.pt").write_bytes(b"PK\3\4")
    done = dftrace("stuck", tmp_path)
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith("rank 1 has called broadcast where the others have called all_")
    (tmp_path / "fr_0").unlink()
    done = dftrace("stuck", tmp_path)
    assert "no dump of rank 0" in done.out
    damaged = tmp_path / "fr_1"
    damaged.unlink()
    damaged.write_bytes(b"\x80\x02}")
    (tmp_path / "fr_2").unlink()
    done = dftrace("stuck", tmp_path)
    assert done.status == 2
    assert done.err.splitlines()[-1] == "dftrace: none of the dumps could be read"


def a_trace(folder: Path, *lines: dict[str, object], **header: object) -> Path:
    """The trace of rank 0 with what it tells of itself, and these lines."""
    folder.mkdir()
    told = {"format": 1, "host": "vm", "pid": 1, "run": "5" * 32, "rank": 0, **header}
    with (folder / "train-vm-1.pfw").open("w", encoding="utf-8") as file:
        file.write("[\n")
        for args, name, cat in (
            (told, "dftrace", "dftrace"),
            *((x, "CM", "dftracer") for x in lines),
        ):
            line = {"name": name, "cat": cat, "pid": 1, "tid": 1, "ph": "M", "args": args}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return folder


def test_ranks_without_a_dump_are_told_where_somebody_says_who_is_in_the_group(
    dumps: Path, tmp_path: Path
) -> None:
    few = tmp_path / "fr"
    few.mkdir()
    os.link(dumps / "missing" / "fr_0", few / "fr_0")
    group = {"name": "0", "description": "default_pg", "ranks": [0, 1, 2]}
    value = {"name": "process_group", "value": json.dumps(group)}
    # A directory that holds dumps alone stands beside that of the traces.
    for traces in (
        a_trace(tmp_path / "group", value),
        a_trace(tmp_path / "size", world_size=3),
    ):
        done = dftrace("stuck", "--json", few, traces)
        said = checked(done.out, "stuck-dumps")
        assert (done.status, said["verdict"]["kind"]) == (1, "no dump")
        assert said["verdict"]["ranks"] == said["no_dump"] == [1, 2]
        assert "default_pg" not in said["guessed"]
        assert not said["verdict"]["guessed"]
    # By the dumps alone it is a guess.
    done = dftrace("stuck", few, "--idle", "600")
    assert done.status == 0
    assert "who is in default_pg" in done.out.splitlines()[-1]
    assert "is guessed, by the dumps: more ranks may be" in done.out.splitlines()[-1]
    said = checked(dftrace("stuck", "--json", few).out, "stuck-dumps")
    assert said["guessed"][0] == "default_pg"
    assert said["verdict"]["guessed"]
