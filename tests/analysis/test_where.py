"""Conditions on events, held against the same in Python; what is no condition is told."""

from __future__ import annotations

from typing import Any

import pytest
from analysis.trace_lines import TraceLines

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.event_columns import EventColumns, event_columns
from dftrace_ai.analysis.where import FIELDS, where_of
from dftrace_ai.errors import ConfigError


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> EventColumns:
    trace = TraceLines(100, rank=3)
    for step in range(4):
        trace.span("forward", "compute", step * 10_000, 1000 * step, step=step, note="a'b")
        trace.span("all_reduce", "comm", step * 10_000, 500, tid=7, ok=step > 1, none=None)
    trace.span('it"s %', "data", 0, 5, like="x", size=[1])
    trace.instant("best", 5, step=2)
    trace.span("[a*]" + "a" * 3_000, "data", 0, 5)
    path = trace.write(tmp_path_factory.mktemp("where") / "t.pfw.gz")
    (found,) = event_columns(open_traces([path]))
    return found


def rows(columns: EventColumns, holds: Any) -> list[int]:
    found = []
    for row in range(len(columns)):
        label = columns.labels[int(columns.label[row])]
        dur = int(columns.dur_ns[row])
        args = columns.args(row)
        facts = {"cat": label.cat, "name": label.name, "tid": int(columns.tid[row])}
        if holds({**facts, "dur": dur / 1000 if dur >= 0 else None}, args):
            found.append(row)
    return found


CASES: dict[str, Any] = {
    "cat = 'comm'": lambda e, a: e["cat"] == "comm",
    'cat == "comm"': lambda e, a: e["cat"] == "comm",
    "cat != 'comm'": lambda e, a: e["cat"] != "comm",
    "cat <> 'comm'": lambda e, a: e["cat"] != "comm",
    "name like 'f%d'": lambda e, a: e["name"] == "forward",
    "name like '____'": lambda e, a: len(e["name"]) == 4,
    "name not like 'f%'": lambda e, a: not e["name"].startswith("f"),
    "name like '%\"s %'": lambda e, a: '"s ' in e["name"],
    "name like '[a*]%'": lambda e, a: e["name"].startswith("[a*]"),
    # In so many ways that trying them all would never end.
    f"name like '{'%a' * 30}b'": lambda e, a: False,
    "args.note = 'a''b'": lambda e, a: a.get("note") == "a'b",
    "dur_us > 1": lambda e, a: e["dur"] is not None and e["dur"] > 1,
    "dur_us >= 1.0 and dur_us<=2": lambda e, a: e["dur"] is not None and 1 <= e["dur"] <= 2,
    "dur_us < 0.5": lambda e, a: e["dur"] is not None and e["dur"] < 0.5,
    "args.step in (1, 3)": lambda e, a: a.get("step") in (1, 3),
    "args.step not in (1, 3)": lambda e, a: "step" in a and a["step"] not in (1, 3),
    "not args.step in (1, 3)": lambda e, a: a.get("step") not in (1, 3),
    "args.step != 2": lambda e, a: "step" in a and a["step"] != 2,
    "args.step = '2'": lambda e, a: False,
    "args.ok = true": lambda e, a: a.get("ok") is True,
    "args.none = null": lambda e, a: "none" in a,
    "args.none > null": lambda e, a: False,
    "args.like = 'x'": lambda e, a: "like" in a,
    "args.size != 1": lambda e, a: "size" in a,
    "tid = 7": lambda e, a: e["tid"] == 7,
    "rank = 3 and pid = 100": lambda e, a: True,
    "rank != 3 or host = 'elsewhere'": lambda e, a: False,
    "host = 'host' AND NOT cat = 'comm'": lambda e, a: e["cat"] != "comm",
    "cat = 'comm' or cat = 'data' and dur_us > 1": lambda e, a: e["cat"] == "comm",
    "(cat = 'comm' or cat = 'compute') and args.step >= 0": lambda e, a: (
        e["cat"] == "compute" and "step" in a
    ),
    "not not cat = 'comm'": lambda e, a: e["cat"] == "comm",
    "dur_us = 'long'": lambda e, a: False,
    # Programs write conditions, too.
    "tid = 5 or " * 3_000 + "cat = 'comm'": lambda e, a: e["cat"] == "comm",
    "tid != 5 and " * 3_000 + "cat = 'comm'": lambda e, a: e["cat"] == "comm",
    "not " * 3_000 + "cat = 'comm'": lambda e, a: e["cat"] == "comm",
    "not (tid = 5 or tid != 5 and " * 50 + "cat = 'comm'" + ")" * 50: lambda e, a: (
        e["cat"] == "comm"
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_events_are_chosen(columns: EventColumns, text: str) -> None:
    assert where_of(text).rows(columns).nonzero()[0].tolist() == rows(columns, CASES[text])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at its end"),
        ("cat", "at its end"),
        ("cat = ", "at its end"),
        ("cat = 'comm", 'at "\'comm"'),
        ("cat = 'comm' and", "at its end"),
        ("cat = 'comm' 'x'", "at \"'x'\""),
        ("(cat = 'comm'", "at its end"),
        ("cat in ('a'", "at its end"),
        ("cat in 'a'", "at \"'a'\""),
        ("cat like 5", "at '5'"),
        ("cat not = 5", "at '= 5'"),
        ("5 = cat", "at '5 = cat'"),
        ("__import__('os') = 1", "there is no '__import__'"),
        ("nam = 'x'", "did you mean 'name'?"),
        ("dur > 5", "did you mean 'dur_us'?"),
        ("args. = 5", "there is no 'args.'"),
        ("cat = 'a'; drop", "at '; drop'"),
        ("(" * 60 + "cat = 'a'" + ")" * 60, "more than 50 parentheses"),
        ("tid = " + "9" * 5_000, "at '999"),
    ],
)
def test_what_is_no_condition_is_told_in_a_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        where_of(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_every_field_is_accepted() -> None:
    for field in FIELDS:
        where_of(f"{field} != 1 or {field} in ('a', 2)")
