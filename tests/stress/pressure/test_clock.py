"""Clocks that step and machines that sleep: times rise, nest, and are as long as what happened."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from perfetto.trace_file import Trace

from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.sql import TraceTables
from dftrace_ai.analysis.steps import Job, Rank
from dftrace_ai.spools.recovery import adopt_dead

if TYPE_CHECKING:
    from stress.pressure.program import Pressed
    from stress.pressure.shim import Shim

HOUR_NS = 3600 * 10**9


def assert_in_order(trace: Trace) -> None:
    """Within a thread starts rise strictly, and every span lies in its parent."""
    last: dict[int, int] = {}
    for event in trace.spans:
        assert event.ts_ns is not None
        assert event.ts_ns > last.get(event.tid, -1)
        last[event.tid] = event.ts_ns
        parent = trace.parent(event)
        if parent is not None:
            assert parent.ts_ns is not None
            assert parent.ts_ns < event.ts_ns
            assert event.end_ns <= parent.end_ns


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_wall_clock_is_set_during_a_run(pressed: Pressed, hours: int) -> None:
    """As NTP or an administrator does. The trace goes on as if nothing had happened."""
    done = pressed(
        f"""
        shim = Shim()
        with dftrace_ai.tracing(flush_interval_ms=1) as run, ai.pipeline.train:
            spans(500)
            run.flush()
            with ai.pipeline.epoch:
                before = time.time(), time.monotonic()
                shim.realtime_ns = {hours * HOUR_NS}
                after = time.time(), time.monotonic()
                spans(500)
                run.flush()
            spans(500)
        stepped = after[0] - before[0] - (after[1] - before[1])
        say(stepped=stepped, took_ns=int(1e9 * (time.monotonic() - before[1])))
        """
    )
    (said,) = done.said
    assert abs(said["stepped"] - 3600 * hours) < 1
    trace = done.trace()
    assert_in_order(trace)
    assert trace.names == {"train": 1, "epoch": 1, "forward": 1500}
    whole = trace.one("train")
    assert whole.dur_ns is not None
    assert 0 < whole.dur_ns < said["took_ns"] + HOUR_NS // 4
    start_s = trace.header["time_base_us"] / 1e6 + (whole.ts_ns or 0) / 1e9
    assert abs(start_s - time.time()) < 1800


@pytest.mark.parametrize("hours", [-1, 1, -24 * 365])
def test_the_wall_clock_is_set_before_a_child_begins(pressed: Pressed, hours: int) -> None:
    """The child's spans are inside of what the parent did meanwhile, as its times are the run's."""
    done = pressed(
        f"""
        shim = Shim()
        with dftrace_ai.tracing(flush_interval_ms=1), ai.pipeline.train:
            spans(10)
            shim.realtime_ns = {hours * HOUR_NS}
            child = os.fork()
            if child == 0:
                spans(100, ai.data.item)
                dftrace_ai.finalize()
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    own, (child,) = done.split(perfetto=False)
    assert_in_order(child)
    assert own.header["time_base_us"] == child.header["time_base_us"]
    train = own.one("train")
    for item in child.named("item"):
        assert item.ts_ns is not None
        assert (train.ts_ns or 0) < item.ts_ns
        assert item.end_ns < train.end_ns


def test_any_wall_clock_is_taken(pressed: Pressed) -> None:
    """Also one that shows less than the machine has been running for, or no year of ours."""
    days = {"1960": -3652, "1970": 0, "february": 31, "2009": 14245, "2200": 84006}
    done = pressed(
        f"""
        shim = Shim()
        folder = Path(os.environ["DFTRACE_LOG_FILE"]).parent
        def recorded(name):
            with dftrace_ai.tracing(log_file=folder / name), ai.pipeline.train:
                spans(100)
                child = os.fork()
                if child == 0:
                    spans(10, ai.data.item)
                    dftrace_ai.finalize()
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        for name, day in {days}.items():
            shim.realtime_ns = (day * 86400 + 7 - int(time.time())) * 10**9
            recorded(name)
            shim.realtime_ns = 0
        time.time_ns = lambda: -5
        time.time = lambda: -5e-9
        recorded("travelled")
        """
    )
    assert len(done.files) == 2 * (len(days) + 1)
    now_day = time.time() / 86400
    for trace in done.traces(perfetto=False):
        assert_in_order(trace)
        assert trace.names in ({"train": 1, "forward": 100}, {"item": 10})
        name = next(n for n in [*days, "travelled"] if trace.path.name.startswith(f"{n}-"))
        first_us = trace.header["time_base_us"] + (trace.spans[0].ts_ns or 0) / 1000
        assert first_us / 86400e6 == pytest.approx(max(days.get(name, now_day), 0), abs=1)


def test_clocks_that_stand_still(pressed: Pressed, shim: Shim) -> None:
    """As a test of the program may have them: it ends, and the order is right."""
    shim.clocks_stand = 1
    done = pressed(
        """
        with dftrace_ai.tracing(), ai.pipeline.train:
            spans(100)
        """
    )
    trace = done.trace()
    assert_in_order(trace)
    assert trace.names == {"train": 1, "forward": 100}


@pytest.mark.parametrize("wall_years", [0, -60])
@pytest.mark.parametrize("age_days", [-1000, -1])
def test_a_clock_that_rises_from_below_zero(
    pressed: Pressed, shim: Shim, wall_years: int, age_days: int
) -> None:
    """As a library shows it that fakes clocks: the C library waits for no such moment."""
    shim.realtime_ns = wall_years * 365 * 24 * HOUR_NS
    shim.monotonic_ns = age_days * 24 * HOUR_NS
    done = pressed(
        """
        with dftrace_ai.tracing(flush_interval_ms=1) as run, ai.pipeline.train:
            spans(100)
            run.flush()
            spans(100)
        """
    )
    assert done.trace(perfetto=False).names == {"train": 1, "forward": 200}


@pytest.mark.parametrize("set_before", ["the first event", "a later event"])
def test_given_times_lie_among_the_measured_ones(pressed: Pressed, set_before: str) -> None:
    """`get_time` and spans tell the same time, whatever happens to the wall clock."""
    done = pressed(
        f"""
        from dftrace_ai import dftracer
        shim = Shim()
        tracer = dftracer.get_instance()
        with dftrace_ai.tracing():
            if "{set_before}" == "a later event":
                spans(1)
            shim.realtime_ns = {HOUR_NS}
            with ai.pipeline.train:
                time.sleep(0.002)
                start = tracer.get_time()
                time.sleep(0.002)
                tracer.log_event("given", "mine", start, 1)
                time.sleep(0.002)
        """
    )
    trace = done.trace(perfetto=False)
    train, given = trace.one("train"), trace.one("given")
    assert (train.ts_ns or 0) < (given.ts_ns or 0)
    assert given.end_ns < train.end_ns


def test_a_machine_that_sleeps(pressed: Pressed) -> None:
    """The hour shows in the span that was open, and nothing after it is an hour behind."""
    done = pressed(
        f"""
        shim = Shim()
        with dftrace_ai.tracing(flush_interval_ms=1, compression="none") as run:
            spans(100)
            run.flush()
            with ai.pipeline.train:
                shim.boottime_ns = {HOUR_NS}
                slept = 0

                def awake():
                    global slept
                    spans(1, ai.compute.step)
                    run.flush()
                    last = Path(run.path).read_text().rpartition('"ts":')[2]
                    first = Path(run.path).read_text().split('"ts":')[1]
                    slept = float(last.split(",")[0]) - float(first.split(",")[0])
                    return slept > 3599e6

                until(awake)
            spans(100, ai.compute.backward)
        """
    )
    trace = done.trace(perfetto=False)
    assert_in_order(trace)
    (train,) = trace.named("train")
    assert train.dur_ns is not None
    assert HOUR_NS < train.dur_ns < HOUR_NS + HOUR_NS // 10
    for event in trace.named("forward") + trace.named("backward"):
        assert event.dur_ns is not None
        assert event.dur_ns < HOUR_NS // 10
    assert min(e.ts_ns or 0 for e in trace.named("backward")) > (train.ts_ns or 0) + HOUR_NS


def clocks_of(trace: Trace) -> list[int]:
    """By how many hours the clocks of the host were further apart than the times of the file are."""
    offset_ns = trace.header["clock_offset_ns"]
    told = [event.args for event in trace.meta("clock")]
    assert all(said["width_ns"] >= 0 for said in told)
    apart = [said["realtime_ns"] - said["boottime_ns"] - offset_ns for said in told]
    return [round(ns / HOUR_NS) for ns in apart]


def test_a_trace_tells_how_the_clocks_of_its_host_stood(pressed: Pressed, shim: Shim) -> None:
    """At both ends of each part, and when a minute has passed; a child's times are its parent's."""
    shim.kept_within_us = 1500
    done = pressed(
        f"""
        shim = Shim()
        folder = Path(os.environ["DFTRACE_LOG_FILE"]).parent
        with dftrace_ai.tracing(log_file=folder / "whole", flush_interval_ms=60000) as run:
            spans(10)
            run.flush()
            shim.realtime_ns = {HOUR_NS}
            spans(10)
            run.flush()
            shim.boottime_ns = 61 * 10**9
            spans(10)
            run.flush()
            spans(10)
            run.flush()
            shim.kept_within_us = 2500
            shim.realtime_ns = {2 * HOUR_NS}
        shim.realtime_ns = shim.boottime_ns = 0
        shim.kept_within_us = -1
        parted = dict(compression="none", max_file_bytes=65536, max_files=3, flush_interval_ms=60000)
        with dftrace_ai.tracing(log_file=folder / "parted", **parted) as run:
            spans(1)
            shim.realtime_ns = {HOUR_NS}
            for _ in range(8):
                spans(300)
                run.flush()
            if not os.fork():
                spans(5, ai.data.item)
                dftrace_ai.finalize()
                os._exit(0)
            os.wait()
        shim.kept_within_us = 0
        if not os.fork():
            dftrace_ai.initialize(log_file=folder / "killed", flush_interval_ms=60000)
            spans(3)
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        """
    )
    adopt_dead(done.folder)
    found: dict[str, list[Trace]] = {}
    for trace in done.traces(perfetto=False):
        # Right behind what the header tells, and right before the last line.
        names = [event.name for event in trace.events]
        assert names[names.index("SH") + 1] == "clock"
        completed = trace.footer["ended"] in {"died", "loader"}
        assert (names[-2] == "clock") != completed
        assert "ntp" not in trace.footer or not completed
        found.setdefault(trace.path.name.partition("-")[0], []).append(trace)
    (whole,) = found["whole"]
    assert clocks_of(whole) == [0, 1, 2]
    names = [event.name for event in whole.events]
    assert [names[:at].count("forward") for at, name in enumerate(names) if name == "clock"] == [
        0,
        30,
        40,
    ]
    kept = {"synchronised": True, "estimated_error_us": 20, "frequency_ppm": 12.25}
    assert whole.header["ntp"] == {**kept, "max_error_us": 1500}
    assert whole.footer["ntp"] == {**kept, "max_error_us": 2500}

    (child,) = [trace for trace in found["parted"] if "item" in trace.names]
    parts = [trace for trace in found["parted"] if trace is not child]
    assert len(parts) == 3
    assert min(part.header["part"] for part in parts) > 0  # the first is deleted
    offset = child.header["clock_offset_ns"]
    assert {part.header["clock_offset_ns"] for part in parts} == {offset}
    assert clocks_of(child) == [1]
    assert [clocks_of(part) for part in parts] == [[1, 1]] * 3
    assert not any("ntp" in said for part in parts for said in (part.header, part.footer))

    (killed,) = found["killed"]
    assert clocks_of(killed) == [0]
    assert killed.header["boot_id"] == whole.header["boot_id"]
    assert killed.header["ntp"].keys() == whole.header["ntp"].keys()
    assert "ntp" not in killed.footer


def test_processes_of_one_host_are_brought_to_one_clock(pressed: Pressed) -> None:
    """Three ranks that read a wall clock each; it was set before the third began."""
    done = pressed(
        f"""
        shim = Shim()
        folder = Path(os.environ["DFTRACE_LOG_FILE"]).parent
        hears, tells = os.pipe()
        heard, told = os.pipe()

        def rank(number, work):
            if not os.fork():
                dftrace_ai.initialize(log_file=folder / "t", rank=number, world_size=3)
                work()
                dftrace_ai.finalize()
                os._exit(0)

        def outer():
            with ai.pipeline.train:
                os.write(tells, b"1")
                os.read(heard, 1)

        rank(0, outer)
        rank(1, lambda: spans(3, ai.data.item))
        os.read(hears, 1)
        os.waitpid(-1, 0)
        shim.realtime_ns = {HOUR_NS} // 4
        rank(2, lambda: spans(3))
        os.waitpid(-1, 0)
        os.write(told, b"1")
        os.waitpid(-1, 0)
        """
    )
    traces = open_traces([done.folder], run="all")
    with TraceTables(traces) as tables:
        rows = tables.query(
            "select name, min(start_ns), max(end_ns) from spans group by name"
        ).rows()
    lies = {name: (first, last) for name, first, last in rows}
    assert lies["train"][0] < lies["forward"][0] < lies["forward"][1] < lies["train"][1]
    told = (
        "clocks: 1 file moved by up to 900.000 s: the wall clock of a host was set between the "
        "beginnings of its processes"
    )
    assert told in tables.notes
    # What was given is as it was.
    bases = {trace.header.time_base_us for trace in traces if trace.header}
    assert len(bases) == 1
    merged = MergedTrace(traces)
    shown = [json.loads(line) for line in b"".join(merged).splitlines()[1:]]
    at = {one["name"]: (one["ts"], one["ts"] + one["dur"]) for one in shown if one["ph"] == "X"}
    assert at["train"][0] < at["forward"][0] < at["forward"][1] < at["train"][1]
    assert told in merged.told
    job = Job(traces, all_starts=True)
    processes = [one.process if isinstance(one, Rank) else one for one in job]
    reaches = {process.number: process.spans.reach for process in processes}
    assert reaches[0].first_ns < reaches[2].first_ns < reaches[2].last_ns < reaches[0].last_ns
    assert told in job.facts.notes
