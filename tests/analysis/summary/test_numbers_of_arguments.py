"""Numbers of arguments are found natively as a reader of JSON finds them, however they are written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai._reader import EventScanner

NONE = -(2**63)

keys = st.sampled_from(["step", "st\\u0065p", "steps", "s", "epoch", 'a\\"step', "step\\\\"])
numbers = st.integers(-(2**63), 2**63 - 1).map(str)
leaves = st.one_of(
    numbers,
    st.sampled_from(["0", "-0", "1.0", "1e3", "true", "null", '""', '"step"', '"\\"step\\":5"']),
    st.sampled_from(['"17"', '"-3"', '"007"', '"1.5"', '" 1"', '"\\u0031"', '"step\\":9,"']),
    st.sampled_from(["99999999999999999999", '"9999999999999999999"', '"999999999999999999"']),
)
blanks = st.sampled_from(["", "", "", " ", "\t"])


@st.composite
def objects(draw: st.DrawFn, depth: int = 1) -> str:
    values: Any = leaves if not depth else st.one_of(leaves, objects(depth - 1), arrays)
    members = [
        f'"{draw(keys)}"{draw(blanks)}:{draw(blanks)}{draw(values)}{draw(blanks)}'
        for _ in range(draw(st.integers(0, 4)))
    ]
    return "{" + draw(blanks) + ",".join(members) + "}"


arrays = st.lists(leaves, max_size=2).map(lambda values: f"[{','.join(values)}]")


def wanted(args: str) -> int:
    value = json.loads(args).get("step")
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and abs(value) < 2**63 else NONE


@settings(max_examples=400, deadline=None)
@given(every=st.lists(objects(), max_size=5))
def test_a_number_is_that_which_json_has(every: list[str]) -> None:
    lines = [f'{{"name":"a","ph":"i","ts":1,"args":{args}}}\n' for args in every]
    lines += ['{"name":"a","ph":"i","ts":1}\n']
    block = EventScanner(1 << 20).scan("".join(lines).encode())
    found = memoryview(block.numbers("step")).cast("q").tolist()
    assert found == [*map(wanted, every), NONE]
