"""What is seen of running processes, how many events a second they record, and of dead ones."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from safety.commands import invoke

from dftrace_ai import _native
from dftrace_ai.errors import TraceError
from dftrace_ai.live import Observer, RankStatus, ThreadStatus, snapshot
from dftrace_ai.live.observer import rank_status
from live.programs import PREAMBLE, dftrace, program, until


def labels(process: RankStatus) -> list[str]:
    return [span.label for span in process.place]


def only(folder: Path) -> RankStatus:
    """The process that records there; of what it did nothing is too long ago on a busy machine."""
    (process,) = snapshot([folder], window_s=3600.0).processes
    return process


def test_a_process_shows_where_it_is_and_what_it_has_done(tmp_path: Path) -> None:
    source = """
        with dftrace_ai.tracing(rank=3, world_size=8):
            with ai.pipeline.train:
                for epoch in ai.pipeline.epoch.iter(range(2)):
                    ai.update(epoch=epoch, step=41)
                    with ai.compute.forward:
                        pass
                    with ai.compute.backward(step=42, tensor="x"):
                        done()
    """
    with program(source, tmp_path) as running:
        seen = only(tmp_path)
        assert (seen.pid, seen.state, seen.rank, seen.world_size) == (running.pid, "alive", 3, 8)
        assert labels(seen) == ["pipeline.train", "pipeline.epoch.block", "compute.backward"]
        assert seen.place[-1].args == {"epoch": 0, "step": 42, "tensor": "x"}
        assert (seen.epoch, seen.step) == (0, 42)
        (main,) = seen.threads
        assert (main.tid, main.name, main.depth) == (running.pid, "MainThread", 3)
        assert main.records == 2
        assert main.events == 2
        assert set(main.self_s) == {"pipeline", "compute"}
        assert sum(main.self_s.values()) <= main.covered_s
        assert seen.started_ns is not None
        assert seen.started_ns < main.place[0].start_ns < main.place[-1].start_ns < seen.seen_ns
        assert main.last_ns is not None
        assert seen.quiet_s(main) == (seen.seen_ns - main.place[-1].start_ns) / 1e9
        running.go_on()
        running.wait_until_ready()
        again = only(tmp_path)
        assert (again.epoch, again.step, again.run) == (1, 42, seen.run)
        assert again.threads[0].records > main.records


def test_the_body_of_a_loop_is_not_charged_to_the_loader(tmp_path: Path) -> None:
    source = """
        from dftrace_ai import dft_fn
        from dftrace_ai.run.emitting import complete_between, ticks

        def waiting():
            done("waits")
            yield 1

        dftrace_ai.initialize()
        begun = ticks()
        for _ in ai.dataloader.fetch.iter([1], include_iter=False):
            done("fetch")
        for _ in dft_fn("storage").iter([1], name="scan"):
            done("scan")
        for _ in ai.dataloader.fetch.iter(waiting(), include_block=False):
            pass
        # As `auto` tells of steps and epochs, and torch of collectives.
        for name, cat in (("epoch", "pipeline"), ("step", "pipeline"), ("all_reduce", "comm")):
            complete_between(name, begun, ticks(), category=cat, track=name)
        done("lanes")
    """

    def main_thread() -> ThreadStatus:
        (seen,) = snapshot([tmp_path], window_s=3600.0).processes
        (main,) = seen.threads
        return main

    with program(source, tmp_path) as running:
        main = main_thread()
        assert [span.label for span in main.place] == ["dataloader.fetch.block"]
        assert main.self_s == {}
        assert main.unannotated_s == main.covered_s > 0
        told = dftrace("top", "--once", tmp_path)
        assert "100% not annotated" in told.out, told
        assert "dataloader" not in told.out
        told = dftrace("stuck", "--idle", "0", tmp_path)
        assert " in the body of dataloader.fetch for " in told.out, told
        running.go_on()
        running.wait_until_ready()
        main = main_thread()
        assert [span.label for span in main.place] == ["storage.scan.yield"]
        assert set(main.self_s) == {"storage"}, "the wait for the item"
        assert main.self_s["storage"] + main.unannotated_s == pytest.approx(main.covered_s)
        running.go_on()
        running.wait_until_ready()
        main = main_thread()
        assert [span.label for span in main.place] == ["dataloader.fetch.iter"]
        assert set(main.self_s) == {"storage", "dataloader"}
        assert " in dataloader.fetch.iter " in dftrace("stuck", "--idle", "0", tmp_path).out
        running.go_on()
        running.wait_until_ready()
        main = main_thread()
        assert set(main.self_s) == {"storage", "dataloader", "comm"}, "steps beside the thread"
        assert main.unannotated_s > 0


def test_the_newest_step_counts_wherever_it_stands(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        with ai.pipeline.train(step=1):
            done()
            with ai.compute.forward(step=2):
                pass
            done()
            with ai.comm.all_reduce(step=3):
                done()
    """
    with program(source, tmp_path) as running:
        steps = [only(tmp_path).step]
        for _ in range(2):
            running.go_on()
            running.wait_until_ready()
            steps.append(only(tmp_path).step)
    assert steps == [1, 2, 3]


def test_every_thread_shows_its_own_spans(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        inside = threading.Barrier(3)

        def work(node):
            with ai.data.item, node:
                inside.wait()
                threading.Event().wait()

        for node in (ai.data.preprocess, ai.checkpoint.capture):
            threading.Thread(target=work, args=(node,), name=node.name, daemon=True).start()
        with ai.pipeline.train:
            inside.wait()
            done()
    """
    with program(source, tmp_path) as running:
        seen = only(tmp_path)
        assert seen.main is seen.threads[0]
        assert labels(seen) == ["pipeline.train"]
        assert {thread.name: [span.label for span in thread.place] for thread in seen.threads} == {
            "MainThread": ["pipeline.train"],
            "preprocess": ["data.item", "data.preprocess"],
            "capture": ["data.item", "checkpoint.capture"],
        }
        assert seen.threads[0].tid == running.pid


def test_tasks_of_an_event_loop_show_their_spans(tmp_path: Path) -> None:
    source = """
        import asyncio
        dftrace_ai.initialize()

        async def item(n, inside):
            with ai.data.item(step=n):
                inside.set()
                await asyncio.Event().wait()

        async def main():
            with ai.pipeline.train:
                for n in range(3):
                    inside = asyncio.Event()
                    task = asyncio.create_task(item(n, inside))
                    await inside.wait()
                    keep.append(task)
                done()

        keep = []
        with ai.pipeline.test:
            asyncio.run(main())
    """
    with program(source, tmp_path):
        seen = only(tmp_path)
        (thread,) = seen.threads
        assert [span.label for span in thread.open] == ["pipeline.test"]
        assert [span.label for span in thread.tasks] == ["pipeline.train"] + ["data.item"] * 3
        # The task that began last, and the span in which it was made.
        assert labels(seen) == ["pipeline.test", "pipeline.train", "data.item"]
        assert seen.step == 2


def test_deep_recursion_is_counted(tmp_path: Path) -> None:
    source = """
        from contextlib import ExitStack
        dftrace_ai.initialize()
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(ai.compute.forward)
            done()
    """
    with program(source, tmp_path):
        (thread,) = only(tmp_path).threads
        assert (thread.depth, len(thread.open), len(thread.place)) == (300, 240, 240)


def test_loader_workers_are_known_as_such(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 4
            @ai.data.item
            def __getitem__(self, index):
                if index == 3:
                    threading.Event().wait()
                return index

        dftrace_ai.initialize(rank=0, world_size=1)
        with ai.pipeline.train:
            print("ready", flush=True)
            for batch in ai.dataloader.fetch.iter(DataLoader(Numbers(), num_workers=2)):
                pass
    """
    with program(source, tmp_path) as running:

        def all_wait(processes: list[RankStatus]) -> bool:
            return {(p.worker, p.place[-1].label) for p in processes if p.place} == {
                (False, "dataloader.fetch.iter"),
                (True, "data.item"),
            }

        seen = until(lambda: snapshot([tmp_path]).processes, all_wait)
        (worker,) = [process for process in seen if process.worker and process.place]
        assert worker.label == f"worker {worker.pid} of rank 0"
        assert worker.parent_pid == running.pid


def test_a_killed_process_shows_its_last_moment(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize(rank=1)
        ai.pipeline.train.start()
        with ai.compute.forward(step=5):
            pass
        ai.comm.all_reduce.start()
        done()
    """
    with program(source, tmp_path) as running:
        alive = only(tmp_path)
        running.kill()
        dead = only(tmp_path)
    assert (alive.state, dead.state) == ("alive", "dead")
    assert labels(dead) == labels(alive) == ["pipeline.train", "comm.all_reduce"]
    assert dead.step == 5
    assert dead.place[-1].start_ns <= dead.seen_ns < dead.present_ns
    assert dead.dead_s() > 0
    # It was only looked at: the next command that reads the directory completes its trace.
    assert [path.name for path in tmp_path.glob("*.spool-at")]


def marker_in(folder: Path) -> Path:
    """The marker of the process that traces there, once it is written."""
    return until(lambda: list(folder.glob("*.spool-at")), bool)[0]


def test_a_process_without_a_marker_is_seen(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        ai.comm.all_reduce.start()
        done()
    """
    with program(source, tmp_path):
        marker_in(tmp_path).unlink()
        assert labels(only(tmp_path)) == ["comm.all_reduce"]


def test_a_marker_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        ai.comm.all_reduce.start()
        done()
    """
    with program(source, tmp_path / "out"):
        marker = marker_in(tmp_path / "out")
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / marker.name).symlink_to(marker)
        with pytest.raises(TraceError, match="is a link"):
            snapshot([tmp_path / "links"])


def test_losses_and_failing_writes_are_seen(tmp_path: Path) -> None:
    source = f"""
        import shutil
        dftrace_ai.initialize(spool_bytes=2**20, flush_interval_ms=10)
        ai.pipeline.train.start()
        shutil.rmtree({str(tmp_path / "gone")!r})
        while True:
            for _ in range(100_000):
                with ai.compute.forward:
                    pass
            if dftrace_ai.initialize().stats()["dropped"]:
                break
        done()
    """
    spools = tmp_path / "spools"
    spools.mkdir()
    env = {"DFTRACE_LOG_FILE": str(tmp_path / "gone" / "t"), "DFTRACE_SPOOL_DIR": str(spools)}
    with program(source, tmp_path / "gone", **env):
        (spool,) = spools.glob("*.spool")
        seen = until(lambda: only(spool), lambda process: bool(process.write_error))
        assert seen.write_error == os.strerror(2)
        assert seen.dropped > 0
        assert labels(seen) == ["pipeline.train"]


def test_a_flight_recorder_shows_what_it_does(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize(flight_recorder=True, spool_bytes=2**20)
        with ai.pipeline.train:
            for _ in range(50_000):
                with ai.compute.forward:
                    pass
            done()
    """
    with program(source, tmp_path):
        seen = only(tmp_path)
        assert seen.flight_recorder
        assert seen.overwritten > 0
        assert seen.threads[0].records == 50_000
        assert labels(seen) == ["pipeline.train"]


def test_processes_of_other_hosts_are_known_by_their_traces(tmp_path: Path) -> None:
    lines = [
        "[",
        '{"name":"process_name","cat":"dftrace","pid":7,"tid":7,"ph":"M","args":{"name":"x"}}',
        '{"name":"dftrace","cat":"dftrace","pid":7,"tid":7,"ph":"M","args":{"host":"node-7","rank":5}}',
    ]
    (tmp_path / "t-node-7-7.pfw").write_text("\n".join(lines) + "\n")
    spool = "/dev/shm/dftrace-0123456789abcdef-7-1-0.spool"
    (tmp_path / "t-node-7-7.spool-at").write_text(f"{spool}\n")
    (tmp_path / "t-node-8-9.spool-at").write_text(spool.replace("-7-1", "-9-1") + "\n")
    with program("dftrace_ai.initialize()\nai.pipeline.train.start()\ndone()", tmp_path):
        seen = snapshot([tmp_path])
        assert len(seen.processes) == 1
        assert [(p.host, p.rank, p.run) for p in seen.hidden] == [
            ("node-7", 5, "0123456789abcdef"),
            # Told apart from the stem, which the process here has, too.
            ("node-8", None, "0123456789abcdef"),
        ]


def test_a_process_that_begins_later_is_seen(tmp_path: Path) -> None:
    source = "dftrace_ai.initialize()\nai.pipeline.train.start()\ndone()"
    with program(source, tmp_path) as first:
        observer = Observer([tmp_path])
        assert [process.pid for process in observer.look().processes] == [first.pid]
        with program(source, tmp_path) as second:
            pids = {first.pid, second.pid}
            until(observer.look, lambda seen: {p.pid for p in seen.processes} == pids)
            runs = {process.pid: process.run for process in observer.look().processes}
            for words, wanted in (
                ((), {second.pid}),
                (("--run", "all"), pids),
                (("--run", runs[first.pid]), {first.pid}),
            ):
                done = invoke("top", tmp_path, "--json", *words)
                assert {one["pid"] for one in json.loads(done.out)["processes"]} == wanted
                assert ("; 1 other: --run ID" in done.err) == (len(wanted) == 1)
                judged = invoke("stuck", tmp_path, "--json", *words)
                assert len(json.loads(judged.out)["jobs"]) == len(wanted)
                assert judged.err == done.err
            none = invoke("stuck", tmp_path, "--run", "gone")
            assert (none.status, "there is no run gone" in none.err) == (2, True)
            second.process.communicate("\n", timeout=90)
            until(observer.look, lambda seen: {p.pid for p in seen.processes} == {first.pid})


def test_two_looks_give_an_exact_rate(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        for _ in range(3):
            spans, end = 0, time.monotonic() + 0.05
            while time.monotonic() < end:
                with ai.compute.forward:
                    spans += 1
            done(spans)
    """
    with program(source, tmp_path) as running:
        observer = Observer([tmp_path])
        first = observer.look().processes[0]
        running.go_on()
        spans = int(running.wait_until_ready())
        second = observer.look().processes[0]
        seconds = (second.seen_ns - first.seen_ns) / 1e9
        assert second.threads[0].records - first.threads[0].records == spans
        assert second.events_per_s == pytest.approx(spans / seconds)


def test_no_rate_leaves_out_a_thread_that_is_too_fast_to_be_seen(tmp_path: Path) -> None:
    source = """
        recorded = threading.Event()
        def slow():
            with ai.compute.forward:
                time.sleep(0.05)
            recorded.set()
            threading.Event().wait()
        dftrace_ai.initialize()
        with ai.compute.backward:
            pass
        threading.Thread(target=slow, daemon=True).start()
        recorded.wait()
        done()
    """
    with program(source, tmp_path) as running:
        (process,) = snapshot([tmp_path]).processes
        spool = process.spool
        look = _native.look_into(spool, 1.0)
        assert rank_status(look, spool).events_per_s is not None
        main = next(thread for thread in look["threads"] if thread["tid"] == running.pid)
        main["covered_ns"] = 0  # as where it fills units faster than they can be copied
        main["events"] = 0
        assert rank_status(look, spool).events_per_s is None
        main["ended"] = True
        assert rank_status(look, spool).events_per_s is not None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has frames of another kind")
def test_where_its_python_stands_is_told_of_a_process_that_hangs(tmp_path: Path) -> None:
    """With samples of lines, by who looks in from outside; the one that takes them is no thread."""
    source = """
        def receive():
            done("hangs")

        dftrace_ai.initialize(lines_hz=200, rank=3, world_size=8)
        def deep(calls):
            deep(calls - 1) if calls else done("cannot be read")

        with ai.comm.receive:
            receive()
            sys.setrecursionlimit(40_000)
            deep(30_000)
    """
    with program(source, tmp_path) as running:
        line = len(PREAMBLE.split("\n")) + 2
        words = f"done (<string>:8), called by receive (<string>:{line})"
        # What is told may be a sample of the line before.
        seen = until(lambda: only(tmp_path), lambda seen: seen.threads[0].stands_in == words)
        (main,) = seen.threads
        assert [(frame.function, frame.file, frame.owner) for frame in main.stack] == [
            (name, "<string>", 0) for name in ("done", "receive", "<module>")
        ]
        assert main.stack[-1].line == line + 7
        assert seen.started_ns is not None
        assert seen.started_ns < main.stack_since_ns <= seen.seen_ns
        said = dftrace("stuck", tmp_path, "--idle", "0")
        assert "rank 3 in comm.receive" in said.out
        assert f"  stands in {words}, for " in said.out
        (job,) = json.loads(dftrace("stuck", tmp_path, "--idle", "0", "--json").out)["jobs"]
        assert job["findings"][0]["stands_in"] == words
        running.kill()
        assert only(tmp_path).threads[0].stands_in == words
    with program(source, tmp_path / "deeper") as running:
        until(lambda: only(tmp_path / "deeper"), lambda seen: bool(seen.threads[0].stack))
        running.go_on()
        # Of a stack that is too deep nothing is told, and nothing of before.
        until(lambda: only(tmp_path / "deeper"), lambda seen: not seen.threads[0].stack)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has frames of another kind")
def test_where_c_code_holds_the_lock_it_is_told_where_and_how_deep(tmp_path: Path) -> None:
    """No signal handler of Python's would run there; of deep calls the inner ones are not read."""
    source = """
        import itertools
        def holds():
            print("in C code ready", flush=True)
            max(itertools.repeat(0))
        def deep(calls):
            deep(calls - 1) if calls else holds()

        sys.setrecursionlimit(5_000)
        dftrace_ai.initialize(lines_hz=200, rank=3, world_size=8)
        with ai.compute.forward:
            holds()
    """
    line = len(PREAMBLE.split("\n"))
    with program(source, tmp_path) as running:

        def stands(seen: RankStatus) -> bool:
            found = [(frame.function, frame.line) for frame in seen.threads[0].stack]
            return found == [("holds", line + 4), ("<module>", line + 11)]

        seen = until(lambda: only(tmp_path), stands)
        assert not seen.threads[0].stack_is_cut
        said = dftrace("stuck", tmp_path, "--idle", "0").out
        words = f"holds (<string>:{line + 4}), called by <module> (<string>:{line + 11})"
        assert f"\n  stands in {words}, for " in said
        assert "; runs" in said
        os.kill(running.pid, signal.SIGSTOP)
        until(
            lambda: dftrace("stuck", tmp_path, "--idle", "0").out,
            lambda said: "; was stopped by a signal" in said,
        )
    deeper = source.replace(
        "with ai.compute.forward:\n            holds()",
        "with ai.compute.forward:\n            deep(2_000)",
    )
    with program(deeper, tmp_path / "deeper"):
        deepest = f"deep (<string>:{line + 6})"
        until(
            lambda: only(tmp_path / "deeper").threads[0],
            lambda main: (
                main.stack_is_cut and main.stands_in == f"{deepest} or deeper, called by {deepest}"
            ),
        )
