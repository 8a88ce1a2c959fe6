"""Traces of any events, as hypothesis makes them: in our layout and in others, with odd lines between."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

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
