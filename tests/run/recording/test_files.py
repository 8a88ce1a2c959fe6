"""What is in the files of a run: names, framing, compression, times, text, parts."""

from __future__ import annotations

import gzip
import json
import os
import platform
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import RunScript, Traced, trace_files
from hypothesis import example, given
from hypothesis import strategies as st
from perfetto.agreement import agree
from perfetto.trace_file import plain, read

import dftrace_ai
from dftrace_ai import ai, dftracer
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.run.core_settings import json_text

SUFFIX = {"gzip": ".pfw.gz", "zstd": ".pfw.zst", "none": ".pfw"}


def expected_name(stem: str, compression: str = "gzip") -> str:
    """The file name of this process."""
    return f"{stem}-{platform.node()}-{os.getpid()}{SUFFIX[compression]}"


@pytest.mark.parametrize("compression", list(SUFFIX))
def test_name_and_compression(traced: Traced, tmp_path: Path, compression: str) -> None:
    with traced(compression=compression, perfetto=compression != "zstd") as rec:
        for i in range(2000):
            with ai.compute.forward(step=i):
                pass
    t = rec.trace
    assert t.path.name == expected_name("trace", compression)
    assert Path(rec.run.path) == t.path
    assert [e.user["step"] for e in t.named("forward")] == list(range(2000))
    if compression == "zstd":  # v52 of Perfetto does not open it; its lines do
        unpacked = tmp_path / "unpacked.pfw"
        unpacked.write_bytes(plain(t.path))
        agree(read(unpacked))


def test_blocks_are_independent_members_of_whole_lines(traced: Traced) -> None:
    with traced(write_buffer_bytes=4096, overflow="wait") as rec:
        for i in range(3000):
            with ai.compute.forward(step=i):
                pass
    data = rec.trace.path.read_bytes()
    sizes = []
    while data:
        member = zlib.decompressobj(wbits=31)
        text = member.decompress(data)
        sizes.append(len(text))
        assert text.endswith(b"\n")
        data = member.unused_data
    assert len(sizes) > 20
    assert max(sizes) < 3 * 4096
    first = gzip.decompress(rec.trace.path.read_bytes()).split(b"\n")
    assert first[0] == b"["
    assert b'"process_name"' in first[1]


def test_nothing_recorded_no_file(traced: Traced, run_script: RunScript) -> None:
    with traced() as rec:
        ai.disable()
        with ai.compute.forward:
            pass
        ai.enable()
    assert rec.traces == []
    assert list(rec.folder.iterdir()) == []
    done = run_script("import dftrace_ai; dftrace_ai.initialize(); dftrace_ai.finalize()")
    assert list(done.folder.iterdir()) == []


def test_one_event_is_enough(traced: Traced) -> None:
    for record in (
        lambda: ai.compute.forward(lambda: None)(),
        lambda: ai.instant("x"),
        lambda: ai.counter("c", values={"v": 1}),
        lambda: ai.pipeline.epoch.start(metadata=True),
        lambda: ai.pipeline.epoch.start(),
    ):
        with traced() as rec:
            record()
        assert rec.trace.footer["events"] == 1


@pytest.mark.parametrize("flight_recorder", [False, True])
def test_the_path_is_that_of_the_file_before_there_is_one(
    tmp_path: Path, flight_recorder: bool
) -> None:
    said = []
    for _ in range(3):
        settings = {"log_file": tmp_path / "t", "flight_recorder": flight_recorder}
        with dftrace_ai.tracing(**settings) as run:
            said.append(run.path)
            with ai.compute.forward:
                said.append(run.path)
            dftrace_ai.dump()
        said.append(run.path)
    names = [expected_name("t"), *(expected_name("t").replace(".", f"-{n}.", 1) for n in (1, 2))]
    assert [Path(path).name for path in said] == [name for name in names for _ in range(3)]


def test_an_existing_file_is_never_touched(tmp_path: Path) -> None:
    mine = tmp_path / expected_name("t")
    mine.write_bytes(b"precious")
    (tmp_path / expected_name("t").replace(".pfw", "-1.pfw")).symlink_to("/nonexistent/x")
    with dftrace_ai.tracing(log_file=tmp_path / "t") as run, ai.compute.forward:
        pass
    assert mine.read_bytes() == b"precious"
    assert Path(run.path).name == expected_name("t").replace(".pfw", "-2.pfw")
    assert read(Path(run.path)).names == {"forward": 1}


def test_directories_are_made_and_the_prefix_is_taken_as_it_is(tmp_path: Path) -> None:
    for prefix in ("a/b/c/run", "with space/ünï", "dots/v1.2"):
        dftrace_ai.initialize(log_file=str(tmp_path / prefix))
        with ai.compute.forward:
            pass
        dftrace_ai.finalize()
    found = sorted(str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*.pfw.gz"))
    assert len(found) == 3
    assert f"a/b/c/{expected_name('run')}" in found
    assert f"with space/{expected_name('ünï')}" in found
    assert f"dots/{expected_name('v1.2')}" in found


def test_a_relative_prefix_stays_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with dftrace_ai.tracing(log_file="rel/t"), ai.compute.forward:
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert [f.parent for f in tmp_path.rglob("*.pfw.gz")] == [tmp_path / "rel"]


def test_header_and_footer(traced: Traced) -> None:
    with traced(data_dir="/data") as rec:
        with ai.compute.forward:
            ai.instant("i")
        ai.counter("c", values={"v": 1})
        ai.compute.stop()
        ai.pipeline.epoch.start(metadata=True)
    t = rec.trace
    h, f = t.header, t.footer
    assert h["version"] == dftrace_ai.__version__
    assert h["format"] == 1
    assert (h["host"], h["pid"], h["ppid"]) == (platform.node(), os.getpid(), os.getppid())
    assert h["python"].startswith(platform.python_version())
    assert h["cpus"] >= 1
    assert h["memory_bytes"] == psutil.virtual_memory().total
    assert h.get("cores") == psutil.cpu_count(logical=False)
    assert isinstance(h["cmdline"], list)
    assert "rank" not in h
    int(h["hhash"], 16)
    assert len(h["hhash"]) == 16
    assert t.process_name == f"python · {platform.node()}"
    assert t.thread_names[os.getpid()] == "MainThread"
    assert {e.name for e in t.events if e.ph == "M"} >= {"HH", "FH", "SH"}
    assert (f["ended"], f["dropped"], f["unmatched_stops"]) == ("finalize", 0, 1)
    assert f["hhash"] == h["hhash"]
    assert type(f["drain_cpu_us"]) is int
    assert type(f["waits"]) is int


def test_inert_outside_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dftrace_ai.finalize()
    with ai.compute.forward:
        assert list(ai.data.item.iter([1])) == [1]
    assert list(tmp_path.iterdir()) == []


def test_spools_are_gone_after_the_run(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    with dftrace_ai.tracing(log_file=tmp_path / "t", spool_dir=spool), ai.compute.forward:
        assert list(spool.rglob("*")) != []
    assert [p for p in spool.rglob("*") if p.is_file()] == []
    assert len(trace_files(tmp_path)) == 1


DAY_US = 86_400_000_000


def test_relative_times_and_the_base_give_the_epoch(traced: Traced) -> None:
    with traced() as rec:
        before = dftracer.get_instance().get_time()
        with ai.compute.forward:
            pass
        after = dftracer.get_instance().get_time()
    header, span = rec.trace.header, rec.trace.one("forward")
    base = header["time_base_us"]
    assert type(base) is int
    assert base % (20 * DAY_US) == 0
    assert span.ts_ns is not None
    assert 0 <= span.ts_ns < 20 * DAY_US * 1000
    assert before - 1 <= base + span.ts_ns // 1000 <= after + 1
    assert abs(base + span.ts_ns / 1000 - time.time() * 1e6) < DAY_US
    assert header["timestamps"] == "relative"
    assert header["clock"] in ("tsc", "monotonic")


def test_epoch_microseconds(traced: Traced) -> None:
    with traced(timestamps="epoch_us") as rec:
        before = dftracer.get_instance().get_time()
        for _ in range(1000):
            with ai.pipeline.train, ai.compute.forward:
                pass
        ai.instant("here")
        ai.counter("loss", values={"loss": 1.0})
        after = dftracer.get_instance().get_time()
    t = rec.trace
    assert t.header["timestamps"] == "epoch_us"
    for e in t.of("X", "i", "C"):
        assert '"ts":' in e.line
        assert e.ts_ns is not None
        assert e.line.split('"ts":')[1].split(",")[0].isdigit()
        assert before - 1 <= e.ts_ns // 1000 <= after + 1
    for e in t.named("forward"):
        up = t.parent(e)
        assert up is not None
        assert up.ts_ns is not None
        assert e.ts_ns is not None
        assert up.ts_ns <= e.ts_ns
        assert e.end_ns <= up.end_ns


TEXTS = st.text(st.characters())  # halves of surrogates, too, as paths have them
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@example("".join(map(chr, range(256))))
@example("C:\\")
@example(["a\\", "\\\\"])
@example("\U0001f600\ud83d\ude00\udcff")
def test_what_is_written_is_read_back(value: Any) -> None:
    for ascii_only in (False, True):
        text = json_text(value, ascii_only=ascii_only)
        # Halves that meet are one letter to whoever reads escapes.
        again = json.loads(json.dumps(value)) if ascii_only else value
        assert json.loads(text) == again
        assert "\n" not in text
        assert not ascii_only or text.isascii()


@given(st.text())
def test_it_is_as_pythons_own_writes_it(text: str) -> None:
    if not text.endswith("\\"):
        assert json_text([text]) == json.dumps([text], ensure_ascii=False)


def test_a_text_does_not_end_with_what_perfetto_stumbles_over() -> None:
    assert json_text("C:\\") == '"C:\\u005c"'
    assert json_text({"a\\": ["b\\\\"]}) == '{"a\\u005c":["b\\\\\\u005c"]}'


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        json_text({"path": b"x"})


LIMIT = 64 * 1024


def part_of(path: Path) -> int:
    """The number in a file's name; 0 for the first file of a trace."""
    _, _, number = path.name.partition(".part")
    return int(number.split(".")[0]) if number else 0


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_parts_hold_every_event_once_and_keep_to_the_limit(
    traced: Traced, compression: str
) -> None:
    """Each part is a whole trace by itself: the fixture reads and opens each of them."""
    spans = 12_000
    opens = compression != "zstd"  # Perfetto has no zstd
    with traced(max_file_bytes=LIMIT, compression=compression, perfetto=opens) as rec:

        def work(thread: int) -> None:
            for step in range(spans // 2):
                with (
                    ai.compute.forward(step=step, thread=thread)
                    if step % 50 == 0
                    else (ai.compute.forward)
                ):
                    pass

        threads = [threading.Thread(target=work, args=(i,), name=f"worker {i}") for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    parts = sorted(rec.traces, key=lambda trace: part_of(trace.path))
    assert len(parts) > 1
    assert [part_of(t.path) for t in parts] == list(range(len(parts)))
    assert all(t.path.stat().st_size <= LIMIT for t in parts)
    assert [t.header.get("part", 0) for t in parts] == list(range(len(parts)))
    assert [t.footer["ended"] for t in parts] == ["rotated"] * (len(parts) - 1) + ["finalize"]
    assert [t.footer["part"] for t in parts] == list(range(len(parts)))
    ids = [event.id for t in parts for event in t.named("forward")]
    assert (len(ids), len(set(ids))) == (spans, spans)
    steps = sorted(
        (e.user["thread"], e.user["step"]) for t in parts for e in t.named("forward") if e.user
    )
    assert steps == [(i, step) for i in range(2) for step in range(0, spans // 2, 50)]
    # The track of a thread has its name in every part that shows it.
    for t in parts:
        for event in t.named("forward"):
            assert t.thread_names[event.tid].startswith("worker")


def test_the_oldest_parts_go_when_a_number_is_set(tmp_path: Path) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t", max_file_bytes=LIMIT, max_files=3, compression="none"
    ) as run:
        for _ in range(20_000):
            with ai.compute.forward:
                pass
    kept = sorted(part_of(path) for path in trace_files(tmp_path))
    last = part_of(Path(run.path or ""))
    assert last > 10
    assert kept == [last - 2, last - 1, last]
    assert run.stats()["events"] == 20_000
    found = summarise([tmp_path])
    assert 0 < found.events < 20_000


def test_losses_are_told_once_among_the_parts(traced: Traced) -> None:
    with traced(max_file_bytes=LIMIT, compression="none") as rec:
        for i in range(3000):
            ai.instant("odd", {"value": float("nan")} if i % 100 == 0 else {})
    assert len(rec.traces) > 2
    assert sum(t.footer["args_sanitised"] for t in rec.traces) == 30


def test_a_killed_process_goes_on_in_its_last_part(run_script: RunScript) -> None:
    done = run_script(
        f"""
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai
        run = dftrace_ai.initialize(max_file_bytes={LIMIT}, compression="none")
        for step in range(5000):
            with ai.compute.forward:
                pass
            if step == 4000:
                run.flush()
        ai.compute.backward.start()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-9,
    )
    before = len(done.files)
    assert before > 1
    from dftrace_ai.spools.recovery import adopt_dead

    assert adopt_dead(done.folder).failed == []
    traces = sorted(done.traces(), key=lambda trace: part_of(trace.path))
    assert sum(len(t.named("forward")) for t in traces) == 5000
    assert traces[-1].footer["ended"] == "died"
    assert [t.footer["ended"] for t in traces[:-1]] == ["rotated"] * (len(traces) - 1)
    assert traces[-1].one("backward").args["unfinished"] is True
