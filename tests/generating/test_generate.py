"""Made jobs: the same bytes again, right by every reader, and what was planted is what is found."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import clean_environment
from perfetto.agreement import agree
from perfetto.trace_file import read
from safety.commands import COMMAND, answer, invoke
from stress.nursery import wait_until

from dftrace_ai.errors import DftraceError
from dftrace_ai.generating import Job, JobClocks, cause_of, generate
from dftrace_ai.generating.hosts import hosts_of
from dftrace_ai.generating.job import Jump
from dftrace_ai.generating.timing import Timing


def made(folder: Path, *causes: str, **job: Any) -> Path:
    """The folder of a job that is made."""
    generate(Job(causes=tuple(map(cause_of, causes)), **job), folder)
    return folder


def truth(folder: Path) -> Any:
    return json.loads((folder / "truth.json").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_arguments_give_the_same_bytes_whatever_writes_them(tmp_path: Path) -> None:
    job = Job(
        ranks=6, steps=300, per_host=2, workers=1, poll=True,
        causes=(cause_of("rotating:5"), cause_of("gc:30:20")),
        clocks=JobClocks(2.0, 50.0, (Jump(1, 10**9, 10**7),), ((2, 500_000),)),
    )  # fmt: skip
    generate(job, tmp_path / "one", jobs=1)
    generate(job, tmp_path / "two", jobs=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(contents(tmp_path / "one")) == 13


def test_times_are_the_same_on_every_machine() -> None:
    # Of this seed, once and for all: no function of the C library decides a place of them.
    job = Job(ranks=6, steps=40, causes=(cause_of("sequence:30"),), poll=True)
    found = Timing(job).next(40)
    times = np.stack([found[name] for name in sorted(found)])
    digest = hashlib.sha256(times.astype("<i8").tobytes()).hexdigest()
    assert digest == "10d4c8686cb96515ebfd28f7f936765da75259826a454f9374f11cb96789dbda"


def test_an_option_more_leaves_what_others_draw(tmp_path: Path) -> None:
    plain, late = (
        Timing(Job(ranks=4, causes=causes)).next(5)["fetched"]
        for causes in ((), (cause_of("late-start:2:1"),))
    )
    assert (late[0] - plain[0]).tolist() == [0, 0, 10**9, 0]


LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {"workers": 2},
    "layers": {"tp": 2},
    "zstd": {"compression": "zstd"},
    "pipeline": {"pp": 2, "microbatches": 3, "compression": "none"},
    "both": {"tp": 2, "pp": 2, "microbatches": 3},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_reader_takes_what_is_made(tmp_path: Path, layout: str) -> None:
    given = dict(LAYOUTS[layout])
    compression = given.pop("compression", "gzip")
    causes = (cause_of("gc:20:7"), cause_of("checkpoint:50:5"))
    ranks = 8 if layout == "both" else 4
    job = Job(ranks=ranks, steps=12, per_host=2, causes=causes, **given)
    generate(job, tmp_path / "out", compression=compression)
    assert invoke("validate", tmp_path / "out").status == 0
    paths = sorted((tmp_path / "out").glob("*.pfw*"))
    for path in paths:
        read(path, ended="finalize")
    if compression != "zstd":  # which that engine does not read
        # Of one host: those of others have the same process numbers.
        agree([read(path) for path in paths if "node0000" in path.name])


FOUND = {
    "slow-rank:5:6": ("worker", [5]),
    "slow-host:1:20": ("node", [8, 9, 10, 11, 12, 13, 14, 15]),
    "loader:3:10": ("worker", [3]),
    "rotating:10": ("pauses", []),
    "sequence:30": ("data", []),
    "memory:5": ("memory", [5]),
}
SEEDS = {cause: seed for seed, cause in enumerate(FOUND, 11)}


@pytest.mark.parametrize("cause", FOUND)
def test_what_is_planted_is_found(tmp_path: Path, cause: str) -> None:
    folder = made(tmp_path / "out", cause, ranks=16, steps=150, seed=SEEDS[cause])
    kind, ranks = FOUND[cause]
    told = answer("ranks", folder)["findings"][0]
    assert (told["kind"], told["ranks"]) == (kind, ranks)


def test_stages_whose_ranks_share_layers_say_which_rank_is_where(tmp_path: Path) -> None:
    folder = made(tmp_path / "out", "stage:1:30", ranks=8, tp=2, pp=2, steps=60, seed=17)
    told = answer("ranks", folder)
    finding = told["findings"][0]
    assert (finding["kind"], finding["ranks"]) == ("stage", [4, 5, 6, 7])
    cost = truth(folder)["causes"][0]["cost_ns"] / truth(folder)["took_ns"]
    assert finding["cost"] == pytest.approx(cost, rel=0.2)
    place = next(rank for rank in told["by_rank"] if rank["rank"] == 7)["layout"]
    assert place == {"dp": 1, "pp": 1, "tp": 1}


@pytest.mark.parametrize("shape", [{}, {"per_host": 2, "workers": 1}, {"tp": 4}])
def test_nobody_is_accused_where_nothing_is_planted(tmp_path: Path, shape: dict[str, Any]) -> None:
    folder = made(tmp_path / "out", ranks=8, steps=120, seed=3, **shape)
    assert answer("ranks", folder)["findings"] == []
    assert "EVEN WORK GAINS LITTLE" in invoke("whatif", folder).out
    if "tp" not in shape:  # where communication is a tenth
        assert "COMPUTE-BOUND" in invoke("why", folder).out


@pytest.mark.parametrize(("tp", "pp", "microbatches"), [(2, 2, 1), (2, 2, 2), (2, 4, 1), (4, 2, 1)])
def test_what_a_pipeline_of_shared_layers_takes_without_its_slow_rank_is_told(
    tmp_path: Path, tp: int, pp: int, microbatches: int
) -> None:
    """Where several reduce as several share, too: all buckets are launched at one time."""
    shape = {"ranks": 16, "tp": tp, "pp": pp, "microbatches": microbatches}
    folder = made(tmp_path / "out", "slow-rank:3:8", steps=30, seed=3, **shape)
    told = answer("whatif", folder)
    assert (told["abstained"], told["negative_transfers"]) == ([], 0)
    assert (told["cause"]["kind"], told["cause"]["ranks"]) == ("worker", [3])
    took, cost = truth(folder)["took_ns"], truth(folder)["causes"][0]["cost_ns"]
    without = told["by_rank"]["3"]["without"]
    assert without == pytest.approx(took / (took - cost), abs=0.02)
    assert without < told["slowdown"] + 0.01


def test_the_truth_says_what_a_cause_costs(tmp_path: Path) -> None:
    folder = made(tmp_path / "out", "slow-rank:3:6", "dead:1:20", ranks=8, steps=50)
    told = truth(folder)
    slow, dead = told["causes"]
    assert (slow["ranks"], slow["steps"], slow["cost_ns"]) == ([3], 50, pytest.approx(3e8, rel=0.2))
    without = truth(made(tmp_path / "without", ranks=8, steps=50))
    assert told["took_ns"] - without["took_ns"] == slow["cost_ns"]
    assert (dead["ranks"], dead["steps"], dead["cost_ns"]) == ([1], 30, 0)
    faults = answer("validate", folder, status=1)["files"]
    told = {Path(file["path"]).name: file["fault_count"] for file in faults if file["faults"]}
    assert told == {"train-node0000-4100.pfw.gz": 1}


def test_clocks_show_what_they_are_asked_for() -> None:
    job = Job(ranks=6, per_host=2, clocks=JobClocks(2.0, 50.0, (Jump(1, 10**9, -(10**7)),)))
    for host in hosts_of(job):
        before, after = host.shown(np.array([0, 2 * 10**9])).tolist()
        ran = after - before - 2 * 10**9
        assert before - host.clock_offset_ns > 0
        assert abs(host.drift) <= 50e-6
        assert ran == round(host.drift * 2e9) - (10**7 if host.number == 1 else 0)


def test_info_tells_that_traces_are_made(tmp_path: Path) -> None:
    folder = made(tmp_path / "out", "memory:1", ranks=2, steps=3, seed=7)
    files = answer("info", folder)["files"]
    assert {file["generated"] for file in files} == {"seed 7, memory:1"}
    assert "2 files made by dftrace generate: seed 7, memory:1" in invoke("info", folder).out
    done = invoke("summary", folder)
    assert done.status == 0


REFUSED = {
    "--cause slow-rank:9:5": "--cause slow-rank:9:5: the last rank is 7",
    "--cause slow-rank:1.5:5": "--cause slow-rank takes R:MS",
    "--cause slow-rank:1": "--cause slow-rank takes R:MS",
    "--cause gc:5:0": "--cause gc takes MS:EVERY",
    "--cause memory:nan": "--cause memory takes R,",
    "--cause stage:1:5": "--cause stage:1:5 needs --pp",
    "--cause late:1:5": "--cause takes slow-rank:R:MS, ",
    "--tp 3": "--tp has to divide --ranks and --per-host",
    "--tp 2 --pp 8": "--pp, times --tp, has to divide --ranks",
    "--cause dead:1:101": "--cause dead:1:101: there are 100 steps",
    "--seed 9223372036854775808": "--seed takes a number from 0 to 2^63 - 1",
    "--step-clock 4:1:5": "the last host is 0",
    "--step-clock 1": "--step-clock takes HOST:AT_S:MS, not 1",
    "--late-host inf:5": "--late-host takes HOST:US, not inf:5",
    "--offset-s -1": "--offset-s takes seconds from 0",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_made_is_refused_in_a_line(tmp_path: Path, words: str) -> None:
    done = invoke("generate", tmp_path / "out", *words.split())
    assert done.status == 2
    assert REFUSED[words] in done.err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = invoke("generate", tmp_path, "--ranks", 1, "--steps", 1)
    assert (done.status, contents(tmp_path)) == (2, {"mine": b"x"})
    with pytest.raises(DftraceError, match="there are files in"):
        generate(Job(), tmp_path)


def test_ended_by_a_key_it_leaves_no_half_job_and_nobody_who_writes(tmp_path: Path) -> None:
    """Sent to the command alone, as by who did not start it in a terminal."""
    out = tmp_path / "out"
    words = ["generate", out, "--ranks", 8, "--steps", 10**6, "--jobs", 2]
    with subprocess.Popen([*COMMAND, *map(str, words)], env=clean_environment()) as process:
        wait_until(lambda: len(list(out.glob("train-*"))) == 8)
        writing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert len(writing) == 2
    assert not out.exists()
    assert not any(Path(f"/proc/{one}").exists() for one in writing)
