"""Which files a run writes: names, framing, compression, second runs, no run."""

from __future__ import annotations

import gzip
import os
import platform
import time
import zlib
from pathlib import Path

import psutil
import pytest
from conftest import RunScript, Traced, read_all, trace_files
from perfetto import engine
from perfetto.agreement import agree
from perfetto.trace_file import plain, read, read_unfinished

import dftrace_ai
from dftrace_ai import ai

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


def test_the_first_member_holds_an_event(traced: Traced) -> None:
    """A first member of '[' alone is refused by Perfetto."""
    with traced() as rec, ai.compute.forward:
        pass
    member = zlib.decompressobj(wbits=31).decompress(rec.trace.path.read_bytes())
    assert member.startswith(b"[\n{")


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


def test_a_second_run_writes_a_second_file(tmp_path: Path) -> None:
    for step in range(3):
        dftrace_ai.initialize(log_file=tmp_path / "t")
        with ai.compute.forward(step=step):
            pass
        dftrace_ai.finalize()
    names = [f.name for f in trace_files(tmp_path)]
    base = expected_name("t").removesuffix(".pfw.gz")
    assert sorted(names) == sorted(f"{base}{n}.pfw.gz" for n in ("", "-1", "-2"))
    traces = [read(f, ended="finalize") for f in trace_files(tmp_path)]
    assert sorted(t.one("forward").user["step"] for t in traces) == [0, 1, 2]
    assert len({t.header["run"] for t in traces}) == 3
    for t in traces:
        agree(t)


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


def test_stats_of_a_run(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t") as run:
        with ai.compute.forward:
            pass
        assert run.stats()["dropped"] == 0
    assert isinstance(run.stats(), dict)


def test_what_was_flushed_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", flush_interval_ms=60_000) as run:
        for i in range(3):
            with ai.compute.forward(step=i):
                pass
            run.flush()
            t = read_unfinished(Path(str(run.path)))
            assert [e.user["step"] for e in t.named("forward")] == list(range(i + 1))
            assert len(engine.slices(t.path)) == i + 1


def test_system_counters(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", system_counters_s=0.01) as run:
        seen, until = 0, time.monotonic() + 60
        while seen < 8 and time.monotonic() < until:
            run.flush()
            path = Path(str(run.path))
            seen = len(read_unfinished(path, in_a_write=True).of("C")) if path.exists() else 0
    (t,) = read_all(trace_files(tmp_path))
    assert len(t.of("C")) >= 8
    assert len(agree(t).counters) >= 8


def test_initialize_twice_is_one_run_and_finalize_twice_is_harmless(tmp_path: Path) -> None:
    one = dftrace_ai.initialize(log_file=tmp_path / "one")
    two = dftrace_ai.initialize(log_file=tmp_path / "two")
    assert two is one
    with ai.compute.forward:
        pass
    dftrace_ai.finalize()
    dftrace_ai.finalize()
    (path,) = trace_files(tmp_path)
    assert path.name.startswith("one-")


def test_inert_outside_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dftrace_ai.finalize()
    with ai.compute.forward:
        assert list(ai.data.item.iter([1])) == [1]
    assert list(tmp_path.iterdir()) == []


def test_tracing_ends_the_run_when_its_block_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), dftrace_ai.tracing(log_file=tmp_path / "t"):
        with ai.compute.forward:
            raise ValueError("x")
    (path,) = trace_files(tmp_path)
    trace = read(path, ended="exception")
    assert trace.footer["error"] == "ValueError"
    assert trace.one("forward").args["error"] == "ValueError"


def test_spools_are_gone_after_the_run(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    with dftrace_ai.tracing(log_file=tmp_path / "t", spool_dir=spool), ai.compute.forward:
        assert list(spool.rglob("*")) != []
    assert [p for p in spool.rglob("*") if p.is_file()] == []
    assert len(trace_files(tmp_path)) == 1
