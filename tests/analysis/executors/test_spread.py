"""The same figures by other processes and by workers of Dask, in any order, whoever dies meanwhile."""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from analysis.executors.dying import Dying, turned
from analysis.executors.made_job import SLOW, made
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TraceLines
from safety.commands import invoke

from dftrace_ai._version import __version__
from dftrace_ai.analysis import ranks, why
from dftrace_ai.analysis.executors import Failed, Lot, Spread, dask_workers, processes
from dftrace_ai.analysis.executors.dask_workers import DaskWorkers, address_of
from dftrace_ai.analysis.executors.processes import Processes, beside
from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.ranks import packing, verdict
from dftrace_ai.analysis.ranks.job import keep_ranks, read_ranks
from dftrace_ai.analysis.ranks.verdict import judge_ranks
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.report import Run
from dftrace_ai.analysis.summary.indexing import index_traces
from dftrace_ai.analysis.summary.report import By, reported
from dftrace_ai.errors import ConfigError, DftraceError, TraceError
from dftrace_ai.interpreters import begun, clean_environment

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("job") / "out")


@pytest.fixture(scope="module", autouse=True)
def _whoever_is_busy_is_waited_for() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_workers, "ANSWER_S", 100.0)
        patch.setattr(dask_workers, "SILENT_S", 100.0)
        yield


class Shuffled:
    """Another room: lots are done here, in an order of their own, as workers' answers come."""

    workers = 2

    def __init__(self, seed: int, fails: Callable[[int], bool] = lambda _: False) -> None:
        self._random = random.Random(seed)
        self._fails = fails

    def as_completed(self, lots: list[Lot]) -> Generator[tuple[int, Any], None, None]:
        for at in self._random.sample(range(len(lots)), len(lots)):
            yield at, Failed("nobody could") if self._fails(at) else lots[at].done()


def said(value: Any) -> str:
    return json.dumps(asdict(value), default=str)


FORMS: tuple[By, ...] = ("name", "rank", "category", "step", "epoch", "tree", "thread")
SOME: tuple[By, ...] = ("category", "process", "tree")


def all_said(paths: Path, spread: Callable[[], Spread | None]) -> list[str]:
    """What each of those who read a job says of it, all of it."""
    return [
        said(why([paths], None, spread())),
        said(ranks([paths], None, spread())),
        *(said(reported([paths], by, spread=spread())) for by in FORMS),
        *(said(reported([paths], by, where="dur_us > 500", spread=spread())) for by in SOME),
        said(replace(Run([paths], spread=spread()).figures, made_at="")),
        repr(b"".join(gathered(open_traces([paths]).files, Asked(), spread=spread()).merged())),
    ]


def test_in_any_order_every_figure_is_the_one_of_one_process(job: Path):
    here = all_said(job, lambda: None)
    for seed in range(5):
        assert all_said(job, lambda: Spread(Shuffled(seed))) == here
    assert f'"ranks": [{SLOW}]' in here[0]


class Remembering(Shuffled):
    """Notes before each lot how much of what it has given before somebody still holds."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.held: list[int] = []

    def as_completed(self, lots: list[Lot]) -> Generator[tuple[int, Any], None, None]:
        given: list[weakref.ref[Any]] = []
        for at, outcome in super().as_completed(lots):
            self.held.append(sum(one() is not None for one in given))
            partials = [one.partial for of_owner in outcome for _, one in of_owner.said]
            given += [weakref.ref(one.chunks) for one in partials if one is not None]
            del partials
            yield at, outcome


def test_tensors_and_lines_of_the_program_too(tmp_path: Path) -> None:
    """Values that end and begin with each rank, stacks that ranks have in common, ends that are torn."""
    for rank in range(5):
        trace = TraceLines(100 + rank, rank=rank, world_size=5)
        stacks = MadeStacks(trace, 0)
        for step in (2, 0, 1):
            at = step * 100_000_000
            about = {"iteration": step, "rank": rank, "feature": "stats", "n": 10}
            broken = rank == 3 and step == 1
            values = {"max": None, "max_str": "nan"} if broken else {"max": step + 0.5 - rank}
            args = {**about, **values, f"of_{rank % 2}": -1.0}
            trace.event("i", "fc:input", "tensor_stats", at, more=',"s":"t"', **args)
        for number in range(60):
            own = ("augment", "/run/t.py", 6 + (rank + number) % 3)
            stacks.sample(number * 20_000_000, [("main", "/run/t.py", 40), own], cpu_us=777 * rank)
        stacks.end()
        trace.footer()
        path = trace.write(tmp_path / f"t-{rank}.pfw.gz")
    path.write_bytes(path.read_bytes()[:-30])
    for by, where in (("tensor", None), ("tensor", "args.rank < 2"), ("line", None)):
        here = reported([tmp_path], by, where=where)
        assert len(here.tensors or here.lines or ()) >= 3
        for seed in range(3):
            there = reported([tmp_path], by, where=where, spread=Spread(Shuffled(seed)))
            assert said(there) == said(here)


def test_what_others_have_read_of_a_rank_does_not_wait_in_memory_for_the_last(
    job: Path, monkeypatch: pytest.MonkeyPatch
):
    here = said(ranks([job]))
    monkeypatch.setattr(packing, "MOST_IN_MEMORY", 0)
    room = Remembering(0)
    assert said(ranks([job], None, Spread(room))) == here
    assert len(room.held) > 4
    # Of the last lot, which is at hand yet.
    assert max(room.held) <= 2


def test_a_process_beside_this_one_reckons_own_work(job: Path, monkeypatch: pytest.MonkeyPatch):
    """It reads what ranks say from a file without a name, which this process has."""
    here = said(ranks([job]))

    def not_here(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(verdict, "FEWEST_BESIDE", 0)
    monkeypatch.setattr(verdict, "lateness_of", not_here)
    monkeypatch.setattr(packing, "MOST_IN_MEMORY", 0)
    found = read_ranks(open_traces([job]), spread=Spread(Shuffled(0)))
    assert len(found.files) == 1
    assert said(judge_ranks(found, None, 2)) == here


def test_what_kills_every_process_beside_this_one_is_made_here(tmp_path: Path):
    with beside(Dying(ord, tmp_path, 3), "a") as coming:
        assert coming() == ord("a")
    assert len([*tmp_path.iterdir()]) == 3


def test_where_others_decide_who_is_a_rank_the_host_is_read_as_a_whole(tmp_path: Path):
    """Passes alone make no rank where others have steps, and all are ranks where none has."""
    some = made(tmp_path / "some", passes_only=(3, 4, 5))
    none = made(tmp_path / "none", passes_only=tuple(range(6)))
    for paths in (some, none):
        assert all_said(paths, lambda: Spread(Shuffled(1))) == all_said(paths, lambda: None)


def test_what_nobody_could_read_is_refused_or_told(job: Path):
    with pytest.raises(
        TraceError, match=r"could not be read \(not done: nobody could: .*--partial"
    ):
        why([job], None, Spread(Shuffled(0, lambda at: at == 0)))
    spread = Spread(Shuffled(0, lambda at: at == 0), partial=True)
    report = reported([job], spread=spread)
    assert "not done: nobody could" in report.warnings[0]
    assert "8 of 9 processes are in these figures" in report.warnings[1]
    assert len(report.files) == 8
    for by in ("step", "tree"):
        spread = Spread(Shuffled(0, lambda at: at == 0), partial=True)
        report = reported([job], by, spread=spread)
        # Two of them went together.
        assert "7 of 9 processes are in these figures" in report.warnings[1]
        assert len(report.files) == 7
        with pytest.raises(TraceError, match="--partial"):
            reported([job], by, spread=Spread(Shuffled(0, lambda at: at == 0)))
    spread = Spread(Shuffled(0, lambda at: at == 0), partial=True)
    assert "not done" in why([job], None, spread).notes[0]


def test_a_process_that_dies_is_replaced_and_one_lot_that_kills_all_is_named(
    job: Path, tmp_path: Path
):
    here = said(why([job]))
    for times, partial in ((1, False), (3, True)):
        marks = tmp_path / str(times)
        marks.mkdir()
        with Processes(1) as executor:
            spread = Killing(executor, partial=partial)
            spread.marks, spread.times = marks, times
            verdict = why([job], None, spread)
        assert len([*marks.iterdir()]) == times
        if partial:
            assert "not done: 3 processes died over it: " in verdict.notes[0]
        else:
            assert said(verdict) == here


def test_whose_command_is_killed_ends_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    lot = pickle.dumps(Lot(os.path.basename, ("a/b",), ()))
    pipe = subprocess.PIPE
    # What is left of its pipes: a lot that nobody waits for, and a part of one.
    left = [
        (begun(processes.__name__, "serve", (), pipe, given=pipe), given)
        for given in (lot, lot[:-5])
    ]
    for process, given in left:
        assert process.stdin
        assert process.stdout
        process.stdout.close()
        process.stdin.write(given)
        process.stdin.close()
    assert [process.wait() for process, _ in left] == [0, 0]
    assert capfd.readouterr().err == ""


class Vanishing(Processes):
    """A file is gone when the work begins."""

    gone: Path

    def as_completed(
        self, lots: Sequence[Lot]
    ) -> Generator[tuple[int, list[object] | Failed], None, None]:
        self.gone.unlink()
        return super().as_completed(lots)


def test_a_file_that_vanishes_is_skipped_as_it_is_without_others(job: Path, tmp_path: Path):
    copy = shutil.copytree(job, tmp_path / "out")
    with Vanishing(1) as executor:
        executor.gone = open_traces([copy]).files[3].path
        report = reported([copy], "thread", spread=Spread(executor))
    assert report.warnings == (
        f"skipped: {executor.gone}: cannot be read: No such file or directory",
    )
    rest = reported([copy], "thread")
    assert (report.files, report.tree) == (rest.files, rest.tree)


def test_what_a_command_cannot_do_with_others_is_said(job: Path):
    for words, message in (
        (["why", "--jobs", "2", "--dask", "local:2"], "--jobs and --dask cannot be given together"),
        (
            ["why", "--dask", "node0"],
            "--dask node0: it is written as --dask tcp://node0:8786",
        ),
        (
            ["why", "--dask", "local:0"],
            "--dask local:0: it is written as --dask tcp://node0:8786",
        ),
        (
            ["why", "--dask-file", "none.json"],
            "--dask-file none.json: there is no such file",
        ),
    ):
        done = invoke(*words, job)
        assert done.status == 2
        assert message in " ".join(done.err.replace("│", "").split())
    done = invoke("summary", "--dask", "tcp://node0:8786", job)
    assert done.status == 0
    assert "Dask is not used: about 0 s of work here; --dask-always" in done.err


def test_an_address_that_is_none_is_told_before_anything_begins(tmp_path: Path):
    file = tmp_path / "scheduler.json"
    for content, message in (
        ("{", "it is no file that a scheduler of Dask wrote"),
        ("[]", "it is no file that a scheduler of Dask wrote"),
        ('{"address": 5}', "the address in it is 5, and not"),
        ('{"address": "inproc://a:1"}', 'the address in it is "inproc://a:1", and not'),
    ):
        file.write_text(content)
        with pytest.raises(DftraceError, match=f"^--dask-file {file}: {message}"):
            address_of(None, str(file))
    for address in ("inproc://a:1", "http://node0:80", "ucx://h:1", "tcp://h", "tcp://h:65536"):
        with pytest.raises(ConfigError, match=f"--dask {address}: it is written as"):
            address_of(address)
    for address in ("tls://node0:8786", "tcp://[fd00::1]:8786", "local:4"):
        assert address_of(address) == address


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_who_accepts_and_says_nothing_is_no_scheduler(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(dask_workers, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DftraceError, match=f"no scheduler of Dask answers at {address}: "):
            DaskWorkers(address)
        gc.collect()  # a client that was left behind would wait here, and complain


class Killing(Spread):
    """Whose work ends the process that comes to it first."""

    marks: Path
    times = 1

    def each(self, call: Any, pieces: Any) -> Any:
        return super().each(Dying(call, self.marks, self.times), pieces)


class Cluster(NamedTuple):
    """A scheduler and two workers, by the file of the scheduler and as processes."""

    file: Path
    processes: Sequence[subprocess.Popen[bytes]]

    def told_by(self, paths: Path) -> list[str]:
        """What a command tells of its workers while it reads."""
        told: list[str] = []
        with DaskWorkers(None, str(self.file), says=told.append) as executor:
            reported([paths], spread=Spread(executor))
        return told


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers, each a process, as people start them by hand."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    environment = {**clean_environment(), "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    local = ("--host", "127.0.0.1")
    scheduler = ("dask_scheduler", "--port", "0", *local, "--no-dashboard")
    worker = ("dask_worker", "--no-nanny", "--nthreads", "1", *local, "--no-dashboard")
    worker = (*worker, "--local-directory", str(folder), "--death-timeout", "100")
    processes = []
    try:
        for module, *words in (scheduler, worker, worker):
            command = [sys.executable, "-m", f"distributed.cli.{module}", *words]
            command += ["--scheduler-file", str(file)]
            with (folder / f"{len(processes)}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
                )
        while not (file.exists() and file.read_bytes()):
            assert processes[0].poll() is None
            time.sleep(0.05)
        yield Cluster(file, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def stopped(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def workers(cluster: Cluster) -> Iterator[DaskWorkers]:
    with DaskWorkers(None, str(cluster.file), says=lambda _: None) as executor:
        executor._client.wait_for_workers(2, timeout=100)
        yield executor


def test_workers_of_dask_say_the_same_bits(workers: DaskWorkers, job: Path, tmp_path: Path):
    assert workers.workers == 2
    assert all_said(job, lambda: Spread(workers)) == all_said(job, lambda: None)
    by_hand = shutil.copytree(job, tmp_path / "by_hand")
    traces = open_traces([by_hand])

    def written(spread: Spread | None) -> dict[str, bytes]:
        assert {one.state for one in index_traces(traces, spread)} == {"made"}
        assert keep_ranks(traces, spread).left_out == ()
        files = [path for path in by_hand.iterdir() if path.suffix in {".dfindex", ".dfrank"}]
        content = {path.name: path.read_bytes() for path in files}
        for path in files:
            path.unlink()
        return content

    here = written(None)
    assert len(here) > 12
    assert written(Spread(workers)) == here


def test_workers_that_are_of_no_use_are_told_of(workers: DaskWorkers, cluster: Cluster, job: Path):
    """One of another version, one without the reader; and where all are, nothing is answered."""
    one, other = workers._there()
    run = workers._client.run
    opened = os.open(job, os.O_RDONLY)
    try:
        run(turned, "0.0.9", workers=[one])
        told = cluster.told_by(job)
        assert told == [f"worker {one} has dftrace_ai 0.0.9, and not {__version__}: left out"]
        run(turned, __version__, has_reader=False, workers=[other])
        with pytest.raises(DftraceError, match="no worker of .* is of use"):
            cluster.told_by(job)
        run(turned, __version__)
        # What this process alone has open is not there for others.
        with pytest.raises(DftraceError, match="no worker of .* is of use"):
            cluster.told_by(Path(f"/proc/self/fd/{opened}"))
        assert cluster.told_by(job) == []
    finally:
        os.close(opened)


def test_who_is_stopped_is_not_waited_for_without_end(
    workers: DaskWorkers, cluster: Cluster, job: Path, monkeypatch: pytest.MonkeyPatch
):
    """Workers are left out and told of; a scheduler that says nothing ends the work."""
    scheduler, *others = cluster.processes
    told: list[str] = []
    with monkeypatch.context() as patch, stopped(*others):
        patch.setattr(dask_workers, "SILENT_S", 0.1)
        with (
            DaskWorkers(None, str(cluster.file), says=told.append) as executor,
            pytest.raises(DftraceError, match="no worker of .* is of use"),
        ):
            reported([job], spread=Spread(executor))
    assert "each of 2 workers, tcp://127.0.0.1:" in told[0]
    assert told[0].endswith(" the first, does not answer for 0.1 s: left out")
    with DaskWorkers(None, str(cluster.file)) as executor:
        monkeypatch.setattr(dask_workers, "ANSWER_S", 0.1)
        with stopped(scheduler):
            with pytest.raises(
                DftraceError, match=r"the scheduler at .* does not answer for 0.1 s"
            ):
                reported([job], spread=Spread(executor))
            executor.__exit__()


@pytest.mark.usefixtures("workers")
def test_a_worker_killed_in_the_middle_leaves_the_rest_to_others(
    cluster: Cluster, job: Path, tmp_path: Path
):
    with DaskWorkers(None, str(cluster.file), says=lambda _: None) as executor:
        spread = Killing(executor)
        spread.marks = tmp_path
        assert said(why([job], None, spread)) == said(why([job]))
        assert executor.workers == 1
