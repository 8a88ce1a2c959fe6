"""Dumps of made jobs that hang: PyTorch's own analyzer finds in them what was planted, and so do we."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from printed_json import checked
from safety.commands import answer, invoke

from dftrace_ai.generating import Job, cause_of, generate

# What was planted, what we call it, and PyTorch; and the version of the form.
PLANTED = {
    "missing": ("missing", "", "2.10"),
    "op": ("mismatched collective", "COLLECTIVE_TYPE_MISMATCH", "2.9"),
    "size": ("mismatched size", "SIZE_OR_SYNTAX_MISMATCH", "2.7"),
    "dtype": ("mismatched dtype", "COLLECTIVE_DTYPE_MISMATCH", "2.5"),
    "unstarted": ("never started", "COLLECTIVE_STATE_MISMATCH", "2.1"),
}


def said_by_torch(folder: Path) -> Any:
    """The first collective of the job in which its analyzer finds a fault."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    args = JobConfig().parse_args([str(folder), "--prefix", "nccl_trace_rank_"])
    try:
        details, version = read_dir(args)
    finally:
        gc.enable()  # which it has turned off
    found = build_db(details, args, version).collectives
    assert len(found) == 80 + 320  # of 20 steps: buckets, and layers of four groups
    return next(one for one in found if not one.pass_check or one.missing_ranks)


def verdict_on(folder: Path) -> Any:
    done = invoke("stuck", folder, "--json")
    assert done.status == 1
    return checked(done.out, "stuck-dumps")["verdict"]


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found_by_both(tmp_path: Path, kind: str) -> None:
    ours, theirs, version = PLANTED[kind]
    job = Job(ranks=8, tp=2, steps=60, causes=(cause_of(f"flight:{kind}:3:30"),))
    assert generate(job, tmp_path).dumps == 8
    for path in tmp_path.glob("nccl_trace_rank_*"):
        times = path.stat().st_mtime_ns
        path.write_bytes(pickle.dumps(pickle.loads(path.read_bytes()) | {"version": version}))
        os.utime(path, ns=(times, times))
    peer = said_by_torch(tmp_path)
    differing = peer.mismatch_collectives or {}
    odd = peer.missing_ranks or set(differing)
    assert (odd, peer.collective_seq_id, peer.pg_desc) == ({3}, 121, "0:default_pg")
    assert all(theirs in str(one.type_of_mismatch) for one in differing.values())
    found = verdict_on(tmp_path)
    assert (found["kind"], found["ranks"], found["seq"]) == (ours, [3], 121)
    assert found["waiting_s"] is None or found["waiting_s"] == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("shape", [{"ranks": 16, "tp": 2, "pp": 2}, {"ranks": 4, "pp": 4}])
def test_a_pipeline_that_hangs_names_its_rank_and_the_traces_end_there(
    tmp_path: Path, shape: dict[str, int]
) -> None:
    job = Job(steps=12, causes=(cause_of("flight:missing:3:7"),), **shape)
    generate(job, tmp_path)
    verdict = verdict_on(tmp_path)
    assert (verdict["kind"], verdict["ranks"]) == ("missing", [3])
    assert answer("ranks", tmp_path)["steps"]["common"] == 7


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("flight:missing:3:100", "there are 100 steps"),
        ("flight:slow:3:10", "--cause takes slow-rank:R:MS, "),
        ("flight", "--cause takes slow-rank:R:MS, "),
        ("flight:op:3", "--cause flight:op takes R:STEP"),
        ("flight:op:1:5 --cause flight:size:2:7", "hangs once"),
        ("flight:op:0:5 --ranks 1", "hangs once"),
    ],
)
def test_a_hang_that_cannot_be_made_is_refused(tmp_path: Path, words: str, why: str) -> None:
    done = invoke("generate", tmp_path / "out", "--cause", *words.split())
    assert (done.status, why in done.err) == (2, True), done
