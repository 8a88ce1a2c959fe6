"""The models of the event lines accept what the recorder writes and nothing else; what names mean."""

from __future__ import annotations

import json

import pytest
from analysis.trace_lines import small_trace
from pydantic import ValidationError

from dftrace_ai.trace_format import lines as events
from dftrace_ai.trace_format.lines import event_adapter
from dftrace_ai.trace_format.names_and_phases import loop_part, own_category, without_loop_part

SPAN = (
    '{"id":1,"name":"forward","cat":"compute","pid":2,"tid":3,"ts":4.000,"dur":5.125,"ph":"X",'
    '"args":{"hhash":"2a702c695247d487","p_idx":0,"level":1,"epoch":1}}'
)


def test_every_kind_of_line_is_known() -> None:
    kinds = {type(event_adapter().validate_json(line)) for line in small_trace().lines[1:]}
    assert kinds == {
        events.Span,
        events.UnfinishedSpan,
        events.Instant,
        events.Counter,
        events.FlowStart,
        events.FlowEnd,
        events.ProcessName,
        events.ThreadName,
        events.Header,
        events.HashLine,
        events.CustomMetadata,
        events.Footer,
    }


def test_a_span_keeps_the_types_of_its_arguments() -> None:
    span = event_adapter().validate_json(SPAN)
    assert isinstance(span, events.Span)
    assert span.args.model_extra == {"epoch": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":1', '"id":"1"'),
        ('"id":1', '"id":0'),
        ('"id":1,', ""),
        ('"pid":2', '"pid":4294967296'),
        ('"tid":3', '"tid":-3'),
        ('"tid":3', '"tid":3.5'),
        ('"ts":4.000', '"ts":-4.000'),
        ('"ts":4.000', '"ts":"4.000"'),
        ('"dur":5.125,', ""),
        ('"ph":"X"', '"ph":"Z"'),
        ('"ph":"X"', '"ph":1'),
        ('"name":"forward"', '"name":7'),
        ('"hhash":"2a702c695247d487",', ""),
        ('"level":1', '"level":"1"'),
        ('"2a702c695247d487"', '"2a70"'),
        ('"epoch":1', '"epoch":9223372036854775808'),
        ('"epoch":1', '"epoch":NaN'),
        ('"epoch":1', '"epoch":[1,null]'),
        ('"epoch":1', '"epoch":{"a":[null]}'),
        ('"ph":"X"', '"ph":"X","color":"red"'),
    ],
)
def test_departures_are_refused(old: str, new: str) -> None:
    assert old in SPAN
    with pytest.raises(ValidationError):
        event_adapter().validate_json(SPAN.replace(old, new))


@pytest.mark.parametrize(
    "value", [None, True, -1, 2**63 - 1, 1.5, "text", [], [1, "a", [2]], {"a": {"b": None}}]
)
def test_arguments_of_all_json_types_are_taken(value: object) -> None:
    event_adapter().validate_json(SPAN.replace('"epoch":1', f'"epoch":{json.dumps(value)}'))


def test_a_counter_holds_numbers_only() -> None:
    line = '{"id":1,"name":"loss","cat":"counter","pid":2,"tid":3,"ts":4.0,"ph":"C","args":{%s}}'
    for args in ('"loss":1,"rate":0.5', ""):
        event_adapter().validate_json(line % args)
    for args in ('"loss":"1"', '"loss":true', '"loss":null'):
        with pytest.raises(ValidationError):
            event_adapter().validate_json(line % args)


@pytest.mark.parametrize(
    ("name", "part", "category", "loop"),
    [
        ("fetch.iter", "wait", "c", "fetch.iter"),
        ("fetch.block", "body", None, "fetch"),
        ("scan.yield", "body", None, "scan"),
        ("dataloader.fetch.block", "body", None, "dataloader.fetch"),
        ("forward", None, "c", "forward"),
        ("block", None, "c", "block"),
        (".block", None, "c", ".block"),
        ("item.blocks", None, "c", "item.blocks"),
        ("", None, "c", ""),
    ],
)
def test_names(name: str, part: str | None, category: str | None, loop: str) -> None:
    assert loop_part(name) == part
    assert own_category(name, "c") == category
    assert without_loop_part(name) == loop
