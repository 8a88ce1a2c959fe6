"""The page on the trace format against the models, and against traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import Traced
from perfetto.trace_file import Trace
from perfetto.trace_file import plain as plain_text

from dftrace_ai import ai, dftracer
from dftrace_ai.trace_format.lines import FooterArgs, event_adapter
from docs.pages import DOCS, between, blocks, plain, section, table

PAGE = DOCS / "trace-format.md"


def members_by_kind() -> dict[tuple[str, str], list[str]]:
    """The members of each kind of line, by phase and name; the name is * where it is free."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for _, phase, names, _, members in table(section(PAGE, "Kinds of lines")):
        for name in plain(names).split(", ") if plain(phase) == "M" else ["*"]:
            kinds[plain(phase), name] = members.split()
    return kinds


def kind_of(line: dict[str, Any]) -> tuple[str, str]:
    return line["ph"], line["name"] if line["ph"] == "M" else "*"


@pytest.fixture
def every_line(traced: Traced) -> Trace:
    """A trace with every kind of line."""
    with traced(rank=3, world_size=8, data_dir="data") as rec:
        with ai.compute.forward:
            ai.instant("moment")
            ai.counter("loss", {"train": 0.5})
            ai.compute.forward.flow_out("key")
            ai.compute.forward.flow_in("key")
        ai.pipeline.epoch.start(metadata=True)
        dftracer.get_instance().log_event("given", "app", 2**50, 5)
        ai.compute.start()
        ai.data.start()
        ai.compute.stop()
        ai.data.stop()
        ai.checkpoint.capture.start()
    return rec.trace


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in plain_text(path).decode().splitlines()[1:]]


def test_a_trace_holds_the_listed_kinds_with_the_listed_members(every_line: Trace) -> None:
    listed = members_by_kind()
    lines = lines_of(every_line.path)
    # Only a large trace has an index, and one that asks for it samples.
    assert {kind_of(line) for line in lines} == set(listed) - {("M", "index"), ("P", "*")}
    for line in lines:
        assert list(line) == listed[kind_of(line)]


@pytest.mark.parametrize("block", blocks(PAGE, "json"), ids=str)
def test_the_lines_shown_are_lines_of_the_format(block: Any) -> None:
    listed = members_by_kind()
    for text in block.text.splitlines():
        event_adapter().validate_json(text)
        line = json.loads(text)
        assert list(line) == listed[kind_of(line)]


def test_the_header_is_described(every_line: Trace) -> None:
    described = {
        plain(name) for names, *_ in table(section(PAGE, "Header")) for name in names.split(", ")
    }
    assert set(every_line.header) <= described
    rare = {"local_rank", "launcher", "cores", "torch", "part", "layout"}
    rare |= {"scheduler", "job_id", "run_id", "node", "restarts", "launch"}
    rare |= {"lines_hz", "lines_refused", "generated"}
    assert described - set(every_line.header) <= rare
    (shown,) = [b for b in blocks(PAGE, "json") if '"time_base_us"' in b.text]
    assert set(json.loads(shown.text)["args"]) <= described


def test_the_footer_is_described(every_line: Trace) -> None:
    described = [
        name for row in table(section(PAGE, "Footer")) for name in plain(row[0]).split(", ")
    ]
    always = [name for name, field in FooterArgs.model_fields.items() if field.is_required()]
    assert [name for name in every_line.footer if name != "ntp"] == always
    assert ["hhash", *described] == list(FooterArgs.model_fields)


def test_the_endings_are_described() -> None:
    described = [plain(row[0]) for row in table(between(PAGE, "endings"))]
    assert described == list(get_args(FooterArgs.model_fields["ended"].annotation))


def test_lanes_begin_where_the_table_says(every_line: Trace) -> None:
    rows = table(section(PAGE, "Tracks"))
    starts = {
        plain(name).split(" · ")[1].split(" <")[0]: int(tid.split()[0], 16) for tid, name, _ in rows
    }
    lanes = {name: tid for tid, name in every_line.thread_names.items() if " · " in name}
    assert {name.split(" · ")[1] for name in lanes} == {"overlapping", "logged"}
    for name, tid in lanes.items():
        start = starts[name.split(" · ")[1]]
        assert start <= tid < start + 0x10000000


def test_arguments_are_written_as_the_table_says(traced: Traced) -> None:
    values = {
        "none": None,
        "in_list": [None],
        "nan": float("nan"),
        "less": float("-inf"),
        "big": 2**63,
        "least": -(2**63),
        "text": "\ud83d",
        "other": Path("x"),
        "level": 5,
        7: "seven",
    }
    with traced() as rec, ai.compute.forward(args=values):
        pass
    args = rec.trace.one("forward").args
    shown = {key: value for key, value in args.items() if key not in ("hhash", "p_idx", "level")}
    assert shown == {
        "none": None,
        "in_list": ["None"],
        "nan": "NaN",
        "less": "-Infinity",
        "big": "9223372036854775808",
        "least": "-9223372036854775808",
        "text": "\ufffd",
        "other": "x",
        "level_": 5,
        "7": "seven",
    }
    assert rec.trace.footer["args_sanitised"] == 9


def test_every_node_is_in_the_guide() -> None:
    import yaml

    page = DOCS / "guide" / "annotate.md"
    written = {plain(path): meaning for path, meaning in table(between(page, "vocabulary"))}
    source = (DOCS.parent / "schemas" / "categories.yaml").read_text(encoding="utf-8")
    wanted: dict[str, str] = {}
    for category, entry in yaml.safe_load(source)["categories"].items():
        wanted[f"ai.{category}"] = entry["doc"]
        wanted |= {f"ai.{category}.{name}": doc for name, doc in entry["nodes"].items()}
        ours = entry.get("additions", {}).items()
        marked = "An addition to dftracer's names."
        wanted |= {f"ai.{category}.{name}": f"{doc} {marked}" for name, doc in ours}
    assert written == wanted


def test_names_are_recorded_as_the_table_says(traced: Traced) -> None:
    """The rows of single nodes; the others are those of the examples."""
    nodes = {
        "ai.compute": ai.compute,
        "ai": ai,
        "ai.data.io.open": ai.data.io.open,
        "ai.other.log": ai.other.log,
        'ai.data.preprocess.derive(name="collate")': ai.data.preprocess.derive(name="collate"),
    }
    rows = {row[0]: row for row in table(section(PAGE, "What is recorded where"))}
    for text, node in nodes.items():
        (row,) = [row for cell, row in rows.items() if cell.startswith(f"`{text}`")]
        with traced() as rec, node:
            pass
        (event,) = rec.trace.spans
        assert [event.name, event.cat] == [plain(row[2]), plain(row[3])]
