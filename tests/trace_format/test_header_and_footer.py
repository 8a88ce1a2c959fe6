"""The facts of header and closing line, and the names of files, against what the core writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from conftest import Traced
from perfetto.trace_file import Trace, plain

from dftrace_ai import ai
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.validating.rules import LineFaultError, LineModel
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.run import emitting
from dftrace_ai.trace_format import file_names, lines
from dftrace_ai.trace_format.header_and_footer import (
    COUNT_OF,
    COUNTS,
    ENDINGS,
    KINDS,
    LOSSES,
    SAMPLE,
    FooterFacts,
    HeaderFacts,
    Ntp,
    footer_of,
    header_of,
)

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native" / "src"


def names(facts: type[HeaderFacts | FooterFacts]) -> list[str]:
    return list(facts._fields)


def lines_of(trace: Trace) -> list[dict[str, object]]:
    return [json.loads(line) for line in plain(trace.path).decode().splitlines()[1:]]


def test_the_facts_know_all_that_the_core_writes(traced: Traced) -> None:
    with traced(rank=3, world_size=8, data_dir="data") as rec, ai.compute.forward:
        ai.instant("moment")
        ai.counter("loss", {"train": 0.5})
    written = lines_of(rec.trace)
    (header,) = [event for event in written if header_of(event)]
    footer = written[-1]
    for event, facts in ((header, header_of(header)), (footer, footer_of(footer))):
        assert facts is not None
        said = event["args"]
        assert isinstance(said, dict)
        assert set(said) <= set(names(type(facts)))
        read = {key: value for key, value in facts._asdict().items() if key in said}
        read |= {key: value._asdict() for key, value in read.items() if isinstance(value, Ntp)}
        assert json.loads(json.dumps(read)) == said
    (trace,) = open_traces([rec.trace.path])
    assert trace.header == header_of(header)
    assert trace.end.footer == footer_of(footer)


def test_what_is_counted_is_a_member_of_the_footer() -> None:
    assert {kind.member for kind in KINDS} == set(COUNTS) <= set(names(FooterFacts))
    assert {loss.member for loss in LOSSES} <= set(names(FooterFacts))


def test_the_core_writes_no_other_member_and_no_other_ending() -> None:
    text = (NATIVE / "writing" / "header_and_footer.cpp").read_text(encoding="utf-8")
    footer = text[text.index("LineFormatter::footer(") :]
    members = re.findall(r'member\("(\w+)"', footer) + re.findall(r',\\"(\w+)\\":', footer)
    place = (NATIVE / "spool" / "spool.cpp").read_text(encoding="utf-8")
    members += re.findall(r'found.emplace_back\("(\w+)"', place)
    # What is told of the clock is told in the header by the same function.
    assert {"hhash", "ntp", "samples", *members} - {"cat", "ph"} == set(names(FooterFacts))
    sources = "".join(path.read_text(encoding="utf-8") for path in NATIVE.rglob("*.cpp"))
    made = set(re.findall(r'"(rotated|loader|died|reboot|adopted)"', sources))
    assert made == set(ENDINGS) - {"finalize", "exit", "exception"}


def test_the_phases_are_those_of_the_lines() -> None:
    phases = set()
    for value in vars(lines).values():
        if isinstance(value, type) and issubclass(value, lines.Line) and "ph" in value.model_fields:
            phases |= set(get_args(value.model_fields["ph"].annotation))
    assert phases - {SAMPLE.ph} == {kind.ph for kind in KINDS} == {*COUNT_OF, "M"}
    assert SAMPLE.ph in phases


@pytest.mark.parametrize(
    "said",
    [
        {"events": -1, "ended": 5, "dropped": True, "waits": 2**63, "bytes": 0.5},
        {"events": "1", "ended": None, "dropped": [1]},
        {},
    ],
)
def test_senseless_values_are_not_known(said: dict[str, object]) -> None:
    facts = FooterFacts.of(said)
    assert facts == FooterFacts()
    assert facts.losses == {}
    assert HeaderFacts.of({"rank": "0", "cmdline": ["a", 1], "host": 7}) == HeaderFacts()


def test_only_the_lines_of_the_format_are_taken_for_them() -> None:
    line = {"name": "end", "cat": "dftrace", "ph": "M", "args": {"events": 1}}
    assert footer_of(line) == FooterFacts(events=1)
    for change in ({"cat": "mine"}, {"ph": "X"}, {"name": "dftrace"}, {"args": 1}):
        assert footer_of({**line, **change}) is None
    assert header_of({**line, "name": "dftrace", "pid": 7}) == HeaderFacts(pid=7)
    assert header_of(line) is None


def moment(category: str, **args: object) -> str:
    """The line of an instant."""
    place = {"pid": 1, "tid": 1, "ts": 1.5}
    args = {"hhash": "0" * 16, **args}
    line = {"id": 1, "name": "a:b", "cat": category, **place, "ph": "i", "s": "t", "args": args}
    return json.dumps(line, separators=(",", ":"))


def test_a_faulty_moment_of_inspection_is_refused_in_words() -> None:
    for category, name, value in (
        ("tensor_stats", "feature", 3),
        ("tensor_stats", "rank", -1),
        ("nonfinite", "first", 1),
        ("nonfinite", "n_nan", 0.5),
        ("inspect", "section", None),
    ):
        assert LineModel().event(moment(category).encode()).cat == category
        with pytest.raises(LineFaultError, match=rf"^args\.{name}: input should be"):
            LineModel().event(moment(category, **{name: value}).encode())


def test_a_trace_with_every_moment_of_inspection_is_valid(traced: Traced) -> None:
    torch = pytest.importorskip("torch")
    from dftrace_ai.inspect.attaching import watching
    from dftrace_ai.inspect.output import trace_events

    with traced() as rec:
        model = torch.nn.Linear(2, 2)
        watch = watching.watch_nonfinite(model)
        model(torch.full((1, 2), float("nan")))
        watch.stop()
        at = emitting.moment()
        about = {"iteration": 3, "rank": 0, "feature": "LogTensorStats"}
        values = {"mean": 0.5, "std": float("nan"), "max": float("inf")}
        trace_events.numbers("layer:activation", about, values, {"n": 4, "n_nan": 1}, at)
        trace_events.plan("layer", {"section": "all", "weight/fprop": "FakeQuant FP8E4M3"})
        emitting.instant("mine", {"section": 5}, category="other")
    kinds = {
        event["cat"]: type(lines.event_adapter().validate_json(json.dumps(event)))
        for event in lines_of(rec.trace)
        if event["ph"] == "i"
    }
    assert kinds == {
        "tensor_stats": lines.TensorStats,
        "nonfinite": lines.NonFinite,
        "inspect": lines.InspectionPlan,
        "other": lines.Instant,
    }


@pytest.mark.parametrize("compression", list(file_names.SUFFIX_OF))
def test_files_are_called_as_the_core_calls_them(traced: Traced, compression: str) -> None:
    with traced(perfetto=False, compression=compression, max_file_bytes=64 * 1024) as rec:
        for number in range(2000):
            ai.instant("moment", {"text": f"{number * 7919:x}" * 20})
        (marker,) = rec.folder.glob(f"*{file_names.MARKER_SUFFIX}")
        spool = Path(marker.read_text(encoding="utf-8").splitlines()[0])
    assert file_names.is_spool(spool.name)
    process = file_names.process_of_spool(str(spool))
    assert process is not None
    found = [file_names.trace_name(trace.path.name) for trace in open_traces([rec.folder])]
    assert {name.suffix for name in found if name} == {file_names.SUFFIX_OF[compression]}
    assert {name.base for name in found if name} == {file_names.marker_base(marker.name)}
    assert sorted(name.part for name in found if name) == list(range(len(found)))
    assert marker.name.endswith(f"-{process.pid}{file_names.MARKER_SUFFIX}")
    (header, *_) = (trace.header for trace in open_traces([rec.folder]))
    assert header is not None
    assert header.run is not None
    assert header.run.startswith(file_names.run_of_spool(spool.name))
    assert spool.name.startswith(file_names.spool_prefix(header.run))


def test_the_setting_has_a_suffix_for_each_compression() -> None:
    assert set(SETTINGS["compression"].words) == set(file_names.SUFFIX_OF)


def test_names_taken_apart() -> None:
    assert file_names.trace_name("t-a-1.part12.pfw") == ("t-a-1", 12, ".pfw")
    assert file_names.trace_name("t.part-a-1.pfw.zst") == ("t.part-a-1", 0, ".pfw.zst")
    assert file_names.trace_name("t.json") is None
    assert file_names.without_suffix("a.pfw.b.pfw.gz") == "a.pfw.b"
    assert file_names.without_suffix("a.json") == "a.json"
    assert file_names.process_of_spool("dftrace-00ff-1.spool") is None
