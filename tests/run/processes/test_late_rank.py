"""A rank that no launcher tells: process groups know it, when the run is on, and all readers have it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import LEAN_ENDS, RunScript, clean_environment, read_all, trace_files
from safety.commands import invoke

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.trace_facts import facts_of


@contextmanager
def _group(rank: int, size: int) -> Iterator[None]:
    """A process group of torch's own, of which this process is all that is there."""
    dist = pytest.importorskip("torch.distributed")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", rank=rank, world_size=size, store=fake.FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _ranks(folder: Path) -> list[tuple[int | None, int | None]]:
    return [(one.rank, one.world_size) for one in facts_of([folder]).files]


def _process_names(folder: Path) -> list[str]:
    (trace,) = open_traces([folder])
    lines = (json.loads(line) for text in trace.reader().texts() for line in text.splitlines()[1:])
    return [line["args"]["name"] for line in lines if line["name"] == "process_name"]


def test_the_first_group_of_all_ranks_tells_the_rank(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        with ai.compute.forward:
            pass
        with _group(3, 8):
            pass
        with _group(1, 4), ai.compute.forward:
            pass
    (trace,) = read_all(trace_files(tmp_path))
    assert "rank" not in trace.header
    assert ("rank", "3 of 8") in trace.marks
    assert (trace.footer["rank"], trace.footer["world_size"]) == (3, 8)
    assert _ranks(tmp_path) == [(3, 8)]
    # Viewers call it by the last of its names.
    assert [name.partition(" · ")[0] for name in _process_names(tmp_path)] == ["python", "rank 3"]
    assert invoke("validate", tmp_path).status == 0


def test_a_file_that_is_not_closed_tells_it_by_its_line(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", compression="none"), _group(3, 8):
        with ai.compute.forward:
            pass
    (whole,) = trace_files(tmp_path)
    torn = tmp_path / "torn" / "u-host-1.pfw"
    torn.parent.mkdir()
    *lines, _ = whole.read_bytes().splitlines(keepends=True)
    torn.write_bytes(b"".join(lines))
    (trace,) = open_traces([torn])
    assert trace.end.footer is None
    assert trace.header is not None
    assert (trace.header.rank, trace.header.world_size) == (3, 8)


def test_all_parts_are_of_the_rank_that_the_last_one_knows(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_file_bytes": 64 * 1024, "compression": "none"}
    with dftrace_ai.tracing(log_file=tmp_path / "t", **settings) as run:
        for _ in range(1000):
            with ai.compute.forward:
                pass
        run.flush()
        with _group(3, 8):
            for _ in range(1000):
                with ai.compute.forward:
                    pass
    traces = open_traces([tmp_path])
    assert len(traces) > 3
    (owner,) = traces.owners.all
    assert (owner.header.rank, len(owner.files)) == (3, len(traces))
    assert {trace.said.rank for trace in traces} == {3}


def test_by_hand_behind_the_group(tmp_path: Path) -> None:
    with _group(3, 8), dftrace_ai.tracing(log_file=tmp_path / "t"), ai.compute.forward:
        pass
    (trace,) = read_all(trace_files(tmp_path))
    assert (trace.header["rank"], trace.header["world_size"]) == (3, 8)
    assert trace.process_name.startswith("rank 3 · ")


@pytest.mark.parametrize(
    ("environ", "settings", "group", "found"),
    [
        # One task a node, which starts a process for each of its cards.
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}, {}, (11, 16), (11, 16)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, {}, (11, 16), (11, 16)),
        # A group of some of the job's ranks.
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "5"}, {}, (1, 2), (5, 8)),
        ({}, {"rank": 2, "world_size": 4}, (3, 8), (2, 4)),
    ],
    ids=["node of slurm", "node", "some ranks", "given"],
)
def test_whom_to_believe(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    settings: dict[str, int],
    group: tuple[int, int],
    found: tuple[int, int],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    given: dict[str, Any] = settings
    with dftrace_ai.tracing(log_file=tmp_path / "late" / "t", **given), ai.compute.forward:
        with _group(*group):
            pass
    with _group(*group), dftrace_ai.tracing(log_file=tmp_path / "early" / "t", **given):
        with ai.compute.forward:
            pass
    for folder in (tmp_path / "late", tmp_path / "early"):
        assert _ranks(folder) == [found]


# Ranks that nobody but their group knows, forked as Lightning's launchers do it.
RANKS = """
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=3)
    for step in range(3):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters())
        model(torch.ones(4)).sum().backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        sys.exit(7)


if __name__ == "__main__":
    torch.set_num_threads(1)
    processes = [mp.get_context("fork").Process(target=work, args=(rank,)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""


def test_ranks_that_no_launcher_tells(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(RANKS)
    line = [sys.executable, "-m", "dftrace_ai", "run", "--quiet", "-o", "out", "train.py"]
    subprocess.run(line, cwd=tmp_path, env=clean_environment() | LEAN_ENDS, check=True, timeout=300)
    told = json.loads(invoke("ranks", tmp_path / "out", "--json").out)
    assert told["ranks"] == {"world": 3, "seen": 3, "missing": []}
    ended = "ended: rank 2 by exit status 7 after step 2; rank 1 killed, or by os._exit"
    assert any(note.startswith(ended) for note in told["notes"])
    assert f"{ended} after step 2" in invoke("info", tmp_path / "out").err
    stood = invoke("stuck", tmp_path / "out").err
    assert "rank 2 ended by exit status 7 after step 2" in stood
    assert "rank 1 died in no span" in stood
    merged = tmp_path / "merged.json"
    assert invoke("merge", tmp_path / "out", "-o", merged).status == 0
    assert b'"rank 2' in merged.read_bytes()
    assert b" \xc2\xb7 worker" not in merged.read_bytes()


# Ranks that are spawned, where the program is imported before the child is one; one is terminated
# when it is leaving already, as torch terminates the others of one that has failed.
SPAWNED = """
import atexit, multiprocessing, os, signal, sys
import dftrace_ai
from dftrace_ai import ai


def load():
    with ai.data.item:
        pass


def work(rank):
    import torch.distributed as dist

    atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    with ai.compute.forward:
        pass
    for way in ("fork", "spawn"):
        worker = multiprocessing.get_context(way).Process(target=load)
        worker.start()
        worker.join()
    sys.exit(5)


if __name__ == "__main__":
    dftrace_ai.initialize(log_file="out/t")
    ranks = [multiprocessing.get_context("spawn").Process(target=work, args=(i,)) for i in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    assert [one.exitcode for one in ranks] == [-signal.SIGTERM] * 2
"""


def test_spawned_ranks_that_are_terminated_on_their_way_out(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SPAWNED)
    line = [sys.executable, "train.py"]
    subprocess.run(line, cwd=tmp_path, env=clean_environment() | LEAN_ENDS, check=True, timeout=300)
    # Each rank, and the workers that it has forked and spawned.
    assert sorted(_ranks(tmp_path / "out")) == [(0, 2)] * 3 + [(1, 2)] * 3
    # Whichever has ended first is told first.
    (told,) = re.findall(r"ended: (.*)\n", invoke("info", tmp_path / "out").err)
    assert sorted(told.split("; ")) == [f"rank {rank} by exit status 5" for rank in range(2)]


# Seen from other hosts by a file, which the one that spawns has none of.
ELSEWHERE = """
import multiprocessing, time
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai


def work(ends):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with ai.data.item:
        pass
    if not ends:
        dist.init_process_group("fake", rank=2, world_size=4, store=FakeStore())
    with ai.compute.forward:
        while not ends and not any(Path("out").glob("*.live")):
            time.sleep(0.01)
    print(*(path.name for path in Path("out").glob("*.live")))


if __name__ == "__main__":
    dftrace_ai.initialize(log_file="out/t", live_file_s=0.01)
    for ends in (True, False):
        one = multiprocessing.get_context("spawn").Process(target=work, args=(ends,))
        one.start()
        one.join()
        print(one.pid)
"""


def test_a_spawned_rank_is_seen_from_other_hosts_and_a_worker_is_not(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(ELSEWHERE)
    line = [sys.executable, "train.py"]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env=clean_environment() | LEAN_ENDS,
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    nothing, _, name, pid = done.stdout.splitlines()
    assert nothing == ""
    assert f"-{pid}." in name


EXITS = """
import os, sys
import dftrace_ai
from dftrace_ai import ai
dftrace_ai.initialize(compression=os.environ["HOW"])
with ai.compute.forward:
    pass
if len(sys.argv) > 2:
    dftrace_ai.finalize()
raise SystemExit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["gzip", "zstd", "none"])
def test_by_which_status_a_program_exits(run_script: RunScript, how: str) -> None:
    odd = [(["300"], 44), (["-1"], 255)] if how == "gzip" else []
    for words, status in ((["7"], 7), (["7", "first"], 7), *odd):
        folder = run_script(EXITS, args=words, env={"HOW": how}, status=status).folder
        (trace,) = open_traces([folder])
        footer = trace.end.footer
        assert trace.end.state == "complete"
        assert footer is not None
        assert (footer.ended, footer.exit_status) == (
            "finalize" if len(words) > 1 else "exit",
            status,
        )
        assert f"ended: the program by exit status {status}" in invoke("info", folder).err
        assert invoke("validate", folder).status == 0
    folder = run_script(EXITS, args=["0"], env={"HOW": how}).folder
    (trace,) = open_traces([folder])
    assert trace.end.footer is not None
    assert trace.end.footer.exit_status is None


SPOILT = EXITS.replace("raise SystemExit", """
from pathlib import Path
(trace,) = Path(os.environ["DFTRACE_LOG_FILE"]).parent.glob("*.pfw")
if sys.argv[2] == "longer":
    with trace.open("ab") as file:
        file.write(b"]\\n")
else:
    trace.rename(trace.with_suffix(".old"))
    trace.write_bytes(trace.with_suffix(".old").read_bytes())
raise SystemExit""")  # fmt: skip


@pytest.mark.parametrize("change", ["longer", "another"])
def test_a_file_that_somebody_has_changed_is_left_alone(run_script: RunScript, change: str) -> None:
    outcome = run_script(SPOILT, args=["7", change], env={"HOW": "none"}, status=7)
    (file,) = outcome.folder.glob("*.pfw")
    assert b"exit_status" not in file.read_bytes()
