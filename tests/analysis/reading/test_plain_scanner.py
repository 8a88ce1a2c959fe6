"""The scanner in Python gives what the native one gives, also of lines that nobody should write."""

from __future__ import annotations

import json
import random

import numpy as np
from analysis.trace_lines import TIME_BASE_US, small_trace

from dftrace_ai._reader import EventScanner
from dftrace_ai.analysis.reading.scanning.blocks import arguments_of
from dftrace_ai.analysis.reading.scanning.plain_scanner import PlainScanner

COLUMNS = ("ph", "label", "id", "parent", "pid", "tid", "start_ns", "dur_ns")
VALUES = (
    *(
        "1",
        "0",
        "-1",
        "1.5",
        "1e3",
        "2.0005",
        "4600000000000000.001",
        "1e400",
        "-7.25",
        "12345678901",
    ),
    *(
        '"X"',
        '"1"',
        '""',
        '"é\\n"',
        "null",
        "true",
        "[]",
        "{}",
        '{"p_idx":7}',
        '{"a":[1,{"b":2.5}]}',
    ),
    *(
        "18446744073709551615",
        "18446744073709551616",
        '{"p_idx":-1,"p_idx":3}',
        '"\\u0000"',
        '"XX"',
    ),
    # Numbers as texts, and what looks like them.
    *(
        '"7"',
        '"-12"',
        '"1.5e3"',
        '"\\u0037"',
        '"1698975745976947"',
        '"99999999999999999999999"',
        '"007"',
        '" 7"',
        '"7 "',
        '"1_0"',
        '"٣"',
        '"-"',
    ),
)
MEMBERS = ("name", "cat", "ph", "id", "pid", "tid", "ts", "dur", "args", "other")


def random_line(noise: random.Random) -> str:
    members = {"name": '"n"', "ph": noise.choice(['"X"', '"i"', "1", "4"]), "ts": "5.001"}
    if noise.random() < 0.5:
        members["dur"] = "2.000"
    for _ in range(noise.randrange(4)):
        members[noise.choice(MEMBERS)] = noise.choice(VALUES)
    order = list(members.items())
    noise.shuffle(order)
    line = "{" + ",".join(f'"{key}":{value}' for key, value in order) + "}"
    return (
        noise.choice(["", "", "", " ", "\t"])
        + line
        + noise.choice(["", "", ",", " ,", "\r", "}", "x"])
    )


def rows(scanner: EventScanner | PlainScanner, text: bytes) -> tuple[object, ...]:
    block = scanner.scan(text, TIME_BASE_US * 1000)
    slices, sizes = arguments_of(block)
    found = iter(slices)
    args = [json.loads(bytes(next(found))) if size else None for size in sizes.tolist()]
    columns = {name: np.asarray(getattr(block, name)) for name in COLUMNS}
    types = {name: values.dtype for name, values in columns.items()}
    values = {name: values.tolist() for name, values in columns.items()}
    return block.lines, block.unreadable, block.phases, types, values, args, scanner.labels(0)


def test_both_scanners_give_the_same_columns() -> None:
    noise = random.Random(20)
    lines = [random_line(noise) for _ in range(6000)]
    for text in (small_trace().text, b"", b"[\n]\n\n", ("\n".join(lines) + "\n").encode()):
        native, plain = rows(EventScanner(1 << 20), text), rows(PlainScanner(1 << 20), text)
        for of_native, of_plain in zip(native, plain, strict=True):
            assert of_native == of_plain
