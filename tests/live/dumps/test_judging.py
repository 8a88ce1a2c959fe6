"""Hangs that are planted in made jobs are named from their dumps, with the rank; jobs that end are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from safety.commands import invoke
from sampling import times

from dftrace_ai.live.dumps import judge, read_dumps
from live.dumps.made_dumps import NOW, NS, PLANTS, Planted, planted, write, write_json


def is_right(job: Planted, folder: Path) -> bool:
    cause = judge(read_dumps([folder])).cause
    if cause.kind != job.kind:
        return False
    if job.kind == "none":
        return True
    # Of two that wait for each other, or differ, neither is the odd one.
    alone = job.group_size > 2 and job.kind != "wrong order"
    return cause.ranks == (job.rank,) if alone else job.rank in cause.ranks


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("plant", range(len(PLANTS)), ids=PLANTS)
@pytest.mark.parametrize("lot", range(10))
def test_what_is_planted_is_named(plant: int, lot: int, tmp_path: Path) -> None:
    wrong = []
    for number in range(times(10, 0.5)):
        seed = plant + len(PLANTS) * (10 * lot + number)
        job = planted(seed)
        form = write if number % 2 else write_json
        if not is_right(job, form(job.dumps, tmp_path / str(seed))):
            wrong.append((seed, job.kind, job.rank))
    assert not wrong


# What a dump of each minor version has that those before it have not, by the sources of PyTorch 2.4 to
# 2.13 and what has gone again since; a version to come has more, wherever there is room.
TO_COME = {"colour": "blue", "more": [1, {"a": None}], "most": {"b": (2, 3.5)}}
MEMBERS: dict[str, dict[str, Any]] = {
    "2.2": {},
    "2.3": {"pg_status": {"0": {"last_enqueued_collective": 3, "last_completed_collective": -1}}},
    "2.4": {"nccl_comm_state": {}},
    "2.7": {"nccl_version": "2.21.5"},
    "2.10": {"comm_lib_version": "2.27.3"},
    "2.11": TO_COME,
}


@pytest.mark.parametrize("version", MEMBERS)
def test_every_minor_version_is_judged_alike(version: str, tmp_path: Path) -> None:
    number = list(MEMBERS).index(version)
    of_entry: dict[str, Any] = {"duration_ms": 0.5} if number % 2 else {}
    if version in {"2.10", "2.11"}:
        of_entry |= {"thread_id": "140216", "thread_name": "pt_main_thread"}
    for seed in range(number, len(PLANTS) * 2, 4):
        job = planted(seed)
        for dump in job.dumps.values():
            del dump["comm_lib_version"], dump["pg_status"]
            dump |= {"version": version, **MEMBERS[version]}
            for entry in dump["entries"]:
                entry |= of_entry
            if version == "2.11":
                for part in (*dump["entries"], *dump["pg_config"].values()):
                    part |= TO_COME
        for form in (write, write_json):
            assert is_right(job, form(job.dumps, tmp_path / f"{form.__name__}{seed}")), seed


def test_a_rank_without_a_dump_is_told_beside_another_cause(tmp_path: Path) -> None:
    job = next(job for job in map(planted, range(2, 200, 10)) if len(job.dumps) > 8)
    absent = max(job.dumps.keys() - {job.rank})
    del job.dumps[absent]
    found = judge(read_dumps([write(job.dumps, tmp_path / "fr")]))
    assert found.cause.kind == "mismatched collective"
    assert found.no_dump == (absent,)


def test_a_call_that_all_are_in_is_a_hang_when_it_lasts(tmp_path: Path) -> None:
    job = planted(4)
    for dump in job.dumps.values():
        dump["entries"] = dump["entries"][:3]
        dump["entries"][-1] |= {
            "state": "started",
            "time_discovered_completed_ns": None,
            "retired": False,
            "profiling_name": "nccl:all_reduce",
            "process_group": ("world", "world"),
            "collective_seq_id": 1,
            "input_sizes": [[4]],
            "output_sizes": [[4]],
        }
    dumps = read_dumps([write(job.dumps, tmp_path / "fr", after_s=30.0)])
    assert judge(dumps).cause.kind == "none"
    cause = judge(dumps, idle_s=20.0).cause
    assert (cause.kind, cause.ranks) == ("under way", tuple(job.dumps))


def test_times_of_files_that_were_lost_hide_nothing(tmp_path: Path) -> None:
    job = planted(1)
    assert job.kind == "missing"
    folder = write(job.dumps, tmp_path / "fr", after_s=-1e9)
    cause = judge(read_dumps([folder])).cause
    assert (cause.kind, cause.waiting_s) == ("missing", None)
    assert job.rank in cause.ranks


def test_ranks_that_are_a_moment_apart_hang_in_nothing(tmp_path: Path) -> None:
    job = planted(1)
    assert judge(read_dumps([write(job.dumps, tmp_path / "fr", after_s=0.2)])).cause.kind == "none"


def aged(folder: Path, rank: int, by_s: float) -> Path:
    """Dumps of which that of a rank was written so much earlier than the others."""
    for path in folder.iterdir():
        if path.name.endswith(f"_{rank}"):
            written = path.stat().st_mtime_ns - round(by_s * NS)
            os.utime(path, ns=(written, written))
    return folder


def test_a_rank_whose_dump_is_older_than_a_call_is_not_missing_there(tmp_path: Path) -> None:
    """As in a job that goes on, whose dumps are asked for host after host."""
    job = planted(1)
    assert job.kind == "missing"
    for rank, dump in job.dumps.items():
        for entry in dump["entries"]:
            if rank != job.rank and entry["state"] != "completed":
                entry["time_created_ns"] += 20 * NS
    # Written 10 s after the others came, and then 15 s before they did.
    folder = write(job.dumps, tmp_path / "fr", after_s=30.0)
    found = judge(read_dumps([folder]))
    assert (found.cause.ranks, found.too_old) == ((job.rank,), ())
    found = judge(read_dumps([aged(folder, job.rank, 25.0)]))
    assert (found.cause.kind, found.too_old) == ("none", (job.rank,))
    said = invoke("stuck", folder)
    assert (said.status, f"the dump of rank {job.rank} was written before" in said.out) == (0, True)
    # But where they have waited for long, nobody else can be it.
    found = judge(read_dumps([folder]), idle_s=20.0)
    assert (found.cause.kind, found.cause.ranks) == ("no dump", (job.rank,))
    said = invoke("stuck", folder, "--idle", 20)
    assert f"rank {job.rank} has left no dump since the others came" in said.out


def test_what_runs_since_a_moment_elsewhere_may_wait_for_its_turn(tmp_path: Path) -> None:
    job = next(job for job in map(planted, range(6, 300, 10)) if job.kind == "never started")
    folder = write(job.dumps, tmp_path / "fr")
    assert judge(read_dumps([folder])).cause.kind == "never started"
    for dump in job.dumps.values():
        for entry in dump["entries"]:
            if entry["state"] == "started":
                entry["time_discovered_started_ns"] = NOW + 61 * NS - 1000
    found = judge(read_dumps([write(job.dumps, tmp_path / "later")]))
    assert found.cause.kind != "never started"
