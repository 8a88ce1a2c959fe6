"""Stacks of Python that are read while threads run: by each way, of whatever code, and where calls are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import FrameType

import pytest

from dftrace_ai import _native

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="3.10 has frames of another kind"
)

WAYS = ("vm_readv", "mem_file", "pipe")
ROUNDS = 4000


def stacks_of(reader: _native.StackReader, sample: tuple[int, int, int, bool, int]) -> list[object]:
    """Function, file and line of each frame, innermost first."""
    names, nodes = reader.names(), reader.nodes()
    found: list[object] = []
    node = sample[2]
    while node >= 0:
        node, code, line = nodes[node]
        found.append((*names[code][:2], line))
    return found


def as_python_sees_it(frame: FrameType | None) -> list[object]:
    found: list[object] = []
    while frame is not None:
        code = frame.f_code
        found.append((code.co_qualname, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def test_under_torture_no_stack_is_wrong_by_any_way() -> None:
    """Calls, generators, coroutines, code that is let go, threads that end: all read as they can be."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("torture.py")), str(ROUNDS), *WAYS],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert set(told) == set(WAYS)
    for way in WAYS:
        assert told[way]["wrong"] == []
        assert told[way]["counts"]["samples"] > ROUNDS
        assert {"tree", "gen"} <= set(told[way]["kinds"])


def test_a_stack_that_is_too_deep_costs_nothing_and_is_read_again_when_it_is_not() -> None:
    """Its memory would be copied in each round for nothing."""
    inside, go_on, ready, end = (threading.Event() for _ in range(4))

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        else:
            inside.set()
            go_on.wait()

    def run() -> None:
        deep(30_000)
        ready.set()
        end.wait()

    limit, size = sys.getrecursionlimit(), threading.stack_size(256 << 20)
    sys.setrecursionlimit(40_000)
    thread = threading.Thread(target=run)
    try:
        thread.start()
        inside.wait()
        reader = _native.StackReader()
        rounds = 200
        # Tests before may have left threads that go on.
        assert thread.native_id not in {one[1] for one in reader.sample(rounds)}
        assert reader.counts()["unread"] >= rounds
        assert reader.counts()["too_deep"] < 10
        go_on.set()
        ready.wait()
        assert thread.native_id in {one[1] for one in reader.sample(rounds)}
    finally:
        go_on.set()
        end.set()
        thread.join()
        sys.setrecursionlimit(limit)
        threading.stack_size(size)


ODD_CODE = """
def plain(look):
    return look()

def over_lines(
    look,
):
    return [
        0,
        look(

        ),
    ][1]

def näme_of_文𐐀(look):
    return (lambda inner: inner())(look)

def generated(look):
    def inner():
        yield look()
    yield from inner()

class Held:
    def __call__(self, look):
        return max([look], key=lambda one: 0)()
"""


@pytest.mark.parametrize("way", WAYS)
def test_names_and_lines_are_those_that_python_tells(way: str) -> None:
    """Tables of lines in all their forms, names of any letters, and lines far down in a file."""
    reader = _native.StackReader(way)

    def look() -> tuple[list[tuple[int, int, int, bool, int]], list[object]]:
        return reader.sample(1, True), as_python_sees_it(sys._getframe())

    for blank in (0, 1, 40, 70_000):
        space: dict[str, object] = {}
        exec(compile("\n" * blank + textwrap.dedent(ODD_CODE), f"ödd_{blank}.py", "exec"), space)
        calls = [
            lambda: space["plain"](look),  # type: ignore[operator]
            lambda: space["over_lines"](look),  # type: ignore[operator]
            lambda: space["näme_of_文𐐀"](look),  # type: ignore[operator]
            lambda: next(space["generated"](look)),  # type: ignore[operator]
            lambda: space["Held"]()(look),  # type: ignore[operator]
        ]
        for call in calls:
            samples, seen = call()
            # Of the helper that looks at frames there is one more by then.
            assert [stacks_of(reader, sample) for sample in samples] == [seen]


def test_code_where_other_code_was_is_told_by_its_own_name() -> None:
    """Addresses are used again at once: what is known of one is held against what is there now."""
    reader = _native.StackReader()
    for number in range(300):
        space: dict[str, object] = {}
        text = "\n" * (number % 40) + f"def f_{number}(look):\n    return look()\n"
        exec(compile(text, f"file_{number}", "exec"), space)
        (sample,) = space[f"f_{number}"](lambda: reader.sample(1, True))  # type: ignore[operator]
        assert stacks_of(reader, sample)[1] == (f"f_{number}", f"file_{number}", number % 40 + 2)


REFUSED = """
    import ctypes, json, os, struct, sys
    from dftrace_ai import _native

    libc = ctypes.CDLL(None, use_errno=True)
    before = _native.StackReader() if "later" in sys.argv else None
    if "not dumpable" in sys.argv:
        if os.getuid() == 0:
            os.setuid(65534)
        libc.prctl(4, 0, 0, 0, 0)
    refused = [310] if "no vm_readv" in sys.argv else []
    refused += [22, 293] if "no pipes" in sys.argv else []
    for number in refused:
        # Load the call's number; if it is this one, EPERM; else go on.
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        class Filter(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
        libc.prctl(38, 1, 0, 0, 0)
        assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(code))), 0, 0) == 0

    def known():
        reader = before or _native.StackReader()
        if before:
            reader.sample(1, True)
        return reader.names() if not reader.sample(1, True) else [name[0] for name in reader.names()]

    try:
        print(json.dumps(known()))
    except RuntimeError as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (["no vm_readv"], ["<module>", "known"]),
        (["no vm_readv", "not dumpable"], ["<module>", "known"]),
        (["no vm_readv", "not dumpable", "later"], ["<module>", "known"]),
        (
            ["no vm_readv", "not dumpable", "no pipes"],
            "the kernel refuses each way of reading this process's memory",
        ),
    ],
)
def test_where_calls_are_refused_another_way_is_found(refused: list[str], told: object) -> None:
    """A sandbox, a process that changed its user, both; only without all three is nothing read.

    Also where that comes later than the first look.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REFUSED), *refused],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == told
