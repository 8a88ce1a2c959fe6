"""Traces in the layout of the recorder, with anything in them that may be wrong with a line."""

from __future__ import annotations

from typing import Any

from analysis.trace_lines import HOST_HASH, TraceLines
from hypothesis import strategies as st

ALWAYS_WELL: dict[str, list[str]] = {
    "id": ["1", "7", "9223372036854775807"],
    "name": ['"forward"', '"l\u00e4s"', r'"a\\b\"c\"\\n"', '""', '"' + "x" * 250 + '"'],
    "cat": ['"compute"', '"data"'],
    "pid": ["100", "0", "4294967295"],
    "tid": ["100", "1073741825", "4294967295"],
    "p_idx": [',"p_idx":0,"level":1', ',"p_idx":3,"level":2', ""],
}
SELDOM_WELL: dict[str, list[str]] = {
    "id": ["0", "07", "9223372036854775808", "18446744073709551615", "-1", "1.0", '"1"', "null"],
    "name": [r'"end\\"', r'"\u0041"', r'"\ud83d\ude00"', r'"\ud55c"', "7", '"\x01"', r'"\x"', '"\t"'],
    "cat": ['"counter"', '"flow"', '"tensor_stats"', '"nonfinite"', '"inspect"', r'"c\\"', "1"],
    "pid": ["4294967296", "-1", "1e2", "00"],
    "tid": ["0", "4294967296", "01"],
    "p_idx": [',"p_idx":-1,"level":1', ',"level":1', ',"p_idx":1', ',"p_idx":1.5,"level":1', ',"p_idx":9999999999999999999,"level":1'],
}  # fmt: skip
MEMBERS = [
    "1", "-5", "true", "null", '"text"', "0.5", "-1.25e-3", "1E5", '["a",[1,2.5],{"b":null}]', "{}", "[]",
    '{"a":{"b":[true,false]}}', "9223372036854775807", "-9223372036854775808", '"l\u00e4s"', r'"\\\""', r'"C:\\udo"',
]  # fmt: skip
ODD_MEMBERS = [
    "9223372036854775808", "-9223372036854775809", "99999999999999999999", "1e400", "-1e308", "1e-400", "NaN",
    "Infinity", "-", "01", "1.", ".5", "1e", "-0", "-0.0", "[1,null]", "[null]", '{"a":[null]}', '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}', r'"\\"', r'{"k\\":1}', r'"\ud800"', '"\x7f"', '"\x1f"', "[" * 40 + "]" * 40,
    "[" * 250 + "]" * 250, "[1,]", "{,}", '{"a"}', "nul", "truth", "123456789012345678901234567890.5", "1 ",
    '"' + "y" * 17_000 + '"', '"' + r"\"" * 9_000 + '"', "[" + "1," * 50 + "1]",
]  # fmt: skip
KEYS = ["a", "b", "step", "\u00e4", "", "with space"]
ODD_KEYS = ["a", "level", "p_idx", "hhash", "unfinished", "iteration", r"k\"", r"k\\", r"\u0061"]
HASHES = [HOST_HASH, "0" * 15, "0" * 17, "ABCDEF0123456789", r"\"123456789abcde"]


@st.composite
def lines(draw: Any, odd: bool) -> str:
    """A line in the layout of the recorder, of parts that are mostly well."""

    def part(name: str) -> str:
        unusual = odd and draw(st.integers(0, 15)) == 0
        return str(draw(st.sampled_from((SELDOM_WELL if unusual else ALWAYS_WELL)[name])))

    def micros() -> str:
        at = draw(st.integers(0, 30))
        if odd and draw(st.integers(0, 19)) == 0:
            return str(draw(st.sampled_from([f"{at}", f"{at}.5", f"{at}.0000", "-1.000", "1e2",
                "4600000000000000.000", "99999999999999999999.000", "999999999999999999999.000"])))  # fmt: skip
        return f"{at}.{draw(st.sampled_from(['000', '001']))}"

    def members(values: list[str]) -> str:
        found = ""
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True)):
            unusual = odd and draw(st.integers(0, 7)) == 0
            key = draw(st.sampled_from(ODD_KEYS)) if unusual else key
            unusual = odd and draw(st.integers(0, 3)) == 0
            found += f',"{key}":{draw(st.sampled_from(ODD_MEMBERS if unusual else values))}'
        return found

    ph = draw(st.sampled_from("XXXXXXXXiCsfBM" if odd else "XXXXXXXXiC"))
    cat = {"C": '"counter"', "s": '"flow"', "f": '"flow"'}.get(ph) or part("cat")
    dur = f'"dur":{micros()},' if ph == "X" else ""
    head = (
        f'{{"id":{part("id")},"name":{part("name")},"cat":{cat},"pid":{part("pid")},'
        f'"tid":{part("tid")},"ts":{micros()},{dur}"ph":"{ph}"'
    )
    if ph in "sf":
        return head + (',"bp":"e"}' if ph == "f" else "}")
    if ph == "C":
        numbers = ["1", "-2.5e3", "0", "9223372036854775807", *(MEMBERS if odd else [])]
        return f'{head},"args":{{{members(numbers)[1:]}}}}}'
    host = draw(st.sampled_from(HASHES)) if odd and draw(st.integers(0, 15)) == 0 else HOST_HASH
    more = members(MEMBERS) + (',"unfinished":true' if ph == "B" else "")
    moment = ',"s":"t"' if ph == "i" else ""
    return f'{head}{moment},"args":{{"hhash":"{host}"{part("p_idx")}{more}}}}}'


FRAMING = ["", "[", "]", "  ", "nonsense", "{}", "[1]", "null", '{"ph":"X"}', '{"ph":"X","name":']


@st.composite
def traces(draw: Any) -> bytes:
    odd = draw(st.booleans())
    trace = TraceLines(timestamps=draw(st.sampled_from(["relative", "relative", "epoch_us"])))
    found = draw(st.lists(lines(odd), max_size=30))
    if draw(st.booleans()):
        # As the recorder writes them, by their ends.
        found.sort(key=lambda line: len(line))
    for line in found:
        if trace.epoch and draw(st.integers(0, 15)):
            line = line.replace(".000", "").replace(".001", "")
        trace.add(line)
    if draw(st.integers(0, 3)):
        trace.footer()
    for _ in range(draw(st.integers(0, 2)) if odd else 0):
        at = draw(st.integers(0, len(trace.lines)))
        more = draw(
            st.sampled_from([*FRAMING, *trace.lines, *(line + "," for line in trace.lines)])
        )
        trace.lines.insert(at, more)
    if odd and draw(st.integers(0, 7)) == 0:
        del trace.lines[draw(st.integers(0, len(trace.lines) - 1))]
    text = bytearray(trace.text)
    for _ in range(draw(st.integers(0, 2)) if odd else 0):
        at = draw(st.integers(0, len(text) - 1))
        text[at] = draw(st.sampled_from(b'"\\,}{[]:019eE.-+ \n\t\xff\xc3x'))
    return bytes(text)
