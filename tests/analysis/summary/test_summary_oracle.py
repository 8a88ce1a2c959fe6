"""Summaries and a computation of the test's own agree on any trace."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from analysis.summary.any_traces import traces, write
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.choosing import summarise_chosen, summarise_tree
from dftrace_ai.analysis.summary.rows import Row
from dftrace_ai.analysis.summary.table import Summary, summarise
from dftrace_ai.analysis.where import where_of


def number_of(value: Any) -> Any:
    """A number that stands in a text is one."""
    if not isinstance(value, str) or value != value.strip():
        return value
    try:
        number = json.loads(value, parse_float=Decimal, parse_constant=refuse)
    except ValueError:
        return None
    return number if type(number) in {int, Decimal} else None


MOST_NS = 4_600_000_000_000_000_000


def nanoseconds(value: Any, *, of_a_moment: bool = False) -> int | None:
    """None for what is no number; what is beyond all times is the last moment, and no length."""
    number = number_of(value)
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        return None
    ns = math.floor(abs(Fraction(number)) * 1000 + Fraction(1, 2))
    if ns > MOST_NS:
        if not of_a_moment:
            return None
        ns = MOST_NS
    return -ns if number < 0 else ns


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
        dur, start = nanoseconds(event.get("dur")), nanoseconds(event.get("ts"), of_a_moment=True)
        if dur is None or dur < 0:
            unreadable += 1
            continue
        given = [number_of(event.get(key)) for key in ("pid", "tid")]
        whole = [number if isinstance(number, int) else 0 for number in given]
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
    def ns(row: Row) -> tuple[int, ...]:
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


@settings(max_examples=200, deadline=None)
@given(lines=traces(), codec=st.sampled_from(["", ".gz", ".zst"]), size=st.integers(1, 30))
def test_summaries_are_those_of_the_test(lines: list[bytes], codec: str, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(lines, Path(folder), codec, size)
        found = summarise([path])
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


@settings(max_examples=40, deadline=None)
@given(lines=traces(), codec=st.sampled_from(["", ".gz"]), size=st.integers(1, 30))
def test_the_tree_and_what_is_chosen_agree_with_the_plain_summary(
    lines: list[bytes], codec: str, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(lines, Path(folder), codec, size)
        plain = summarise([path])
        opened = open_traces([path])
        chosen = summarise_chosen(opened.files, opened.skipped, None)
        condition = "cat = 'compute' and dur_us >= 2 or name like 'it%'"
        some = summarise_chosen(opened.files, opened.skipped, None, where_of(condition))
        _, tree = summarise_tree(opened.files, opened.skipped)

    def apart_from_self(row: Row) -> dict[str, Any]:
        return {
            name: value for name, value in vars(row).items() if name not in {"self_us", "share"}
        }

    assert list(map(apart_from_self, chosen.spans)) == list(map(apart_from_self, plain.spans))
    assert chosen.others == plain.others
    # What is said of the files is found by either way to read them.
    for fact in ("files", "events", "unreadable_lines", "reach", "notes", "skipped"):
        assert getattr(chosen, fact) == getattr(plain, fact), fact
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
