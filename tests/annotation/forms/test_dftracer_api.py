"""The dftracer object: initialize_log, events written by hand, finalize."""

from __future__ import annotations

from pathlib import Path

from conftest import RunScript, trace_files
from perfetto.agreement import agree
from perfetto.trace_file import read

from dftrace_ai import ai, dftracer


def test_a_run_by_the_dftracer_api(tmp_path: Path) -> None:
    log = dftracer.initialize_log(logfile=str(tmp_path / "log"), data_dir="/data", process_id=5)
    try:
        assert dftracer.get_instance() is log
        with ai.compute.forward:
            start = log.get_time()
            log.enter_event()
            with ai.compute.step:
                pass
            end = log.get_time()
            log.log_event(
                name="custom",
                cat="app",
                start_time=start,
                duration=end - start,
                int_args={"epoch": 1},
                float_args={"ratio": 0.5},
                string_args={"path": "/x"},
            )
            log.exit_event()
        log.log_metadata_event("key", "value")
    finally:
        log.finalize()
    (path,) = trace_files(tmp_path)
    assert path.name.startswith("log-")
    t = read(path, ended="finalize")
    agree(t)
    custom = t.one("custom")
    assert (custom.cat, custom.user) == ("app", {"epoch": 1, "ratio": 0.5, "path": "/x"})
    assert custom.ts_ns is not None
    assert custom.dur_ns is not None
    assert custom.ts_ns // 1000 + t.header["time_base_us"] == start
    assert custom.dur_ns == (end - start) * 1000
    assert t.marks == [("key", "value")]
    assert type(start) is int
    assert start <= end
    log.finalize()


def test_events_written_by_hand_in_any_order_and_overlapping(tmp_path: Path) -> None:
    """Spans told after the fact may overlap and repeat; each is shown all the same."""
    log = dftracer.initialize_log(logfile=str(tmp_path / "log"))
    try:
        t0 = log.get_time()
        told = [
            ("late", 500, 100),
            ("early", 0, 300),
            ("overlaps", 200, 400),
            ("inside", 50, 100),
            ("same", 50, 100),
            ("zero", 60, 0),
            ("again", 0, 300),
        ]
        for name, start, duration in told:
            log.log_event(name, "app", t0 + start, duration)
    finally:
        log.finalize()
    t = read(trace_files(tmp_path)[0])
    view = agree(t)
    base = t.header["time_base_us"]
    want = {name: ((t0 + start - base) * 1000, dur * 1000) for name, start, dur in told}
    assert {e.name: (e.ts_ns, e.dur_ns) for e in t.spans} == want
    assert {s.name: (s.ts_ns, s.dur_ns) for s in view.slices} == want


def test_hostile_events_by_hand(tmp_path: Path) -> None:
    log = dftracer.initialize_log(logfile=str(tmp_path / "log"))
    try:
        now = log.get_time()
        log.log_event("neg", "app", now, -5)
        log.log_event("ancient", "app", 0, 1)
        log.log_event('quo"te\\', "c\n", now, 1, string_args={"s": "\ud800\\"})
        log.log_event("huge", "app", now, 1, int_args={"n": 2**70}, float_args={"f": float("nan")})
        log.log_event("good", "app", now, 1)
    finally:
        log.finalize()
    t = read(trace_files(tmp_path)[0])
    agree(t)
    assert t.names["good"] == 1
    assert t.names['quo"te\\'] == 1
    assert t.names["huge"] == 1


def test_the_environment_names_the_file(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script(
        """
        from dftrace_ai import ai, dftracer

        log = dftracer.initialize_log()
        with ai.compute.forward:
            pass
        log.finalize()
        """,
        env={"DFTRACE_LOG_FILE": "", "DFTRACER_LOG_FILE": str(tmp_path / "alias")},
    )
    assert done.files == []
    (path,) = [f for f in trace_files(tmp_path) if f.name.startswith("alias-")]
    assert read(path).names == {"forward": 1}
