"""Trainings with torch below `dftrace run`, of which no line knows of tracing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import DIGITS_ALONE, clean_environment, read_all, trace_files
from docs.pages import EXAMPLES
from integrations.frameworks.shown import shows_what_is_recorded
from live.programs import LIMIT_S, dftrace, until

from dftrace_ai.errors import TraceError
from dftrace_ai.live import find_stuck, snapshot
from launching import TELLING

pytest.importorskip("torch.distributed")

# The program of the page, of which rank 1 is late with the first item of its third step.
JOB = """
import runpy
import sys
import time
from pathlib import Path
import torch.distributed as dist
import torch.utils.data

class Late(torch.utils.data.TensorDataset):
    count = 0
    def __getitem__(self, item):
        Late.count += 1
        if Late.count == 8 * 16 + 1 and dist.get_rank() == 1:
            Path("late").touch()
            while not Path("go").exists():
                time.sleep(0.001)
        return super().__getitem__(item)

torch.set_num_threads(1)
torch.utils.data.TensorDataset = Late
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def waits(folder: Path) -> bool:
    """Whether rank 0 is in a collective of its third step, and rank 1 fetches an item for it."""
    try:
        processes = snapshot([folder]).processes
    except TraceError:
        return False
    inner = {
        process.rank: {
            span.name for thread in process.threads for span in (*thread.open, *thread.tasks)
        }
        for process in processes
        if process.step == 2
    }
    return "all_reduce" in inner.get(0, ()) and "item" in inner.get(1, ())


def test_a_job_of_torchrun_and_the_rank_that_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JOB)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")
    meeting = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
    words = ("-o", "out", "--", *torchrun, *meeting, "train.py", EXAMPLES / "digits_ddp.py")
    process = subprocess.Popen(
        [*TELLING, *words],
        cwd=tmp_path,
        env={
            **clean_environment(),
            **DIGITS_ALONE,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: process.poll() is not None or (tmp_path / "late").exists(), bool)
        until(lambda: process.poll() is not None or waits(tmp_path / "out"), bool)
        (job,) = find_stuck(snapshot([tmp_path / "out"]), 0.0).jobs
        causes = {one.label: one.cause for one in job.findings}
        assert causes == {"rank 0": "", "rank 1": "the others wait for it in comm.all_reduce"}
        told = dftrace("stuck", "--idle", "0", tmp_path / "out")
        assert told.status == 1
        assert "rank 0 in comm.all_reduce" in told.out
        assert "rank 1 in data.item" in told.out
        (tmp_path / "go").touch()
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    # One says it for all ranks: who has started the one that does.
    *_, head, said_last = (line for line in said.splitlines() if line.startswith("dftrace"))
    assert said.count("dftrace: ") == head.count("dftrace: ") + said_last.count("dftrace: ") == 2
    assert said_last == "dftrace: trace in out; next: dftrace why, view, ui"
    # The ranks are one run, though torchrun has no name for it, and what started them has no trace.
    traces = read_all(trace_files(tmp_path / "out"))
    assert sorted(trace.header["rank"] for trace in traces) == [0, 1]
    assert len({trace.header["run"] for trace in traces}) == 1
    for trace in traces:
        steps = [
            span.args["step"]
            for span in trace.spans
            if span.name == "step" and span.cat == "pipeline"
        ]
        assert steps == [0, 1, 2, 3, 4, 5]
    shows_what_is_recorded("ddp", "ddp", tmp_path / "out")
