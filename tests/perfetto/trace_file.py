"""Trace files read line by line, every rule of the format checked on the way."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import zstandard

LANE = 0x40000000  # tids from here on are tracks of tasks and of spans that do not nest
KEYS = {
    "X": ("id", "name", "cat", "pid", "tid", "ts", "dur", "ph", "args"),
    "B": ("id", "name", "cat", "pid", "tid", "ts", "ph", "args"),
    "C": ("id", "name", "cat", "pid", "tid", "ts", "ph", "args"),
    "P": ("name", "cat", "id", "pid", "tid", "ts", "ph", "args"),
    "s": ("id", "name", "cat", "pid", "tid", "ts", "ph"),
    "f": ("id", "name", "cat", "pid", "tid", "ts", "ph", "bp"),
}
M_KEYS = ("name", "cat", "pid", "tid", "ph", "args")
INSTANT_KEYS = {"id", "name", "cat", "pid", "tid", "ts", "ph", "s", "args"}
HASHES = {"HH", "FH", "SH"}
NANOSECONDS = re.compile(r"\d+\.\d{3}")


class BadTrace(AssertionError):
    """A file that breaks a rule of the format."""


class Decimal3(float):
    """A JSON number with a fraction that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Decimal3:
        """Keeps the text beside the value."""
        number = super().__new__(cls, text)
        number.text = text
        return number


# Not frozen, which would take as long as to read its line does.
@dataclass(eq=False)
class Event:
    """One line of a trace; times in integer nanoseconds."""

    line: str = field(repr=False)
    ph: str
    name: str
    cat: str
    pid: int
    tid: int
    id: int | None
    ts_ns: int | None
    dur_ns: int | None
    args: dict[str, Any]

    @property
    def end_ns(self) -> int:
        """The end of a complete span."""
        assert self.ts_ns is not None
        assert self.dur_ns is not None
        return self.ts_ns + self.dur_ns

    @property
    def p_idx(self) -> int:
        """The id of the enclosing span, 0 for none."""
        idx: int = self.args["p_idx"]
        return idx

    @property
    def level(self) -> int:
        """The depth; 1 is outermost."""
        level: int = self.args["level"]
        return level

    @property
    def user(self) -> dict[str, Any]:
        """The arguments that are not the format's own."""
        return {k: v for k, v in self.args.items() if k not in ("hhash", "p_idx", "level")}


class SampledFrame(NamedTuple):
    """A frame of a stack: whose it is (0 for the program's), function, file and line."""

    owner: int
    shown: str
    file: str
    line: int

    @property
    def function(self) -> str:
        """Without file and line."""
        return self.shown.partition(" (")[0]


class Sample(NamedTuple):
    """Where a thread stood, innermost frame first."""

    pid: int
    tid: int
    ts_us: int
    cpu_us: int
    cut: int
    frames: tuple[SampledFrame, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """One process's trace file."""

    path: Path
    events: list[Event] = field(repr=False)

    @cached_property
    def _asked(self) -> dict[tuple[str, ...], list[Event]]:
        return {}

    def of(self, *phs: str) -> list[Event]:
        """Events of these phases, in time order where they have a time."""
        if phs not in self._asked:
            found = [e for e in self.events if e.ph in phs]
            found.sort(key=lambda e: -1 if e.ts_ns is None else e.ts_ns)
            self._asked[phs] = found
        return list(self._asked[phs])

    @cached_property
    def samples(self) -> list[Sample]:
        """Samples of stacks, as they stand in the file, by its own lines alone."""
        return list(_samples(self))

    @cached_property
    def spans(self) -> list[Event]:
        """Complete spans, in time order."""
        return self.of("X")

    @cached_property
    def by_id(self) -> dict[int, Event]:
        """Spans, finished or open, by id."""
        return {e.id: e for e in self.of("X", "B") if e.id is not None}

    @cached_property
    def _below(self) -> dict[int, list[Event]]:
        below: dict[int, list[Event]] = {}
        for e in self.of("X", "B", "i"):
            below.setdefault(e.p_idx, []).append(e)
        return below

    def named(self, name: str, cat: str | None = None) -> list[Event]:
        """Timed events of that name (and category), in time order."""
        return [
            e
            for e in self.of("X", "B", "i", "C")
            if e.name == name and (cat is None or e.cat == cat)
        ]

    def one(self, name: str, cat: str | None = None) -> Event:
        """The only event of that name."""
        found = self.named(name, cat)
        assert len(found) == 1, f"{len(found)} events {name!r} in {self.names}"
        return found[0]

    @property
    def names(self) -> Counter[str]:
        """How many timed events there are of each name."""
        return Counter(e.name for e in self.of("X", "B", "i", "C"))

    def parent(self, e: Event) -> Event | None:
        """The enclosing span, by p_idx."""
        return self.by_id[e.p_idx] if e.p_idx else None

    def children(self, e: Event | None) -> list[Event]:
        """Spans and instants directly below `e` (None: outermost), in time order."""
        if e is None:
            return list(self._below.get(0, []))
        return list(self._below.get(e.id, [])) if e.id is not None else []

    def tree(self, e: Event | None = None) -> list[Any]:
        """Nested [name, [children]] below `e`."""
        return [[c.name, self.tree(c)] for c in self.children(e)]

    @cached_property
    def _meta(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for e in self.events:
            if e.ph == "M":
                found.setdefault(e.name, []).append(e)
        return found

    def meta(self, name: str) -> list[Event]:
        """The M lines of that name, in file order."""
        return list(self._meta.get(name, ()))

    @property
    def marks(self) -> list[tuple[str, str]]:
        """The CM lines as (name, value), in file order."""
        return [(e.args["name"], e.args["value"]) for e in self.meta("CM")]

    @property
    def header(self) -> dict[str, Any]:
        """The args of the header line."""
        return self.meta("dftrace")[0].args

    @property
    def footer(self) -> dict[str, Any]:
        """The args of the last line."""
        return self.events[-1].args

    @property
    def process_name(self) -> str:
        """The process's name."""
        name: str = self.meta("process_name")[0].args["name"]
        return name

    @cached_property
    def thread_names(self) -> dict[int, str]:
        """Thread names by tid; the last one given counts."""
        return {e.tid: e.args["name"] for e in self.meta("thread_name")}


def require(good: bool, what: str) -> None:
    """Raises BadTrace with `what` unless `good`."""
    if not good:
        raise BadTrace(what)


def plain(path: Path, *, in_a_write: bool = False) -> bytes:
    """The uncompressed bytes; each gzip member and each zstd frame must hold whole lines.

    `in_a_write` says that the last block, or line, may be there in part: then it is left out.
    """
    data = path.read_bytes()
    if path.name.endswith(".pfw"):
        return data[: data.rfind(b"\n") + 1] if in_a_write else data
    packed_by_gzip = path.name.endswith(".pfw.gz")
    pieces, end = _blocks(data, _gunzip if packed_by_gzip else _unzstd)
    require(in_a_write or end == len(data), f"{path.name}: the last block is cut")
    for i, piece in enumerate(pieces):
        require(piece.endswith(b"\n"), f"{path.name}: block {i} ends inside a line")
    text = b"".join(pieces)
    if packed_by_gzip:
        require(gzip.decompress(data[:end]) == text, f"{path.name}: gzip reads other bytes")
    return text


def _gunzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _unzstd() -> Any:
    return zstandard.ZstdDecompressor().decompressobj()


def _blocks(data: bytes, decompressor: Callable[[], Any]) -> tuple[list[bytes], int]:
    """The texts of the whole blocks, and where the last of them ends."""
    pieces: list[bytes] = []
    end = 0
    while end < len(data):
        block = decompressor()
        piece = block.decompress(data[end:])
        if not block.eof:
            break
        if piece:  # a frame of zstd to be skipped has none
            pieces.append(piece)
        end = len(data) - len(block.unused_data)
    return pieces, end


def read_unfinished(path: Path, *, in_a_write: bool = False) -> Trace:
    """Reads what is there of a trace still being written: whole lines, no footer yet.

    `in_a_write` says that its writer may be, or have died, in the middle of a write.
    """
    text = plain(path, in_a_write=in_a_write).decode("utf-8")
    if in_a_write and not text:
        return Trace(path, [])
    require(text.startswith("[\n") and text.endswith("\n"), f"{path.name}: framing")
    return Trace(path, _events(path, text.split("\n")[1:-1]))


def read(path: Path, *, ended: str | None = None) -> Trace:
    """Reads a whole, finished trace; raises BadTrace on the first broken rule.

    `ended` is what the footer must say, where it matters.
    """
    raw = plain(path)
    text = raw.decode("utf-8")
    require(text.startswith("[\n"), f"{path.name}: does not begin with '['")
    require(text.endswith("\n"), f"{path.name}: the last line is cut")
    lines = text.split("\n")[1:-1]
    trace = Trace(path, _events(path, lines))
    _framing(trace, len(raw) - len(lines[-1].encode()) - 1)
    _references(trace)
    if ended is not None:
        require(trace.footer["ended"] == ended, f"ended by {trace.footer['ended']}, not {ended}")
    return trace


def _events(path: Path, lines: list[str]) -> list[Event]:
    name = path.name
    return [event(line, f"{name}:{i}") for i, line in enumerate(lines, 2)]


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        twice = [k for k, n in Counter(k for k, _ in items).items() if n > 1]
        raise ValueError(f"repeated keys {twice}")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=Decimal3)


# Of hundreds of thousands of lines: what is wrong is worded where something is.
def event(line: str, where: str) -> Event:
    """One line, strictly: JSON without repeated keys or NaN, the format's key order and types."""
    try:
        obj = _STRICT.decode(line)
    except ValueError as e:
        raise BadTrace(f"{where}: {e}: {line[:300]}") from e
    require(isinstance(obj, dict), f"{where}: not an object")
    ph, args = obj.get("ph"), obj.get("args", {})
    _keys(obj, ph, where)
    for key in ("pid", "tid"):
        if type(obj[key]) is not int or not 0 < obj[key] < 2**31:
            raise BadTrace(f"{where}: {key} {obj[key]}")
    if not type(obj["name"]) is type(obj["cat"]) is type(ph) is str:
        raise BadTrace(f"{where}: types")
    if ph in "XBi":
        if [*islice(args, 3)] != ["hhash", "p_idx", "level"]:
            raise BadTrace(f"{where}: args begin {list(args)}")
        if not type(args["p_idx"]) is type(args["level"]) is int:
            raise BadTrace(f"{where}: types")
    if ph == "C":
        good = all(type(v) in (int, Decimal3) for v in args.values())
        require(good, f"{where}: counters are numbers: {args}")
    _no_null_in_lists(args, where)
    return Event(
        line=line,
        ph=ph,
        name=obj["name"],
        cat=obj["cat"],
        pid=obj["pid"],
        tid=obj["tid"],
        id=obj.get("id"),
        ts_ns=_ns(obj["ts"], where) if "ts" in obj else None,
        dur_ns=_ns(obj["dur"], where) if "dur" in obj else None,
        args=args,
    )


def _keys(obj: dict[str, Any], ph: Any, where: str) -> None:
    keys = tuple(obj)
    if ph == "M":
        good = keys[-len(M_KEYS) :] == M_KEYS
    elif ph == "i":
        good = set(keys) == INSTANT_KEYS and obj["s"] == "t"
    else:
        good = keys == KEYS.get(ph)
    if not good:
        raise BadTrace(f"{where}: keys {keys} of a {ph!r} line")


def _ns(value: Any, where: str) -> int:
    if type(value) is int:
        return value * 1000
    if NANOSECONDS.fullmatch(value.text) is None:
        raise BadTrace(f"{where}: time {value.text}")
    return int(value.text.replace(".", ""))


def _no_null_in_lists(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _no_null_in_lists(item, where)
    elif isinstance(value, list):
        for item in value:
            if item is None:
                raise BadTrace(f"{where}: a null in a list shifts what follows it")
            _no_null_in_lists(item, where)


def _framing(trace: Trace, bytes_before_footer: int) -> None:
    """First and last lines, and the footer's counts."""
    where = trace.path.name
    first, last = trace.events[0], trace.events[-1]
    require(first.name == "process_name" and first.ph == "M", f"{where}: begins {first.line}")
    require((last.name, last.cat) == ("end", "dftrace"), f"{where}: ends with {last.line[:200]}")
    require(len(trace.meta("dftrace")) == 1, f"{where}: header lines")
    require(len({e.pid for e in trace.events}) == 1, f"{where}: several pids")
    have = Counter("CM" if e.name == "CM" else e.ph for e in trace.events)
    del have["M"], have["P"]
    footer = trace.footer
    want = {
        "events": sum(have.values()),
        "spans": have["X"],
        "unfinished": have["B"],
        "instants": have["i"],
        "counters": have["C"],
        "flows": have["s"] + have["f"],
        "metadata": have["CM"],
        "bytes": bytes_before_footer,
    }
    said = {k: footer[k] for k in want}
    require(said == want, f"{where}: the footer says {said}, the file holds {want}")
    require(0 <= footer["file_bytes"] <= trace.path.stat().st_size, f"{where}: file_bytes")
    sampled = footer.get("samples", 0)
    require(sampled == len(trace.samples), f"{where}: {sampled} samples")
    hosts = {e.args["name"]: e.args["hhash"] for e in trace.meta("HH")}
    require(trace.header["host"] in hosts, f"{where}: no HH line for the host")
    for e in trace.events:
        if "hhash" in e.args and e.name not in HASHES:
            require(e.args["hhash"] in hosts.values(), f"{where}: hhash {e.args['hhash']}")


def _samples(trace: Trace) -> Iterator[Sample]:
    """By V8's rules: a profile before its chunks, each of its nodes once, times by differences."""
    nodes: dict[int | None, dict[int, tuple[SampledFrame, ...]]] = {}
    now: dict[int | None, int] = {}
    for at, e in enumerate(e for e in trace.events if e.ph == "P"):
        where, data = f"{trace.path.name}: samples {at}", e.args["data"]
        if e.name == "Profile":
            require(e.id not in nodes, f"{where}: profile {e.id} twice")
            require(e.args["hz"] == trace.header["lines_hz"], f"{where}: {e.args}")
            nodes[e.id], now[e.id] = {}, data["startTime"]
            continue
        require(e.name == "ProfileChunk" and e.id in nodes, f"{where}: {e.line[:200]}")
        stacks = nodes[e.id]
        for node in data["cpuProfile"].get("nodes", ()):
            call = node["callFrame"]
            own = SampledFrame(
                call["scriptId"], call["functionName"], call["url"], call["lineNumber"]
            )
            require(node["id"] not in stacks, f"{where}: node {node['id']} twice")
            outer = stacks[node["parent"]] if "parent" in node else ()
            stacks[node["id"]] = (own, *outer)
        columns = (data["cpuProfile"]["samples"], data["timeDeltas"], data["cpu"], data["cut"])
        for stack, after_us, cpu_us, cut in zip(*columns, strict=True):
            now[e.id] += after_us
            yield Sample(e.pid, e.tid, now[e.id], cpu_us, cut, stacks[stack])


def _references(trace: Trace) -> None:
    """Ids are unique, parents exist, and a level is one more than the parent's.

    Below a span that was left before what it encloses, only `level` >= 1 is held here.
    """
    where = trace.path.name
    ids = Counter(e.id for e in trace.events if e.ph in "XBiC")
    twice = [i for i, n in ids.items() if n > 1]
    require(not twice, f"{where}: ids used twice: {twice[:5]}")
    require(0 not in ids and None not in ids, f"{where}: id 0 or none")
    if trace.footer["dropped"]:
        return
    for e in trace.of("X", "B", "i"):
        up = trace.by_id.get(e.p_idx)
        if e.p_idx != 0 and up is None:
            raise BadTrace(f"{where}: no span {e.p_idx}, parent of {e.name}")
        level = up.level + 1 if up else 1
        good = e.level >= 1 if outlived(trace, e) else e.level == level
        if not good:
            raise BadTrace(f"{where}: {e.name} level {e.level}, its parent {level - 1}")


def outlived(trace: Trace, e: Event) -> bool:
    """Whether some span above `e`, by p_idx, had ended before `e` had."""
    assert e.ts_ns is not None
    up = trace.parent(e)
    while up is not None:
        if up.dur_ns is not None and up.end_ns < e.ts_ns + (e.dur_ns or 0):
            return True
        up = trace.parent(up)
    return False
