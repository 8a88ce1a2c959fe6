"""Holds what Perfetto shows of a trace against what its lines say, event by event."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfetto import engine, model
from perfetto.engine import Scalar, Slice, View
from perfetto.trace_file import LANE, Event, Sample, Trace

REAL_TOLERANCE = 1e-15  # its decimal reader may miss the last binary place of a double
TINY = 2.3e-308  # and takes subnormal numbers for 0


def agree(traces: Trace | Sequence[Trace]) -> View:
    """Asserts that the engine shows exactly the events of the traces; gives its view.

    Several traces are opened together, on one timeline.
    """
    many = [traces] if isinstance(traces, Trace) else list(traces)
    view = engine.view([t.path for t in many])
    assert view.answer.load_ok, view.answer.load_error
    assert not view.answer.stats, view.answer.stats
    timed = [e for t in many for e in t.of("X", "B", "i")]
    assert len(view.slices) == len(timed), (len(view.slices), len(timed))
    if any(t.header["timestamps"] == "epoch_us" for t in many):
        _same_multiset(view, timed)
    else:
        shown = _pair(view, timed)
        for trace in many:
            _same_parents(trace, view, shown)
            _same_arrows(trace, view, shown)
    _same_counters(view, [e for t in many for e in t.of("C")])
    _same_names(view, many)
    if samples := [sample for t in many for sample in t.samples]:
        _same_samples([t.path for t in many], samples)
    return view


def _key(place: Slice | Event, dur_ns: int, name: str) -> tuple[object, ...]:
    return place.pid, place.tid, place.ts_ns, dur_ns, name


def expected(e: Event) -> tuple[str, str, int, list[tuple[str, Scalar]]]:
    """Name, category, duration and flat arguments that the engine should show."""
    # Where nothing is escaped, strings stand in the line as they are.
    escaped = "\\" in e.line
    raw = model.literals(e.line) if escaped else {"name": e.name, "cat": e.cat, "args": e.args}
    dur = {"B": -1, "i": 0}.get(e.ph, e.dur_ns)
    assert dur is not None
    args = list(model.flattened(raw["args"]))
    return model.shown(raw["name"]), model.shown(raw["cat"]), dur, args


def _pair(view: View, timed: Iterable[Event]) -> dict[int, Slice]:
    """The slice of every event, by id(event)."""
    slices = {_key(s, s.dur_ns, s.name): s for s in view.slices}
    assert len(slices) == len(view.slices), "two slices of one name begin and end together"
    pairs: dict[int, Slice] = {}
    for e in timed:
        name, cat, dur, args = expected(e)
        s = slices.get(_key(e, dur, name))
        assert s is not None, f"not shown: {e.line[:300]}"
        assert s.cat == cat, (e.line[:300], s)
        _same_args(s.args, args, e)
        pairs[id(e)] = s
    return pairs


def _same_args(shown: list[tuple[str, Scalar]], want: list[tuple[str, Scalar]], e: Event) -> None:
    assert len(shown) == len(want), (shown, want)
    for (key, value), (want_key, wanted) in zip(_by_key(shown), _by_key(want), strict=True):
        assert key == want_key, (key, want_key, e.line[:300])
        assert same_value(value, wanted), (key, value, wanted)


def _by_key(args: list[tuple[str, Scalar]]) -> list[tuple[str, Scalar]]:
    return sorted(args, key=lambda pair: (pair[0], repr(pair[1])))


def same_value(shown: Scalar, wanted: Scalar) -> bool:
    """Equal and of one type; a double may differ in its last place."""
    if isinstance(shown, float) and isinstance(wanted, float):
        return math.isclose(shown, wanted, rel_tol=REAL_TOLERANCE, abs_tol=TINY)
    return (type(shown), shown) == (type(wanted), wanted)


def on_track(trace: Trace, e: Event) -> Event | None:
    """The nearest span above, by p_idx, that lies on the same track.

    A lane is shared by spans that do not overlap, so that one above may be over there.
    """
    assert e.ts_ns is not None
    end_ns = e.ts_ns + (e.dur_ns or 0)
    up = trace.parent(e)
    while up is not None:
        over = e.tid >= LANE and up.dur_ns is not None and up.end_ns < end_ns
        if up.tid == e.tid and not over:
            break
        up = trace.parent(up)
    return up


def _same_parents(trace: Trace, view: View, shown: dict[int, Slice]) -> None:
    for e in trace.of("X", "B", "i"):
        up = on_track(trace, e)
        s = shown[id(e)]
        drawn = view.parent(s)
        want = shown[id(up)] if up is not None else None
        if e.tid >= LANE and up is None and drawn is not None:
            continue  # a lane of spans that do not nest may stack what falls inside by chance
        assert drawn == want, (e.line[:300], drawn, want)


def _same_arrows(trace: Trace, view: View, shown: dict[int, Slice]) -> None:
    """Every arrow joins the spans that were open where its ends were written."""
    ends = Counter(e.id for e in trace.of("f"))
    starts = Counter(e.id for e in trace.of("s"))
    wanted = sum(n for i, n in ends.items() if starts[i])
    mine = {s.id for s in shown.values()}
    drawn = [f for f in view.flows if f.slice_out in mine and f.slice_in in mine]
    assert len(drawn) >= wanted, (drawn, wanted)


def _same_multiset(view: View, timed: Iterable[Event]) -> None:
    """Whole microseconds repeat on a thread, so events are matched by all they hold."""
    left: dict[tuple[object, ...], list[Slice]] = {}
    for s in view.slices:
        left.setdefault((*_key(s, s.dur_ns, s.name), s.cat, s.arg.get("p_idx")), []).append(s)
    for e in timed:
        name, cat, dur, args = expected(e)
        alike = left.get((*_key(e, dur, name), cat, e.p_idx), [])
        for i, s in enumerate(alike):
            pairs = zip(_by_key(s.args), _by_key(args), strict=False)
            if len(s.args) == len(args) and all(
                a[0] == b[0] and same_value(a[1], b[1]) for a, b in pairs
            ):
                del alike[i]
                break
        else:
            raise AssertionError(f"not shown: {e.line[:300]}; nearest {alike[:3]}")


def _same_counters(view: View, samples: Iterable[Event]) -> None:
    want = []
    for e in samples:
        raw = model.literals(e.line)
        for key, value in raw["args"].items():
            want.append((e.pid, model.track(raw["name"], key), e.ts_ns, float(value)))
    got = [(c.pid, c.track, c.ts_ns, float(c.value)) for c in view.counters]
    got.sort(key=lambda sample: (sample[:3], sample[3]))
    want.sort(key=lambda sample: (sample[:3], sample[3]))
    assert [sample[:3] for sample in got] == [sample[:3] for sample in want]
    for (*_, drawn), (*place, value) in zip(got, want, strict=True):
        assert math.isclose(drawn, value, rel_tol=REAL_TOLERANCE), (place, drawn, value)


# Threads, times and innermost functions of samples of stacks.
SAMPLES = """
    SELECT t.tid tid, s.ts ts, f.name name FROM cpu_profile_stack_sample s
    JOIN thread t USING (utid) JOIN stack_profile_callsite c ON s.callsite_id = c.id
    JOIN stack_profile_frame f ON c.frame_id = f.id"""


def _same_samples(paths: Sequence[Path], samples: Iterable[Sample]) -> None:
    shown = Counter((r["tid"], r["ts"], r["name"]) for r in engine.query(paths, SAMPLES).rows())
    want = Counter((s.tid, s.ts_us * 1000, s.frames[0].shown) for s in samples)
    assert shown == want


def _same_names(view: View, traces: Iterable[Trace]) -> None:
    for t in traces:
        pid = t.events[0].pid
        assert view.process_names[pid] == model.shown(
            model.literals(t.meta("process_name")[0].line)["args"]["name"]
        )
        for e in t.meta("thread_name"):
            if e.args["name"] == t.thread_names[e.tid] and (pid, e.tid) in view.thread_names:
                raw = model.literals(e.line)["args"]["name"]
                assert view.thread_names[(pid, e.tid)] == model.shown(raw)
