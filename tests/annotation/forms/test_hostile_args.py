"""Strings and arguments that break other tracers: kept, or replaced and counted, never fatal."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Traced

from dftrace_ai import ai, dft_fn

STRINGS = [
    "",
    "plain",
    'quote " inside',
    '"',
    "new\nline\r\n",
    "tab\tand\x0b",
    "back\\slash",
    "ends in backslash\\",
    "ends in two\\\\",
    "\\",
    'ends in quote\\"',
    'quote " and end\\',
    "nul \0 inside",
    'nul \0 and "quote"',
    "".join(map(chr, range(32))) + "\x7f",
    "\x80\x9f",
    "emoji 😀 \U0010ffff",
    "\u2028\u2029\ufeff\ufffe",
    "e\u0301 אב 中文",
    "</script>\\u0041\\n",
    '{"json":[1,2]}',
    "%s %n {}",
    "x" * 20_000,
    "\\" * 5001,
    '"' * 5000,
    "\n" * 5000,
]


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    ai.reset()


def test_strings_come_back_as_they_were(traced: Traced) -> None:
    with traced() as rec:
        for s in STRINGS:
            with ai.compute.forward(args={"s": s, "in": [s, {"k": s}], "after": 1}):
                pass
            if s:
                with ai.compute.step(args={s: 1}):
                    pass
    t = rec.trace
    for e, s in zip(t.named("forward"), STRINGS, strict=True):
        assert e.user == {"s": s, "in": [s, {"k": s}], "after": 1}
    assert [e.user for e in t.named("step")] == [{s: 1} for s in STRINGS if s]
    assert t.footer["args_sanitised"] == 0
    assert len(rec.perfetto.slices) == 2 * len(STRINGS) - 1


def test_strings_as_names(traced: Traced) -> None:
    names = [s for s in STRINGS if s and len(s) < 100]
    with traced() as rec:
        for s in names:
            with dft_fn(s, name=s):
                ai.instant(s)
            with ai.compute.derive(name=s):
                pass
            ai.counter(s, values={s: 1})
            dft_fn("x").log_metadata(s, s)
    t = rec.trace
    blocks = [e for e in t.spans if e.cat != "compute"]
    assert [(e.name, e.cat) for e in blocks] == [(s, s) for s in names]
    assert [e.name for e in t.of("i")] == names
    assert [e.name for e in t.spans if e.cat == "compute"] == [f"compute.{s}" for s in names]
    assert [(e.name, e.args) for e in t.of("C")] == [(s, {s: 1}) for s in names]
    assert t.marks == [(s, s) for s in names]


def test_lone_surrogates_become_something_printable_and_are_counted(traced: Traced) -> None:
    bad = ["\ud800", "a\udfffb", "\ude00\ud83d", '"\ud83d', "\udc80\\"]
    with traced() as rec:
        for s in bad:
            with ai.compute.forward(args={"s": s, s: 1, "after": 2}):
                pass
        with dft_fn("\ud800", name="\ud800"):
            pass
    t = rec.trace
    for e in t.named("forward"):
        assert e.user["after"] == 2
        assert type(e.user["s"]) is str
        assert e.user["s"]
        assert len(e.user) == 3
    assert len(t.spans) == len(bad) + 1
    assert t.footer["args_sanitised"] >= len(bad)


def test_two_megabytes(traced: Traced) -> None:
    """Longer than the limit: cut to it, said, and the next events are whole."""
    long, limit = "é\\" * 700_000, 4096
    with traced(max_arg_bytes=4 << 20) as whole, ai.compute.forward(args={"s": long, "after": 1}):
        pass
    assert whole.trace.one("forward").user == {"s": long, "after": 1}
    with traced(max_arg_bytes=limit) as rec:
        with ai.compute.forward(args={"s": "é\\" * 1_000_000, "after": 1}):
            pass
        with ai.compute.step(args={"after": 2}):
            pass
    t = rec.trace
    assert t.one("step").user == {"after": 2}
    assert len(t.one("forward").line) < limit + 1000
    assert t.footer["args_sanitised"] >= 1
    with traced() as default:
        with ai.compute.forward(args={"s": "x" * 2_000_000}), ai.compute.step:
            pass
    assert default.trace.names == {"forward": 1, "step": 1}
    assert default.trace.footer["args_sanitised"] >= 1


class Broken:
    """Every way an object can refuse to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __hash__(self) -> int:
        return 1


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1


class Level(enum.IntEnum):
    """One that is an integer."""

    HIGH = 3


class Name(str):
    """A string of another class."""

    __slots__ = ()


def cyclic() -> list[Any]:
    """A list that holds itself."""
    x: list[Any] = [1]
    x.append(x)
    return x


def deep(n: int) -> list[Any]:
    """n lists in each other."""
    x: list[Any] = []
    for _ in range(n):
        x = [x]
    return x


UNSAFE = [
    float("nan"),
    float("inf"),
    float("-inf"),
    2**63,
    -(2**63),
    -(2**63) - 1,
    10**400,
    b"bytes\xff",
    bytearray(b"x"),
    1 + 2j,
    object(),
    Broken(),
    {1, 2},
    cyclic(),
    deep(100_000),
    [None, 1],
    [float("nan"), 1],
    {"a": float("inf")},
    collections.UserDict({"a": 1}),
    range(3),
    lambda: None,
    decimal.Decimal("1.5"),
    dt.datetime(2020, 1, 1),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/x"),
    Colour.RED,
    ValueError("x"),
    type,
]


def test_what_json_cannot_say_gets_a_safe_value(traced: Traced) -> None:
    with traced() as rec:
        for value in UNSAFE:
            with ai.compute.forward(args={"bad": value, "after": 1}):
                pass
            ai.compute.update(bad=value, after=2)
            with ai.compute.step:
                pass
            ai.compute.reset()
            ai.instant("i", args={"bad": value})
    t = rec.trace
    assert t.names == dict.fromkeys(("forward", "step", "i"), len(UNSAFE))
    assert all(e.user["after"] == 1 and "bad" in e.user for e in t.named("forward"))
    assert all(e.user["after"] == 2 for e in t.named("step"))


def test_numbers_json_or_perfetto_would_lose_are_strings_and_counted(traced: Traced) -> None:
    with traced() as rec:
        for value in UNSAFE[:6]:
            with ai.compute.forward(args={"bad": value}):
                pass
    texts = [e.user["bad"] for e in rec.trace.named("forward")]
    for value, text in zip(UNSAFE[:6], texts, strict=True):
        assert type(text) is str
        if isinstance(value, int):
            assert text == str(value) or text.startswith(str(value)[:10])
    assert rec.trace.footer["args_sanitised"] == 6


def test_subclasses_of_plain_types_are_shown_as_those(traced: Traced) -> None:
    args = {
        "s": Name("x\\"),
        "i": Level.HIGH,
        "d": collections.OrderedDict(a=1),
        "dd": collections.defaultdict(int, b=2),
        "nt": collections.namedtuple("P", "x y")(1, 2),
        "tuple": (1, (2, 3)),
        "minus": -0.0,
    }
    with traced() as rec, ai.compute.forward(args=args, epoch=None):
        pass
    found = rec.trace.one("forward").user
    assert math.copysign(1, found["minus"]) == -1
    assert found == {
        "s": "x\\",
        "i": 3,
        "d": {"a": 1},
        "dd": {"b": 2},
        "nt": [1, 2],
        "tuple": [1, [2, 3]],
        "minus": 0.0,
    }


def test_keys_that_are_no_strings(traced: Traced) -> None:
    keys: dict[Any, int] = {7: 1, 2.5: 2, True: 3, None: 4, (1, 2): 5, b"k": 6, Broken(): 7}
    with traced() as rec:
        with ai.compute.forward(args=keys):
            pass
        with ai.compute.step(args={"in": keys, "after": 1}):
            pass
        with ai.compute.backward(args={1: "a", "1": "b"}):
            pass
    t = rec.trace
    assert len(t.one("forward").user) >= 4
    assert t.one("step").user["after"] == 1
    assert set(t.one("backward").user.values()) <= {"a", "b"}
    assert t.footer["args_sanitised"] >= 3


def test_an_argument_that_changes_the_dict_it_is_in(traced: Traced) -> None:
    holder: dict[str, Any] = {}

    class Changes:
        def __repr__(self) -> str:
            holder.clear()
            return "changed"

    holder.update(a=1, changes=Changes(), b=2)
    with traced() as rec, ai.compute.step(args={"holder": holder, "after": 1}):
        pass
    assert rec.trace.one("step").user["after"] == 1


def test_args_that_are_no_mapping(traced: Traced) -> None:
    """Wrong use may raise where it is written, never when the span runs."""
    wrong: list[Any] = [3, "text", [1], None, object()]
    with traced() as rec:
        for bad in wrong:
            try:
                node = ai.compute.forward(args=bad)
            except (TypeError, ValueError):
                node = ai.compute.forward
            with node:
                pass
    assert rec.trace.names == {"forward": len(wrong)}


def test_many_and_large_arguments(traced: Traced) -> None:
    args = {f"key{i}": i for i in range(5000)}
    with traced() as rec:
        with ai.compute.forward(args=args):
            pass
    assert rec.trace.one("forward").user == args


def test_scalars_of_the_host_are_numbers(traced: Traced) -> None:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    mine = type("Mine", (torch.Tensor,), {})
    given = {
        "int": (torch.tensor(4), 4),
        "float": (torch.tensor(0.5), 0.5),
        "half": (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        "bool": (torch.tensor(True), True),
        "parameter": (torch.nn.Parameter(torch.tensor(2.0)), 2.0),
        "row": (torch.tensor([1]), "Tensor(shape=(1,), dtype=torch.int64, device=cpu)"),
        "elsewhere": (
            torch.tensor(1.0, device="meta"),
            "Tensor(shape=(), dtype=torch.float32, device=meta)",
        ),
        "derived": (
            torch.tensor(1.0).as_subclass(mine),
            "Mine(shape=(), dtype=torch.float32, device=cpu)",
        ),
        "nan": (torch.tensor(float("nan")), "NaN"),
        "np.int": (np.int64(4), 4),
        "np.float": (np.float32(0.5), 0.5),
        "np.bool": (np.bool_(True), True),
        "np.complex": (np.complex64(1 + 2j), "(1+2j)"),
        "np.array": (np.array(3), 3),
        "np.int32": (np.int32(7), 7),
        "dtype": (torch.bfloat16, "torch.bfloat16"),
        "shape": (torch.ones(2, 3).shape, [2, 3]),
        "np.row": (np.array([3.0, 4.0]), "[3. 4.]"),
    }
    with traced() as rec:
        ai.compute.forward.update(args={key: value for key, (value, _) in given.items()})
        with ai.compute.forward:
            pass
        ai.compute.forward.reset()
        ai.counter("c", values={"f": np.float32(0.5), "i": np.int64(3)})
    assert rec.trace.one("c").args == {"f": 0.5, "i": 3}
    found = rec.trace.one("forward").user
    assert found == {key: want for key, (_, want) in given.items()}
    assert found["bool"] is found["np.bool"] is True
