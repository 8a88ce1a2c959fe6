"""A summary by the index equals one by the lines, whatever became of the file."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest
from analysis.indexed.heads import blocks_of, check_blocks
from conftest import RunScript, trace_files

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.reading import index_line
from dftrace_ai.analysis.reading.reach import LITTLE_BYTES
from dftrace_ai.analysis.summary import adding
from dftrace_ai.analysis.summary.table import Summary, summarise
from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.analysis.validating import validate_traces
from dftrace_ai.run import emitting


class Used:
    """How often an index was taken in place of lines."""

    def __init__(self) -> None:
        self.lines = 0
        self.allowed = True

    def find(
        self, descriptor: int, codec: index_line.Codec, end: int
    ) -> index_line.FoundIndex | None:
        found = index_line.find_index(descriptor, codec, end) if self.allowed else None
        self.lines += found.figures.lines if found else 0
        return found


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    used = Used()
    monkeypatch.setattr(adding, "find_index", used.find)
    return used


def by_lines(used: Used, *paths: Path) -> Summary:
    used.allowed = False
    try:
        return summarise(paths)
    finally:
        used.allowed = True


def train(steps: int) -> None:
    """Spans of given times, so that their figures take the same room each time, and a few others."""
    noise = random.Random(3)
    at = emitting.time_us() - 100_000_000

    def load() -> None:
        for _ in range(10):
            with ai.data.io.read:
                pass

    loader = threading.Thread(target=load)
    loader.start()
    with ai.pipeline.train:
        for step in range(steps):
            begun = emitting.ticks()
            forward, backward = noise.randrange(100, 120), noise.randrange(300, 310)
            emitting.complete("forward", at, forward, {"step": step}, category="compute")
            emitting.complete("backward", at + 200, backward, {}, category="compute")
            at += 1000
            if step % 5000 == 0:
                with ai.checkpoint.capture, ai.checkpoint.io.write:
                    pass
                ai.counter("loss", {"train": step / 7})
                ai.instant("now and then")
            frame("step", begun)
    loader.join()


def frame(name: str, begun: int) -> None:
    """What `auto` records beside the thread of what was done since."""
    emitting.complete_between(name, begun, emitting.ticks(), category="pipeline", track=f"{name}s")


@pytest.mark.parametrize("timestamps", ["relative", "epoch_us"])
@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_figures_are_those_of_the_lines(
    tmp_path: Path, used: Used, compression: str, timestamps: str
) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t",
        compression=compression,
        timestamps=timestamps,
        write_buffer_bytes=64 * 1024,
    ):
        train(30_000)
        ai.compute.backward.start()
    (path,) = trace_files(tmp_path)
    found = summarise([path])
    # All but the last lines, of which some may come behind the last index.
    assert used.lines > 0.9 * found.events
    told = by_lines(used, path)
    assert found == told
    assert found.not_annotated == told.not_annotated is not None
    own = {row.name: row.self_us for row in found.spans}
    assert (own["step"], own["forward"] > 0) == (0, True)
    assert None not in {row.wall_us for row in found.spans}
    assert [row.wall_us for row in found.spans] == [row.wall_us for row in told.spans]
    assert found.warnings() == []
    assert validate_traces([path]).fault_count == 0
    if compression != "none":
        blocks = check_blocks(path)
        indexes = [block for block in blocks if block.kind == 1]
        assert 0.01 * path.stat().st_size > sum(block.packed_bytes for block in indexes) > 0


def last_index_says(path: Path, **times: int) -> None:
    """Make the last index line of a plain file one that says these times, or none."""
    *before, line, clock, footer = path.read_bytes().splitlines(keepends=True)
    event = json.loads(line)
    assert event["name"] == "index"
    args = {
        key: value for key, value in event["args"].items() if key not in {"first_ns", "last_ns"}
    }
    event["args"] = args | times
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(b"".join([*before, text, b"\n", clock, footer]))


def test_plain_files_whose_index_does_not_say_times_or_none_that_can_be(
    tmp_path: Path, used: Used
) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", compression="none"):
        train(36_000)
    (path,) = trace_files(tmp_path)
    assert path.stat().st_size > LITTLE_BYTES
    found = summarise([path])
    assert used.lines > 0.9 * found.events
    walls = {row.wall_us for row in found.spans}
    assert facts_of([path]).files[0].length_us in walls
    used.lines = 0
    last_index_says(path, first_ns=5, last_ns=6)
    assert summarise([path]) == found
    assert ({row.wall_us for row in summarise([path]).spans}, used.lines) == (walls, 0)
    # As earlier versions have written it.
    last_index_says(path)
    assert summarise([path]) == found
    assert {row.wall_us for row in summarise([path]).spans} == {None}
    assert facts_of([path]).files[0].length_us is None
    assert used.lines > 0


def test_a_file_that_was_cut_or_broken_anywhere(tmp_path: Path, used: Used) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", write_buffer_bytes=64 * 1024):
        train(30_000)
    (path,) = trace_files(tmp_path)
    whole, data = summarise([path]), path.read_bytes()
    blocks = blocks_of(path)
    noise = random.Random(5)
    index = [block for block in blocks if block.kind == 1][-1]
    cuts = [noise.randrange(len(data)) for _ in range(4)]
    cuts += [index.place, index.place + 20, index.place + index.packed_bytes]
    for cut in cuts:
        path.write_bytes(data[:cut])
        assert summarise([path]) == by_lines(used, path)
    # The index itself, and the heads, but for that by which a file is known for a trace.
    places = [index.place + noise.randrange(index.packed_bytes) for _ in range(15)]
    places += [block.place + noise.randrange(46) for block in noise.choices(blocks[1:], k=25)]
    for place in places:
        broken = bytearray(data)
        broken[place] ^= 1 << noise.randrange(8)
        path.write_bytes(broken)
        assert summarise([path]) in (whole, by_lines(used, path))


def test_the_parts_of_a_trace_together_and_alone(tmp_path: Path, used: Used) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t", write_buffer_bytes=32 * 1024, max_file_bytes=400_000
    ):
        train(80_000)
    paths = trace_files(tmp_path)
    assert len(paths) > 2
    found = summarise(paths)
    assert used.lines > 0.5 * found.events
    assert found == by_lines(used, *paths)
    assert {row.name: row.self_us for row in found.spans}["step"] == 0
    for some in ([paths[1]], paths[1:], [paths[0], paths[-1]]):
        assert summarise(some) == by_lines(used, *some)


def test_the_dead_and_their_children(run_script: RunScript, used: Used) -> None:
    done = run_script(
        """
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai
        from dftrace_ai.run import emitting

        def work(count):
            at = emitting.time_us() - 100_000_000
            for step in range(count):
                emitting.complete("forward", at, step % 10, {"step": step}, category="compute")
                emitting.complete("backward", at + 100, 600, {}, category="compute")
                at += 1000

        run = dftrace_ai.initialize(write_buffer_bytes=65536)
        for flushed in (False, True):
            child = os.fork()
            if child == 0:
                work(12_000)
                if flushed:
                    run.flush()
                    work(12_000)
                ai.compute.backward.start()
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
        work(12_000)
        dftrace_ai.finalize()
        """
    )
    assert len(done.files) == 3
    assert validate_traces(done.files).fault_count == 0
    found = summarise(done.files)
    assert used.lines > 0.3 * found.events
    assert found == by_lines(used, *done.files)
    assert found.warnings() == []


def test_spans_that_have_to_be_sorted(tmp_path: Path, used: Used) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", write_buffer_bytes=64 * 1024):
        train(30_000)
        # Of one parent, and one inside of the other.
        now = emitting.time_us()
        for step in range(3):
            emitting.complete("inner", now + 1000 * step + 100, 100, {}, category="mine")
            emitting.complete("outer", now + 1000 * step, 1000, {}, category="mine")
        train(2000)
    (path,) = trace_files(tmp_path)
    found = summarise([path])
    assert found == by_lines(used, path)
    own = {row.name: row.self_us for row in found.spans if row.cat == "mine"}
    assert own == {"inner": 300, "outer": 2700}
    assert found.warnings() == []


def test_small_traces_have_none(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", write_buffer_bytes=4096):
        train(100)
    (path,) = trace_files(tmp_path)
    assert all(block.kind == 0 for block in blocks_of(path))


def test_where_a_step_is_of_the_thread_and_beside_it_the_lines_are_read(
    tmp_path: Path, used: Used
) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", write_buffer_bytes=64 * 1024):
        for _ in range(30_000):
            begun = emitting.ticks()
            with ai.pipeline.step, ai.compute.forward:
                pass
            frame("step", begun)
    (path,) = trace_files(tmp_path)
    found = summarise([path])
    assert used.lines > 0
    assert found == by_lines(used, path)
    forward, step = found.spans
    outside = found.not_annotated
    assert outside is not None
    assert outside.us + forward.self_us + step.self_us == pytest.approx(outside.wall_us)
