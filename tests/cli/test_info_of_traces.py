"""What the commands say of traces as a whole: whose, how they ended, when they began, how long they were."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from conftest import RunScript
from printed_json import checked
from safety.commands import answer, invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.reading import Trace, open_traces
from dftrace_ai.analysis.summary.indexing import index_traces


def of_rank(rank: int, world_size: int) -> TraceLines:
    facts = {"rank": rank, "world_size": world_size, "cmdline": ["python", "train.py"]}
    base_us = 1_700_000_000_000_000
    trace = TraceLines(100 + rank, host="node-7", time_base_us=base_us, **facts)
    trace.span("forward", "compute", 1000, 50)
    return trace


def test_info_tells_whose_traces_are_and_how_they_ended(tmp_path: Path) -> None:
    whole, runs = of_rank(0, 4), of_rank(2, 4)
    whole.footer(dropped=3)
    whole.write(tmp_path / "out" / "a.pfw.gz")
    runs.write(tmp_path / "out" / "b.pfw.zst")
    (tmp_path / "out" / "n.pfw").write_text("hello")
    done = invoke("info", tmp_path / "out")
    assert done.status == 1
    first, second = (
        next(line for line in done.out.splitlines() if name in line).split()
        for name in ("a.pfw.gz", "b.pfw.zst")
    )
    moment = datetime.fromtimestamp(1_700_000_000).astimezone()
    words = f"rank 0 of 4, process 100 on node-7 {moment:%Y-%m-%d %H:%M:%S %z} finalize 50 ns 1"
    assert first[1 : 1 + len(words.split())] == words.split()
    assert first[-1] == "3"
    assert " ".join(second).count("cut off") == 1
    assert "2 files of 1 run, 1 event by their closing lines" in done.out
    told = done.err.splitlines()
    assert told[0].startswith(f"dftrace: skipped: {tmp_path}/out/n.pfw: not a trace file")
    assert any("b.pfw.zst: no closing line" in line for line in told)
    assert any(line.endswith("run 00ff: 2 ranks without a file: 1, 3") for line in told)
    found = answer("info", tmp_path / "out", status=1)
    (one, other) = found["files"]
    assert (one["rank"], one["state"], one["losses"]) == (0, "complete", {"dropped": 3})
    assert (other["events"], other["state"], other["ended"]) == (None, "cut off", None)
    assert other["bytes"] == (tmp_path / "out" / "b.pfw.zst").stat().st_size
    assert found["missing_ranks"] == {"00ff": [1, 3]}
    assert [Path(file["path"]).name for file in found["skipped"]] == ["n.pfw"]


def test_files_of_a_profiler_have_no_run_and_no_closing_line(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":2,"args":{}}'
    profile = tmp_path / "rank0.json"
    profile.write_text(f'{{"schemaVersion":1,"traceEvents":[{event}]}}')
    assert "1 file; no closing line counts events" in invoke("info", profile).out.splitlines()


def test_who_left_before_the_others_failed_is_named(tmp_path: Path) -> None:
    ends = {"exit": {}, "exception": {"error": "RuntimeError"}, "died": {"signal": 9}}
    for rank, (ended, told) in enumerate(ends.items()):
        trace = of_rank(rank, 3)
        trace.span("backward", "compute", 2000, 50 if ended == "exit" else 2_000_000_000)
        trace.footer(ended=ended, **told)
        trace.write(tmp_path / f"{rank}.pfw.gz")
    done = invoke("info", tmp_path)
    for words in ("exception, RuntimeError", "died, signal 9"):
        assert words in done.out
    # Of those that ended together, who was killed has begun it.
    told_first = "ended: rank 0 by itself, as by sys.exit, 2 s before the others; rank 2 killed"
    assert f"dftrace: {told_first}, or by os._exit (signal 9); rank 1 by an exception" in done.err
    files = answer("info", tmp_path)["files"]
    assert [(one["error"], one["signal"], one["exit_status"]) for one in files] == [
        (None, None, None),
        ("RuntimeError", None, None),
        (None, 9, None),
    ]
    # Where most had left the training was over.
    trace = of_rank(2, 3)
    trace.footer(ended="exit")
    trace.write(tmp_path / "2.pfw.gz")
    assert "dftrace: ended: rank 1 by an exception" in invoke("info", tmp_path).err.splitlines()


def test_validate_as_json(tmp_path: Path) -> None:
    trace = small_trace()
    good = trace.write(tmp_path / "a.pfw")
    trace.lines.extend(["nonsense"] * 15)
    bad = trace.write(tmp_path / "b.pfw.gz")
    done = invoke("validate", "--json", good)
    assert (done.status, done.err) == (0, "")
    assert checked(done.out, "validate")["fault_count"] == 0
    done = invoke("validate", "--json", "--top", 4, good, bad)
    assert (done.status, done.err) == (1, "")
    found = checked(done.out, "validate")
    assert found["fault_count"] == 30
    (first, second) = found["files"]
    assert (first["path"], first["lines"], first["events"]) == (str(good), 16, 10)
    assert (first["closed"], first["faults"]) == (True, [])
    assert (second["fault_count"], [fault["line"] for fault in second["faults"]]) == (
        30,
        [17, 17, 18, 18],
    )


# Spans and counters of two threads in many blocks; one span has no end, one is longer than all others.
RECORDED = """
    import sys, threading
    import dftrace_ai
    from dftrace_ai import ai

    def work():
        for step in range(3000):
            with ai.compute.forward(step=step):
                pass

    with dftrace_ai.tracing(compression=sys.argv[1], write_buffer_bytes=65536) as run:
        with ai.pipeline.train:
            thread = threading.Thread(target=work)
            thread.start()
            work()
            thread.join()
            ai.counter("loss", {"train": 1.0})
        ai.checkpoint.capture.start()
        run.flush()
        if len(sys.argv) > 2:
            print("ready", flush=True)
            threading.Event().wait()
"""


def told_by_lines(traces: Iterable[Trace]) -> tuple[str, float]:
    """First moment in UTC, and microseconds from there to the last one."""
    times: list[tuple[int, int]] = []
    for trace in traces:
        assert trace.header is not None
        for _, event in trace.events():
            if event["ph"] != "M" and "ts" in event:
                start = round(event["ts"] * 1000) + (trace.header.time_base_us or 0) * 1000
                times.append((start, start + round(event.get("dur", 0) * 1000)))
    first, last = min(start for start, _ in times), max(end for _, end in times)
    moment = datetime.fromtimestamp(first // 1_000_000_000, timezone.utc)
    us = first // 1000 % 1_000_000
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us:06}Z", (last - first) / 1000


def moment_us(text: str) -> int:
    since = datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.fromtimestamp(
        0, timezone.utc
    )
    return since // timedelta(microseconds=1)


@pytest.mark.parametrize("ended", ["in order", "killed"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "none"])
def test_all_commands_tell_what_the_lines_say(
    run_script: RunScript, codec: str, ended: str
) -> None:
    killed = ended == "killed"
    done = run_script(
        RECORDED,
        args=[codec, *(["wait"] if killed else [])],
        status=-signal.SIGKILL if killed else 0,
        stop=(lambda process: process.kill()) if killed else None,
    )
    out = done.folder
    invoke("recover", out)
    traces = open_traces([out])
    began_at, length_us = told_by_lines(traces)
    # A process that was killed may have hung for long: its file says until when it lived.
    lived_us = length_us
    for trace in traces:
        assert trace.header is not None
        assert trace.end.footer is not None
        if killed:
            until_us = (trace.header.time_base_us or 0) + (trace.end.footer.alive_us or 0)
            lived_us = max(lived_us, until_us - moment_us(began_at))
    for file in answer("info", out)["files"]:
        assert file["began_at"] == began_at
        assert file["length_us"] == pytest.approx(lived_us, abs=1)
        assert file["began_us"] < datetime.fromisoformat(began_at[:-1]).timestamp() * 1e6
    summary, verdict = answer("summary", out), answer("why", out)
    assert (summary["began_at"], summary["length_us"]) == (began_at, length_us)
    assert (verdict["began_at"], verdict["length_ns"]) == (began_at, round(length_us * 1000))
    figures = Run(out).figures
    assert (figures.began_at, figures.wall_s) == (began_at, pytest.approx(length_us / 1e6))


def test_people_get_the_time_of_their_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceLines(100, time_base_us=1_699_920_000_000_000)
    trace.instant("loaded", 80_000 * 10**9)
    trace.span("forward", "compute", 80_000 * 10**9 + 7, 2_500_000_000)
    path = trace.write(tmp_path / "t.pfw")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        texts = [invoke(command, path).out for command in ("info", "summary", "why")]
        page = tmp_path / "page.html"
        invoke("report", path, "-o", page)
    finally:
        monkeypatch.undo()
        time.tzset()
    # 80,000 seconds after midnight of the 14th, UTC.
    for text in (*texts, page.read_text()):
        assert "2023-11-15 03:43:20 +0530" in text
    assert "began 2023-11-15 03:43:20 +0530, lasted 2.5 s" in texts[1]
    assert "2.5 s" in texts[0]


def test_what_lies_between_is_not_unpacked_and_where_it_would_have_to_be_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    assert answer("info", path)["files"][0]["length_us"] is not None
    monkeypatch.setattr("dftrace_ai.analysis.reading.index_line.LITTLE_BYTES", 100)
    (file,) = answer("info", path)["files"]
    assert (file["began_at"], file["length_us"]) == (None, None)
    assert answer("summary", path)["length_us"] is not None


def test_an_index_beside_a_trace_says_it_too(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    before = answer("summary", path)
    index_traces([path])
    assert answer("summary", path) == before
    assert before["began_at"] is not None


def test_who_counts_from_no_known_moment_has_a_length_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    lines = [f'{{"name":"a","ph":"X","pid":1,"tid":1,"ts":{at},"dur":5}}' for at in (7, 90)]
    path.write_text("\n".join(["[", *lines]) + "\n")
    for found in (answer("info", path)["files"][0], answer("summary", path)):
        assert (found["began_at"], found["length_us"]) == (None, 88.0)
    assert "lasted 88 us" in invoke("summary", path).out
    assert "began" not in invoke("summary", path).out


def test_times_that_are_years_apart_are_no_length_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    line = '{"name":"step","cat":"pipeline","ph":"X","pid":1,"tid":1,"ts":%d,"dur":5}'
    path.write_text("\n".join(["[", *(line % at for at in (-(10**15), 7, 90))]) + "\n")
    for command in ("summary", "why"):
        told = " ".join(invoke(command, path).out.split())
        assert "its events lie 31.7 years apart, so times of some of them cannot be" in told
        assert "lasted" not in told


def test_a_header_may_be_written_with_escapes(tmp_path: Path) -> None:
    """As some writers of JSON put every letter."""
    path = small_trace(rank=3, world_size=4).write(tmp_path / "t.pfw")
    text = path.read_text()
    for name in ("dftrace", "rank"):
        text = text.replace(f'"{name}"', '"' + "".join(f"\\u{ord(x):04x}" for x in name) + '"')
    path.write_text(text)
    assert '"dftrace"' not in text
    assert answer("info", path)["files"][0]["rank"] == 3


def test_without_events_there_is_nothing_to_say(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.footer()
    path = trace.write(tmp_path / "t.pfw.gz")
    for command in ("info", "summary", "why"):
        assert "lasted" not in invoke(command, path).out
    assert answer("info", path)["files"][0]["began_at"] is None


def test_a_run_of_several_files_lasts_from_the_first_to_the_last(tmp_path: Path) -> None:
    for rank, start_s in enumerate((30, 10, 20)):
        trace = TraceLines(100 + rank)
        trace.span("forward", "compute", start_s * 10**9, 10**9)
        trace.write(tmp_path / f"r{rank}.pfw.gz")
    assert TIME_BASE_US % 1_000_000 == 0
    summary = answer("summary", tmp_path)
    moment = datetime.fromtimestamp(TIME_BASE_US / 1e6 + 10, timezone.utc)
    assert summary["began_at"] == f"{moment:%Y-%m-%dT%H:%M:%S}.000000Z"
    assert summary["length_us"] == 21e6
    for by in ("rank", "thread", "step", "category"):
        assert answer("summary", tmp_path, "--by", by)["length_us"] == 21e6
