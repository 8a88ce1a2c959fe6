"""The engine and the readers themselves, on traces made by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfetto import engine, model
from perfetto.agreement import agree
from perfetto.trace_file import BadTrace, Trace, event, read

OWN = '"hhash":"0123456789abcdef"'


def span(
    idx: int,
    name: str,
    ts: str,
    dur: str,
    *,
    up: int = 0,
    level: int = 1,
    tid: int = 9,
    args: str = "",
) -> str:
    """One X line."""
    return (
        f'{{"id":{idx},"name":"{name}","cat":"c","pid":9,"tid":{tid},"ts":{ts},"dur":{dur},'
        f'"ph":"X","args":{{{OWN},"p_idx":{up},"level":{level}{args}}}}}'
    )


def meta(name: str, args: str, tid: int = 9) -> str:
    """One M line."""
    return f'{{"name":"{name}","cat":"dftrace","pid":9,"tid":{tid},"ph":"M","args":{{{args}}}}}'


def trace_text(lines: list[str], **footer: int) -> str:
    """A whole file around the given lines, in the format's framing."""
    head = [
        "[",
        meta("process_name", '"name":"rank 3 · host"'),
        meta("thread_name", '"name":"MainThread"'),
        meta("dftrace", f'{OWN},"host":"host","timestamps":"relative"'),
        meta("HH", f'{OWN},"name":"host","value":"0123456789abcdef"'),
    ]
    body = "\n".join(head + lines) + "\n"
    phs = [json.loads(line)["ph"] for line in lines]
    counts = {
        "events": len(lines),
        "spans": phs.count("X"),
        "instants": phs.count("i"),
        "counters": phs.count("C"),
        "flows": phs.count("s") + phs.count("f"),
        "metadata": 0,
        "unfinished": phs.count("B"),
        "dropped": 0,
        "bytes": len(body.encode()),
        "file_bytes": 0,
        **footer,
    }
    return body + meta("end", f'{OWN},{json.dumps(counts)[1:-1]},"ended":"finalize"') + "\n"


EVENTS = [
    span(1, "outer", "3646764.123", "12.345", args=',"t":true,"f":2.0,"o":{"k":[1,"x"]}'),
    span(2, "inner", "3646764.124", "0.001", up=1, level=2),
    (
        f'{{"id":3,"name":"mark","cat":"instant","pid":9,"tid":9,"ts":3646770.000,"ph":"i","s":"t",'
        f'"args":{{{OWN},"p_idx":1,"level":2}}}}'
    ),
    (
        '{"id":4,"name":"loss","cat":"counter","pid":9,"tid":9,"ts":3646770.500,"ph":"C",'
        '"args":{"loss":0.5,"n":3}}'
    ),
    span(5, "consumer", "3646780.000", "5.000", tid=10),
    '{"id":7,"name":"flow","cat":"flow","pid":9,"tid":9,"ts":3646764.123,"ph":"s"}',
    '{"id":7,"name":"flow","cat":"flow","pid":9,"tid":10,"ts":3646781.000,"ph":"f","bp":"e"}',
    (
        f'{{"id":6,"name":"open","cat":"c","pid":9,"tid":1073741824,"ts":3646780.000,"ph":"B",'
        f'"args":{{{OWN},"p_idx":0,"level":1,"unfinished":true}}}}'
    ),
]


def write(folder: Path, text: str, name: str = "t.pfw") -> Path:
    """A trace file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_trace_agrees(tmp_path: Path) -> None:
    t = read(write(tmp_path, trace_text(EVENTS)))
    view = agree(t)
    assert t.tree() == [["outer", [["inner", []], ["mark", []]]], ["consumer", []], ["open", []]]
    outer = view.named("outer")[0]
    assert (outer.ts_ns, outer.dur_ns) == (3646764123, 12345)
    assert outer.arg["o.k[1]"] == "x"
    assert [c.value for c in view.counters] == [0.5, 3]
    (arrow,) = view.flows
    assert view.by_id[arrow.slice_out].name == "outer"
    assert view.by_id[arrow.slice_in].name == "consumer"


def test_gzip_members_and_merged_files(tmp_path: Path) -> None:
    text = trace_text(EVENTS).encode()
    cut = text.index(b"\n", 300) + 1
    path = tmp_path / "t.pfw.gz"
    path.write_bytes(gzip.compress(text[:cut]) + gzip.compress(text[cut:]))
    one = read(path)
    agree(one)
    other = tmp_path / "u.pfw"
    other.write_text(trace_text(EVENTS).replace('"pid":9', '"pid":8'), encoding="utf-8")
    view = agree([one, read(other)])
    assert {s.pid for s in view.slices} == {8, 9}
    path.write_bytes(gzip.compress(text[: cut - 5]) + gzip.compress(text[cut - 5 :]))
    with pytest.raises(BadTrace, match="inside a line"):
        read(path)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([span(1, "a", "1.000", "1.000"), span(1, "b", "3.000", "1.000")], "ids used twice"),
        ([span(1, "a", "1.000", "1.000", up=7, level=2)], "no span 7"),
        ([span(1, "a", "1.000", "1.000", level=3)], "level 3"),
        ([span(1, "a", "1.00", "1.000")], "time 1.00"),
        ([span(1, "a", "1.000", "1.000", args=',"x":NaN')], "NaN"),
        ([span(1, "a", "1.000", "1.000", args=',"x":1,"x":2')], "repeated keys"),
        ([span(1, "a", "1.000", "1.000", args=',"x":[1,null]')], "null in a list"),
        ([span(1, "a", "1.000", "1.000", tid=2**31)], "tid"),
        ([span(1, "a", "1.000", "1.000").replace('"ph":"X",', "") + ""], "keys"),
    ],
)
def test_broken_rules_are_found(tmp_path: Path, lines: list[str], fault: str) -> None:
    text = trace_text([span(1, "x", "1.000", "1.000")])
    text = text.replace(span(1, "x", "1.000", "1.000"), "\n".join(lines))
    text = text.replace('"spans": 1', f'"spans": {len(lines)}')
    text = text.replace('"events": 1', f'"events": {len(lines)}')
    before = text.rindex("\n", 0, -1) + 1
    old = json.loads(text[before:])["args"]["bytes"]
    text = text.replace(f'"bytes": {old}', f'"bytes": {len(text[:before].encode())}')
    with pytest.raises(BadTrace, match=fault):
        read(write(tmp_path, text))


def test_a_wrong_footer_is_found(tmp_path: Path) -> None:
    for wrong in ({"events": 3}, {"spans": 9}, {"bytes": 1}, {"unfinished": 0}):
        with pytest.raises(BadTrace, match="footer"):
            read(write(tmp_path, trace_text(EVENTS, **wrong)))


@pytest.mark.parametrize(
    "lines",
    [
        # ends 1 ns after its parent: dropped with a counter
        [span(1, "a", "1.000", "1.000"), span(2, "b", "1.500", "0.501", up=1, level=2)],
        # a parent by p_idx that does not enclose
        [span(1, "a", "1.000", "1.000"), span(2, "b", "3.000", "1.000", up=1, level=2)],
        # a lone backslash at the end swallows the rest
        [span(1, "a", "1.000", "1.000", args=',"s":"x\\\\"'), span(2, "b", "3.000", "1.000")],
        # a number that the engine reads as another
        [span(1, "a", "1.000", "1.000", args=f',"n":{2**63}')],
        # a fraction of more than 19 digits: read as 0.0038...
        [span(1, "a", "1.000", "1.000", args=',"lr":0.00030000000000000003')],
        # same start, same duration, the inner one first in the file
        [span(2, "b", "1.000", "1.000", up=1, level=2), span(1, "a", "1.000", "1.000")],
    ],
)
def test_disagreement_is_found(tmp_path: Path, lines: list[str]) -> None:
    t = read(write(tmp_path, trace_text(lines)))
    with pytest.raises(AssertionError):
        agree(t)


def test_refused_files_and_bad_sql(tmp_path: Path) -> None:
    answer = engine.query(write(tmp_path, "[\nnot json\n"), "select 1 as n")
    assert not answer.load_ok
    assert answer.load_error
    answer = engine.query(write(tmp_path, trace_text(EVENTS), "good.pfw"), "select nonsense")
    assert answer.clean
    with pytest.raises(engine.EngineFault, match="nonsense"):
        answer.rows()
    missing = engine.query(tmp_path / "missing.pfw")
    assert "missing" in str(missing.load_error)


def literal(text: str, plain: bool) -> str:
    """A JSON string as a writer that is kind to Perfetto writes it, between its quotes."""
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    if plain:
        body = body.replace("\\n", "\\u000a")
    return body[:-2] + "\\u005c" if body.endswith("\\\\") else body


WILD = st.text(
    st.sampled_from('ab"\\\n\t\r\b\0\x01\x1f\x7f/{}[],:.é😀\u2028%u0041'), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(WILD, WILD, WILD, WILD, st.booleans()), min_size=1, max_size=30))
def test_the_model_of_strings_is_the_engines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str, str, bool]]
) -> None:
    lines = []
    for i, (name, key, value, deep, plain) in enumerate(rows):
        n, k, v, d = (literal(s, plain) for s in (name, key, value, deep))
        lines.append(span(i + 1, n, f"{i + 1}.000", "0.500", args=f',"k.{k}":["{v}",{{"{d}":1}}]'))
    t = read(write(tmp_path_factory.mktemp("wild"), trace_text(lines)))
    view = agree(t)
    assert len(view.slices) == len(rows)


def test_literals_and_what_is_shown_of_them() -> None:
    assert model.literals(r'{"a\n":["b\"c",1,true,null]}') == {"a\\n": ['b\\"c', 1, True, None]}
    assert model.shown(r"line\nline") == r"line\nline"
    assert model.shown(r"quote\"line\nline") == 'quote"line\nline'
    assert model.shown(r"quote\"nul\u0000rest") == 'quote"nul'


def test_events_compare_by_identity() -> None:
    e = event(EVENTS[0], "here")
    assert e != event(EVENTS[0], "here")
    assert isinstance(Trace(Path("x"), [e]).one("outer").args["f"], float)
