"""Samples of stacks as columns, and their stacks as one tree of frames; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

import numpy as np
import orjson

from dftrace_ai._reader import Samples
from dftrace_ai.analysis.reading.scanning import (
    LATEST_BASE_US,
    TraceBlocks,
    base_ns_of,
    new_scanner,
)
from dftrace_ai.analysis.reading.stack_lines import UNREAD
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import NotRequired

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace import Trace

OWN_CODE: Final = 0
"""As `scriptId` has it: the program's own code, and not that of a library."""

RECORDERS_CODE: Final = 3

BOOTSTRAP: Final = "<module> (<string>:1)"
"""What a spawned process of multiprocessing stands in; no line of anybody's program."""

NO_STACK: Final = -1

AT_ONCE: Final = 1 << 20
"""Samples that the native reader holds, whose columns grow."""

COLUMNS: Final = 8
"""Of samples as the native reader has them; see `Samples.taken`."""

MOST_FRAMES: Final = 1000
"""Of a stack, as the recorder keeps them; stacks as deep as a file likes would take all memory."""

MOST_REMEMBERED: Final = 1_000_000
"""Frames of stacks that were asked for: thousands of deep ones would take gigabytes."""

MOST_US: Final = 2**53
MOST_LINE: Final = 2**31


class Function(NamedTuple):
    """A function of the program, or of a library; its file is empty where that is left out."""

    name: str
    file: str
    is_library: bool
    is_recorder: bool = False


class Frame(NamedTuple):
    """A function, by its place among those of a tree, and the line of it that was at work."""

    function: int
    line: int


@dataclass(repr=False)
class StackTree:
    """Stacks of one or several processes; each is the number of its innermost frame's node."""

    functions: list[Function] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)  # of a node, `NO_STACK` for the outermost
    frame: list[int] = field(default_factory=list)  # of a node, its place in `frames`
    _functions: dict[Function, int] = field(default_factory=dict)
    _frames: dict[Frame, int] = field(default_factory=dict)
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)
    _stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    _remembered: int = 0

    def node(self, parent: int, function: Function, line: int) -> int:
        """Return the number of a node, which is made where there is none."""
        number = _numbered(self._functions, self.functions, function)
        frame = _numbered(self._frames, self.frames, Frame(number, line))
        found = self._nodes.setdefault((parent, frame), len(self.parent))
        if found == len(self.parent):
            self.parent.append(parent)
            self.frame.append(frame)
        return found

    @property
    def numbers(self) -> dict[Frame, int]:
        """The place of each frame in `frames`."""
        return self._frames

    def stack(self, node: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, the outermost first."""
        found = self._stacks.get(node)
        if found is None:
            frames: list[Frame] = []
            at = node
            while at != NO_STACK:
                frames.append(self.frames[self.frame[at]])
                at = self.parent[at]
            found = self._stacks[node] = tuple(reversed(frames))
            self._remembered += len(found)
            if self._remembered > MOST_REMEMBERED:
                self._stacks, self._remembered = {}, 0
        return found


def _numbered(numbers: dict[Any, int], all_of_them: list[Any], one: object) -> int:
    number = numbers.setdefault(one, len(all_of_them))
    if number == len(all_of_them):
        all_of_them.append(one)
    return number


@dataclass(frozen=True, repr=False)
class StackSamples:
    """Samples of the threads of a process, in the order of time."""

    pid: int
    tree: StackTree
    at_ns: Integers  # since 1970
    tid: Integers
    stack: Integers  # numbers of nodes of `tree`
    cpu_ns: Integers  # what the thread used of a processor since its sample before; or below 0
    since_ns: Integers  # how long before that was
    cut: Integers  # 1 where the innermost frames are not known
    period_ns: Integers  # for how long it stands, more where it was taken late
    # How long its thread waited for a processor: a part of what is told of several; or below 0.
    ready_ns: Integers

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def columns(self) -> tuple[Integers, ...]:
        """All of them, in their order."""
        times = self.cpu_ns, self.since_ns
        return (self.at_ns, self.tid, self.stack, *times, self.cut, self.period_ns, self.ready_ns)

    def at(self, which: Integers) -> StackSamples:
        """Return some of them, by a mask or by indices."""
        return StackSamples(self.pid, self.tree, *(column[which] for column in self.columns))


CALL_FRAME: Final = ("functionName", "url", "scriptId", "lineNumber")


class _CallFrame(TypedDict):
    functionName: str
    url: str
    scriptId: int
    lineNumber: int


class _Node(TypedDict):
    id: int
    parent: NotRequired[int]
    callFrame: _CallFrame


class _Stacks(TypedDict):
    nodes: NotRequired[list[_Node]]
    samples: list[int]


class _Data(TypedDict):
    cpuProfile: _Stacks
    timeDeltas: list[int]
    cpu: list[int]
    cut: list[int]
    late: NotRequired[list[int]]
    ready: NotRequired[int]


class _Start(TypedDict):
    startTime: int


class _Begin(TypedDict):
    hz: float
    data: _Start


def _whole(
    pid: int, base_ns: int, tree: StackTree, pieces: Sequence[NDArray[np.int64]]
) -> StackSamples:
    """Return what was read of a process, in the order of time."""
    order = np.argsort(np.concatenate([piece[0] for piece in pieces]), kind="stable")
    columns = [
        np.concatenate([piece[at] for piece in pieces])[order] for at in range(len(pieces[0]))
    ]
    at_ns, since_ns, cpu_ns, period_ns, ready_ns, tid, stack, cut = columns
    at_ns = np.minimum(at_ns, LATEST_BASE_US) * 1000
    at_ns += base_ns
    since_ns *= 1000
    cpu_ns *= 1000
    return StackSamples(pid, tree, at_ns, tid, stack, cpu_ns, since_ns, cut, period_ns, ready_ns)


def _numbers(data: _Data) -> bytes:
    """Return the arguments of a line of samples as the recorder writes them, without its nodes."""
    lists = {"timeDeltas": data["timeDeltas"], "cpu": data["cpu"], "cut": data["cut"]}
    if late := data.get("late"):
        lists["late"] = late
    told = {
        "cpuProfile": {"samples": [*map(_as_whole, data["cpuProfile"]["samples"])]},
        **{name: [*map(_as_whole, numbers)] for name, numbers in lists.items()},
        **({"ready": _as_whole(data["ready"])} if "ready" in data else {}),
    }
    return b'"data":%b' % orjson.dumps(told)


def _as_whole(number: int) -> int:
    """Return a whole number that others wrote as ``1.0`` or ``true`` as one."""
    whole = int(number)
    return whole if whole == number else number


def _begun(said: _Begin) -> tuple[int, int]:
    """Return when samples begin, in us, and how long each stands for, in ns."""
    period_ns = round(1e9 / said["hz"])
    start_us = int(said["data"]["startTime"])
    if not (0 < period_ns < MOST_US and 0 <= start_us < MOST_US):
        raise ValueError("times that cannot be")
    return start_us, period_ns


class StackReader:
    """Reads the samples of traces, whose stacks all come into one tree.

    Attributes:
        tree: the stacks so far.
        notes: what could not be read of the files so far, one line each.
    """

    def __init__(self) -> None:
        self.tree = StackTree()
        self.notes: list[str] = []
        self._functions: dict[tuple[str, str, int], Function] = {}
        self._told: dict[tuple[object, ...], int] = {}  # nodes, by what lines say of them
        self._depth: dict[int, int] = {}  # of nodes

    def read(self, traces: Sequence[Trace]) -> Iterator[StackSamples]:
        """Yield the samples of each process of some traces, in the order of their numbers.

        Raises:
            TraceError: a file cannot be read any more.
        """
        found: dict[int, list[StackSamples]] = {}
        for trace in traces:
            base_ns = base_ns_of(trace)
            for pid, pieces in self._read(trace).items():
                found.setdefault(pid, []).append(_whole(pid, base_ns, self.tree, pieces))
        for pid in sorted(found):
            yield _together(found[pid])

    def _read(self, trace: Trace) -> dict[int, list[NDArray[np.int64]]]:
        found: dict[int, list[NDArray[np.int64]]] = {}
        samples, odd = Samples(), 0

        def keep() -> None:
            for pid, columns in samples.taken():
                whole = np.frombuffer(columns, np.int64).reshape(COLUMNS, -1)
                found.setdefault(pid, []).append(whole)

        blocks = TraceBlocks(new_scanner(), trace)
        for block in blocks:
            line = samples.take(block, 0)
            while line is not None:
                odd += not self._take(samples, *line[1:])
                line = samples.take(block, line[0] + 1)
            if len(samples) >= AT_ONCE:
                keep()
        keep()
        self.notes += blocks.notes
        if odd:
            self.notes.append(f"{trace}: {counted(odd, 'line')} {UNREAD}")
        return found

    def _take(
        self, samples: Samples, has_some: bool, number: int, pid: int, tid: int, args: bytes
    ) -> bool:
        """Take a line that begins samples, tells nodes, or is not as the recorder writes it."""
        profile = pid, number
        try:
            if not has_some:
                # What it had before ends here, also where this cannot be read.
                samples.forget(*profile)
                samples.begin(*profile, *_begun(orjson.loads(b"{%b}" % args)))
                return True
            data: _Data = orjson.loads(b"{%b}" % args)["data"]
            for node in data["cpuProfile"].get("nodes", ()):
                parent = node.get("parent")
                outer = (
                    NO_STACK if parent is None else samples.stack_of(*profile, _as_whole(parent))
                )
                if outer is None:
                    return False
                frame = node["callFrame"]
                told = (outer, *map(frame.__getitem__, CALL_FRAME))
                # Each profile tells its nodes anew.
                made = self._told.get(told)
                if made is None:
                    made = self._told[told] = self._node(outer, frame)
                if not samples.learn(*profile, _as_whole(node["id"]), made):
                    return False
            return samples.add(*profile, tid, _numbers(data))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return False

    def _node(self, outer: int, frame: _CallFrame) -> int:
        depth = self._depth.get(outer, 0) + 1
        if depth > MOST_FRAMES:
            raise ValueError("more frames than a stack has")
        made = self.tree.node(outer, *self._called(frame))
        self._depth[made] = depth
        return made

    def _called(self, frame: _CallFrame) -> tuple[Function, int]:
        """Return the function and the line of a frame; its name is written with its place."""
        key = written, file, library = frame["functionName"], frame["url"], frame["scriptId"]
        line = int(frame["lineNumber"])
        if not 0 <= line < MOST_LINE:
            raise ValueError("a line that cannot be")
        function = self._functions.get(key)
        if function is None:
            if not (isinstance(written, str) and isinstance(file, str)):
                raise TypeError("names that are no texts")
            place = f" ({file}:{line})" if line else f" ({file})"
            name = written
            if file and written.endswith(")"):
                # A name of a file may have brackets of its own.
                shorter = written.removesuffix(place)
                name = shorter if shorter != written else written.rpartition(" (")[0]
            function = self._functions[key] = Function(
                name or written,
                file,
                library != OWN_CODE or written == BOOTSTRAP,
                library == RECORDERS_CODE,
            )
        return function, line


def _together(parts: Sequence[StackSamples]) -> StackSamples:
    """Return the samples of the parts of a process, in the order of time."""
    if len(parts) == 1:
        return parts[0]
    columns = map(np.concatenate, zip(*(part.columns for part in parts), strict=True))
    return _in_order(StackSamples(parts[0].pid, parts[0].tree, *columns))


def _in_order(samples: StackSamples) -> StackSamples:
    return samples.at(np.argsort(samples.at_ns, kind="stable"))
