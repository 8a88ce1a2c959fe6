"""The native reader, the one in Python, and a computation of the test's own agree on any trace."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary import adding
from dftrace_ai.analysis.summary.choosing import summarise_chosen
from dftrace_ai.analysis.summary.figures import SpanRow, Summary, summarise
from dftrace_ai.analysis.summary.totals import PlainTotals
from dftrace_ai.analysis.summary.tree import tree_of
from dftrace_ai.analysis.where import where_of

NAMES = ["forward", 'it"em', "läs\\", "a\nb", "x" * 250, "\U0001f600", "CM", ""]
HASH = "08cf3707b570dbec"


@dataclass(frozen=True)
class Event:
    """What a line says, apart from how it is written."""

    ph: str
    name: str
    cat: str
    pid: int
    tid: int
    start_ns: int
    dur_ns: int
    parent: int | None
    args: dict[str, Any]


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", 'say "hi"', "ä", "\\", "\x7f", "}}", "tab\t"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["a", "ä"]), st.integers(0, 3), max_size=2),
)
events = st.builds(
    Event,
    ph=st.sampled_from("XXXXXXXBiCsfMb"),
    name=st.sampled_from(NAMES),
    cat=st.sampled_from(["compute", "data", 'c"t']),
    pid=st.sampled_from([1, 4211]),
    tid=st.sampled_from([1, 4211, 0x40000000]),
    start_ns=st.integers(0, 60).map(lambda n: n * 500),
    dur_ns=st.integers(0, 20).map(lambda n: n * 500),
    parent=st.one_of(st.none(), st.integers(0, 4)),
    args=st.dictionaries(st.sampled_from(["epoch", "step", "ä", 'q"']), values, max_size=3),
)
odd_lines = st.sampled_from(
    [
        "", "[", "]", "  ", "nonsense", '{"half":', "[1,2]", "{}", "null", '"text"', "{} {}",
        '{"ph":"X","name":"no time"}', '{"ph":"X","name":"t","dur":"5"}', '{"ph":"X","name":"t","dur":-1}',
        '{"ph":"X","name":"t","dur":true}', '{"ph":5,"name":"t"}', '{"ph":1,"name":"n","dur":3}', '{"ph":2,"name":"n"}', '{"ph":true,"name":"n"}',
        '{"ph":4,"name":"thread_name"}', '{"ph":1.0,"name":"n"}', '{"ph":"X","name":null,"dur":1}',
        '{"ph":"X","name":"r","cat":7,"dur":0.0005}', '{"ph":"X","name":"r","dur":2.00049999999999999999999999999999}',
        '{"ph":"X","name":"r","dur":1e3}', '{"ph":"X","name":"r","dur":12E-4,"ts":5}', '{"ph":"X","name":"r","dur":9e99}',
        '{"ph":"X","name":"r","dur":4600000000000000}', '{"ph":"X","name":"r","dur":4600000000000001}',
        '{"ph":"X","name":"\\u0066\\ud83d\\ude00","dur":1.5}', '{"ph":"X","name":"\\ud83d","dur":1}',
        '{"n\\u0061me":"by escape","ph":"X","dur":3},', '{"ph":"","name":"none"}', '{"ph":"XX","name":"two"}',
        '{"ph":"X","name":"deep","dur":1,"args":' + "[" * 150 + "]" * 150 + "}",
        '{"ph":"X","name":"too deep","dur":1,"args":' + "[" * 300 + "]" * 300 + "}",
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":01.000,"dur":2.000,"ph":"X","args":{"hhash":"x"}}',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.000,"dur":2.000,"ph":"X","args":{"hhash":"x",}}',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.000,"dur":2.000,"ph":"X","args":{"hhash":"x","k":01}}',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.000,"dur":2.000,"ph":"X","args":{"hhash":"x","k":"\\u00zz"}}',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.0,"dur":2.0000,"ph":"X","args":{"hhash":"x"}}',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.000,"dur":2.000,"ph":"X","args":{"hhash":"x"}} ',
        '{"id":1,"name":"a","cat":"b","pid":1,"tid":1,"ts":1.000,"ph":"C","args":{}}',
        '{"id":99999999999999999999,"name":"a","cat":"b","pid":-5,"tid":1.5,"ts":-3,"dur":2,"ph":"X"}',
    ]
)  # fmt: skip
bad_bytes = st.sampled_from(
    [b'{"ph":"X","name":"\xff","dur":1}', b'{"ph":"i","name":"\xed\xa0\x80"}']
)


def micros(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def in_layout(event: Event, ascii: bool, epoch: bool) -> str:
    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii, separators=(",", ":"))

    own = (
        {"hhash": HASH}
        if event.parent is None
        else {"hhash": HASH, "p_idx": event.parent, "level": 1}
    )
    times = (event.start_ns, event.start_ns + event.dur_ns)
    if epoch:
        ts, dur = str(times[0] // 1000), str(times[1] // 1000 - times[0] // 1000)
    else:
        ts, dur = micros(times[0]), micros(event.dur_ns)
    head = f'{{"id":7,"name":{text(event.name)},"cat":{text(event.cat)},"pid":{event.pid},"tid":{event.tid},'
    numbers = {
        k: v
        for k, v in event.args.items()
        if isinstance(v, int | float) and not isinstance(v, bool)
    }
    tail = {
        "X": f'"ts":{ts},"dur":{dur},"ph":"X","args":{text({**own, **event.args})}',
        "i": f'"ts":{ts},"ph":"i","s":"t","args":{text({**own, **event.args})}',
        "C": f'"ts":{ts},"ph":"C","args":{text(numbers)}',
        "s": f'"ts":{ts},"ph":"s"',
        "f": f'"ts":{ts},"ph":"f","bp":"e"',
        "M": f'"ph":"M","args":{text(own)}',
    }
    return (
        head
        + tail.get(event.ph, f'"ts":{ts},"ph":"{event.ph}","args":{text({**own, **event.args})}')
        + "}"
    )


def foreign(event: Event, ascii: bool) -> str:
    members = {
        "args": {**event.args, "p_idx": event.parent},
        "dur": event.dur_ns / 1000,
        "ph": event.ph,
        "tid": event.tid,
        "pid": event.pid,
        "ts": event.start_ns / 1000,
        "name": event.name,
        "cat": event.cat,
    }
    return " " + json.dumps(members, ensure_ascii=ascii) + ",\r"


@st.composite
def traces(draw: Any) -> list[bytes]:
    style = draw(st.sampled_from(["ours", "ours", "ours in order", "epoch", "foreign", "mixed"]))
    ascii = draw(st.booleans())
    found = draw(st.lists(events, max_size=40))
    if style == "ours in order":
        found.sort(key=lambda event: event.start_ns + event.dur_ns)
    lines = [
        (
            foreign(event, ascii)
            if style == "foreign" or (style == "mixed" and event.start_ns % 1000)
            else in_layout(event, ascii, style == "epoch")
        ).encode()
        for event in found
    ]
    for odd in draw(st.lists(st.one_of(odd_lines.map(str.encode), bad_bytes), max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), odd)
    return [b"[", *lines]


def blocks(lines: list[bytes], size: int) -> list[bytes]:
    text = [line + b"\n" for line in lines]
    return [b"".join(text[at : at + size]) for at in range(0, len(text), size)]


def write(lines: list[bytes], folder: Path, codec: str, size: int) -> Path:
    path = folder / f"t.pfw{codec}"
    pack: Callable[[bytes], bytes] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[
        codec
    ]
    path.write_bytes(b"".join(map(pack, blocks(lines, size))))
    return path


def nanoseconds(number: Any) -> int | None:
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        return None
    ns = math.floor(abs(Fraction(number)) * 1000 + Fraction(1, 2))
    return (-ns if number < 0 else ns) if ns <= 4_600_000_000_000_000_000 else None


def covered(intervals: list[list[int]]) -> int:
    total, until = 0, -(2**63)
    for start, duration, _ in sorted(intervals):
        total += max(0, start + duration - max(start, until))
        until = max(until, start + duration)
    return total


def letter(ph: Any) -> Any:
    """dftracer's numbers of phases."""
    numbered = type(ph) is int and 1 <= ph <= 4
    return "XCiM"[ph - 1] if numbered else ph


def refuse(text: str) -> None:
    raise ValueError(text)


def event_in(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None where it holds none that may be read."""
    try:
        event: dict[str, Any] = json.loads(
            line.strip().removesuffix(b",").decode(), parse_float=Decimal, parse_constant=refuse
        )
        json.dumps(event, ensure_ascii=False, default=str).encode()
        well = (
            isinstance(event["name"], str)
            and isinstance(letter(event["ph"]), str)
            and b"[" * 201 not in line
        )
    except (ValueError, KeyError, TypeError):
        return None
    return event if well else None


def finished_spans(lines: list[bytes]) -> list[tuple[str, str, int, dict[str, Any]]]:
    """Category, name, duration and line of each finished span, with its number in `at`."""
    found = []
    for at, line in enumerate(lines):
        event = event_in(line)
        dur = nanoseconds(event.get("dur")) if event else None
        if event is None or letter(event["ph"]) != "X" or dur is None or dur < 0:
            continue
        cat = event.get("cat", "")
        cat = cat if isinstance(cat, str) else ""
        found.append((cat, event["name"], dur, {**event, "at": at}))
    return found


def oracle(lines: list[bytes]) -> dict[str, Any]:
    spans: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    others: Counter[tuple[str, str, str]] = Counter()
    tracks: defaultdict[tuple[int, int], list[list[Any]]] = defaultdict(list)
    events = unreadable = 0
    for line in lines:
        bare = line.strip()
        if bare in {b"", b"[", b"]"}:
            continue
        event = event_in(bare)
        if event is None:
            unreadable += 1
            continue
        ph, name, cat = letter(event["ph"]), event["name"], event.get("cat", "")
        cat = cat if isinstance(cat, str) else ""
        if ph == "M" and name != "CM":
            continue
        events += 1
        if ph != "X":
            others[ph, cat, name] += 1
            continue
        dur, start = nanoseconds(event.get("dur")), nanoseconds(event.get("ts"))
        if dur is None or dur < 0:
            unreadable += 1
            continue
        whole = [event.get(key) if isinstance(event.get(key), int) else 0 for key in ("pid", "tid")]
        span = [start, dur, dur]
        spans[cat, name].append(span)  # type: ignore[arg-type]
        if start is not None:
            tracks[whole[0], whole[1]].append(span)
    for track in tracks.values():
        track.sort(key=lambda span: (span[0] + span[1], -span[0]))
        inside_of: defaultdict[int, list[list[Any]]] = defaultdict(list)
        for number, inner in enumerate(track):
            outer = next(
                (
                    o
                    for o in range(number + 1, len(track))
                    if track[o][0] <= inner[0] and track[o][1]
                ),
                None,
            )
            if outer is not None and inner[1]:
                inside_of[outer].append(inner)
        for outer, inners in inside_of.items():
            track[outer][2] -= covered(inners)
    return {
        "spans": {key: (len(of), sum(s[1] for s in of), sum(s[2] for s in of), min(s[1] for s in of), max(s[1] for s in of)) for key, of in spans.items()},
        "others": others,
        "events": events,
        "unreadable": unreadable,
    }  # fmt: skip


def figures(found: Summary) -> dict[str, Any]:
    def ns(row: SpanRow) -> tuple[int, ...]:
        assert row.self_us is not None
        return (
            row.count,
            *(round(us * 1000) for us in (row.total_us, row.self_us, row.min_us, row.max_us)),
        )

    return {
        "spans": {(row.cat, row.name): ns(row) for row in found.spans},
        "events": found.events,
        "unreadable": found.unreadable_lines,
    }


def in_python(path: Path, monkeypatch: pytest.MonkeyPatch) -> Summary:
    with monkeypatch.context() as patch:
        patch.setattr(adding, "new_totals", PlainTotals)
        return summarise([path])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=traces(), codec=st.sampled_from(["", ".gz", ".zst"]), size=st.integers(1, 30))
def test_all_three_agree(
    lines: list[bytes], codec: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(lines, Path(folder), codec, size)
        found = summarise([path])
        assert found == in_python(path, monkeypatch)
    told = figures(found)
    truth = oracle(lines)
    kinds = adding_kinds(truth.pop("others"))
    # Of durations beyond 2^53 ns the printed microseconds are the nearest there are.
    small = {key: row for key, row in truth["spans"].items() if row[1] < 2**50}
    assert {key: told["spans"][key] for key in small} == small
    assert set(told["spans"]) == set(truth["spans"])
    assert (told["events"], told["unreadable"]) == (truth["events"], truth["unreadable"])
    assert {(row.kind, row.cat, row.name): row.count for row in found.others} == kinds


def adding_kinds(others: Counter[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    nouns = {
        "B": "unfinished span",
        "i": "instant",
        "C": "counter",
        "s": "flow",
        "f": "flow",
        "M": "metadata",
    }
    counts: Counter[tuple[str, str, str]] = Counter()
    for (ph, cat, name), count in others.items():
        counts[nouns.get(ph, f"ph {ph!r}"), cat, name] += count
    return dict(counts)


def tree_oracle(lines: list[bytes]) -> dict[tuple[str, ...], list[int]]:
    """Count, total and own time of each place: that of the last before a span that encloses it."""
    found: list[tuple[Any, ...]] = []
    for cat, name, dur, event in finished_spans(lines):
        start, at = nanoseconds(event.get("ts")), event["at"]
        whole = [event.get(key) for key in ("pid", "tid", "id")]
        pid, tid, own_id = (each if isinstance(each, int) else 0 for each in whole)
        timed = start is not None and start >= 0
        track = (pid, tid) if timed else (at,)
        own_id = own_id if 0 <= own_id < 2**63 else 0
        start = start or 0
        found.append((track, start, -(start + dur), own_id, -at, dur, f"{cat}.{name}"))
    found.sort(key=lambda span: (str(span[0]), *span[1:5]))
    paths: list[tuple[str, ...]] = []
    inside: defaultdict[int, list[list[int]]] = defaultdict(list)
    for at, (track, start, end, *_, dur, named) in enumerate(found):
        around = next(
            (
                before
                for before in range(at - 1, -1, -1)
                if found[before][0] == track
                and found[before][2] <= end
                and (-found[before][2] > start or found[before][2] == end)
            ),
            None,
        )
        paths.append((*(paths[around] if around is not None else ()), named))
        if around is not None:
            inside[around].append([start, dur, 0])
    sums: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for at, path in enumerate(paths):
        dur = found[at][5]
        sums[path] = [
            each + more
            for each, more in zip(sums[path], (1, dur, dur - covered(inside[at])), strict=True)
        ]
    return dict(sums)


@settings(max_examples=40, deadline=None)
@given(lines=traces(), codec=st.sampled_from(["", ".gz"]), size=st.integers(1, 30))
def test_the_tree_and_what_is_chosen_agree_with_the_plain_summary(
    lines: list[bytes], codec: str, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(lines, Path(folder), codec, size)
        plain = summarise([path])
        opened = open_traces([path])
        chosen = summarise_chosen(opened.files, opened.skipped, None).summary
        condition = "cat = 'compute' and dur_us >= 2 or name like 'it%'"
        some = summarise_chosen(opened.files, opened.skipped, None, where_of(condition)).summary
        tree = list(tree_of(opened.files).rows())

    def apart_from_self(row: SpanRow) -> dict[str, Any]:
        return {name: value for name, value in vars(row).items() if name != "self_us"}

    assert list(map(apart_from_self, chosen.spans)) == list(map(apart_from_self, plain.spans))
    assert chosen.others == plain.others
    if not any(b"4600000000000000" in line for line in lines):
        truth = tree_oracle(lines)
        told = {
            row.path: [row.count, round(row.total_us * 1000), round(row.self_us * 1000)]
            for row in tree
        }
        assert told == truth
    assert all(row.path[:-1] in {other.path for other in tree} or not row.path[1:] for row in tree)
    own: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in tree:
        own[row.cat, row.name] += row.self_us
    assert own == pytest.approx({(row.cat, row.name): row.self_us for row in chosen.spans})
    expected = Counter(
        (cat, name)
        for cat, name, dur_ns, _ in finished_spans(lines)
        if (cat == "compute" and dur_ns >= 2000) or name.startswith("it")
    )
    assert {(row.cat, row.name): row.count for row in some.spans} == expected
