"""Dumps of PyTorch's flight recorder: which files are such, and what is read of each.

The form is that of `torch/csrc/distributed/c10d/FlightRecorder.hpp`, version 2. Members are taken
one by one, each of the kind and within the bounds that it has: a dump is somebody else's file.
"""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.live.dumps.plain_pickle import MOST_VALUES, NotPlainError, plain_pickle
from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES: Final = 512 * 1024 * 1024
VERSION: Final = "2"

# Of a call at most so many tensors, dimensions of one, frames, and characters of a name.
MOST_TENSORS: Final = 16_384
MOST_DIMENSIONS: Final = 64
MOST_FRAMES: Final = 256
MOST_CHARACTERS: Final = 1_000
# More ranks has no group, nor all groups of a rank together, and no rank a higher number.
MOST_RANKS: Final = 2**20

_RANK: Final = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|pt))?$", re.ASCII)
_HEAD_BYTES: Final = 4096
# Members of a dump in JSON, which are sorted: a version to come may have others before them.
_JSON_HEAD: Final = re.compile(
    rb'\s*\{(?:.*,)?\s*"(?:(?:comm_lib_version|nccl_comm_state|pg_config)"|entries"\s*:\s*\[)',
    re.DOTALL,
)
_TORCH: Final = re.compile(r"(^|[/\\])torch[/\\]")


class Tensors(NamedTuple):
    """What a call takes or gives.

    Attributes:
        text: the sizes of the first tensors, and for more what tells them apart.
        elements: how many numbers they have together.
    """

    text: str
    elements: int


NO_TENSORS: Final = Tensors("", 0)
_TENSORS_TOLD: Final = 4


@dataclass(slots=True)
class Call:
    """A collective or message that a rank has called.

    Attributes:
        group: name of its process group.
        description: what the program calls the group; empty for nothing.
        seq: which collective of the group it is; of messages 0.
        op: ``all_reduce``, ``send``, ``coalesced``, ...
        peer: of a message from which rank to which, as numbers within the group.
        inputs, outputs: sizes of its tensors.
        dtypes: the types of all of them.
        state: ``scheduled``, ``started`` or ``done``; the last also where it failed.
        completed: it was seen to end well, which gloo's never are.
        created_ns: when it was called, nanoseconds since 1970; 0 where that is unknown.
        started_ns: when it was seen to run; 0 where it was not, or that is unknown.
        where: file, line and function of the program; empty where the dump has none.
        record: how many the recorder had recorded before it.
        message: it is between some ranks of the group and not a collective of all.
        parts: the calls that a coalesced one is made of.
    """

    group: str
    description: str
    seq: int
    op: str
    peer: tuple[int, int] | None
    inputs: Tensors
    outputs: Tensors
    dtypes: tuple[str, ...]
    state: str
    completed: bool
    created_ns: int
    started_ns: int
    where: str
    record: int
    message: bool = False
    parts: tuple[Call, ...] = ()


@dataclass
class Dump:
    """What one rank's dump holds.

    Attributes:
        rank: its rank, by the name of the file.
        path: the file.
        version: that of the form, ``2.10``.
        written_ns: when the file was written, nanoseconds since 1970; 0 where that is unknown.
        calls: those it has, in their order; a coalesced one once.
        first: for each group from which collective on all of them are there.
        ranks: of each group that the dump tells of its ranks.
        wrapped: calls before the first of it were overwritten.
        damaged: how many entries could not be read.
    """

    rank: int
    path: str
    version: str
    written_ns: int
    calls: list[Call] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, frozenset[int]] = field(default_factory=dict)
    wrapped: bool = False
    damaged: int = 0


@dataclass
class Dumps:
    """The dumps of a job: one for each rank, and which files were passed over, with the reason."""

    by_rank: dict[int, Dump]
    skipped: list[str]


def dump_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return which of these are dumps, and those in directories, by what they hold."""
    return [file for path in map(Path, paths) for file in _files_of(path)]


def _files_of(path: Path) -> Iterator[Path]:
    # os.path, since pathlib raises where a directory above is closed.
    if not os.path.isdir(path):  # noqa: PTH112
        if _is_dump(path):
            yield path
        return
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return  # who looks for spools there says so
    for name in names:
        if _RANK.search(name) and not name.startswith(".") and _is_dump(path / name):
            yield path / name


def _is_dump(path: Path) -> bool:
    """Whether a file begins like a dump; a pipe is not opened."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    return (head[:1] == b"\x80" and head[1:2] <= b"\x05") or bool(_JSON_HEAD.match(head))


def read_dumps(paths: Iterable[str | os.PathLike[str]]) -> Dumps:
    """Read the dumps of a job.

    Args:
        paths: files that the flight recorder wrote as a pickle or as JSON, and directories
            with such. The number at the end of a name is the rank.

    Returns:
        One dump for each rank: of two the pickle, which knows lines of the program, else the
        newer one. Files that hold none, or more than is read, are told in `skipped`.

    Example::

        for rank, dump in read_dumps(["fr/"]).by_rank.items():
            print(rank, dump.calls[-1].op)
    """
    found = Dumps({}, [])
    preferred: dict[int, tuple[bool, int]] = {}
    for path in dump_files(paths):
        try:
            dump, is_pickle = _read(path)
        except (NotPlainError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            found.skipped.append(f"{path}: {reason}")
            continue
        worth = is_pickle, dump.written_ns
        other = found.by_rank.get(dump.rank)
        if other is not None and preferred[dump.rank][0] == is_pickle:
            older = dump if preferred[dump.rank] >= worth else other
            found.skipped.append(f"{older.path}: rank {dump.rank} has a newer dump")
        if other is None or preferred[dump.rank] < worth:
            found.by_rank[dump.rank] = dump
            preferred[dump.rank] = worth
    found.by_rank = dict(sorted(found.by_rank.items()))
    return found


def _read(path: Path) -> tuple[Dump, bool]:
    named = _RANK.search(path.name)
    if named is None:
        raise NotPlainError("its name does not end in a rank")
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise NotPlainError(f"it has more than {MOST_BYTES >> 20} MiB")
    is_pickle = data[:1] == b"\x80"
    said = plain_pickle(data) if is_pickle else _plain_json(data)
    entries = said.get("entries") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(entries, list) or "version" not in said:
        raise NotPlainError("it is no dump of the flight recorder with its entries")
    version = _text(said["version"])
    if version.partition(".")[0] != VERSION:
        raise NotPlainError(f"version {version[:20]!r} is not known, only {VERSION}.x")
    dump = Dump(int(named[1]), str(path), version, facts.st_mtime_ns)
    dump.ranks = _ranks_of_groups(said.get("pg_config"))
    _add_calls(dump, entries)
    if dump.damaged and not dump.calls:  # it would be judged as of a rank that has called nothing
        raise NotPlainError("none of its entries could be read")
    if max((call.created_ns for call in dump.calls), default=0) > dump.written_ns + 1_000_000_000:
        dump.written_ns = 0  # it was copied without its time
    return dump, is_pickle


def _plain_json(data: bytes) -> object:
    import orjson

    # Before there are objects of them: every value but the last has a comma or a bracket behind it.
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > MOST_VALUES:
        raise NotPlainError(f"it has more than {MOST_VALUES:,} values")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise NotPlainError("it is cut or damaged") from None


def _text(value: object) -> str:
    return value[:MOST_CHARACTERS] if isinstance(value, str) else ""


def _number(value: object) -> int:
    """A number, also one in a text; -1 for none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if type(value) is int and 0 <= value < 2**63 else -1


def _ranks_of_groups(config: object) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    left = MOST_RANKS
    for name, facts in config.items() if isinstance(config, dict) else ():
        ranks = facts.get("ranks") if isinstance(facts, dict) else None
        texts = ranks.strip("[] ").split(",") if isinstance(ranks, str) else ranks
        if not isinstance(texts, list) or len(texts) > left:
            continue
        left -= len(texts)
        numbers = frozenset(_number(one.strip() if isinstance(one, str) else one) for one in texts)
        if min(numbers, default=-1) >= 0 and max(numbers) < MOST_RANKS:
            found[_text(name)] = numbers
    return found


class _Entry(NamedTuple):
    call: Call
    p2p_seq: int


class _Entries:
    """Reads entries; what several of them share is read once."""

    def __init__(self) -> None:
        self._sizes: dict[int, Tensors] = {}
        self._dtypes: dict[tuple[int, int], tuple[str, ...]] = {}
        self._where: dict[int, str] = {}
        self._shapes: dict[int, int] = {}

    def read(self, entry: object) -> _Entry | None:
        """Return an entry; None for one that is not of the known form."""
        if not isinstance(entry, dict):
            return None
        called = _text(entry.get("profiling_name")).partition(":")[2]
        op, _, peers = called.partition(" ")
        names = entry.get("process_group")
        seq = _number(entry.get("collective_seq_id"))
        if not op or not isinstance(names, list | tuple) or len(names) != 2 or seq < 0:
            return None
        inputs = self._read_sizes(entry.get("input_sizes"))
        outputs = self._read_sizes(entry.get("output_sizes"))
        if inputs is None or outputs is None:
            return None
        description = _text(names[1])
        # gloo sets no state: `retired` alone says that it no longer waits.
        started_ns = max(_number(entry.get("time_discovered_started_ns")), 0)
        completed = (
            entry.get("state") == "completed"
            or _number(entry.get("time_discovered_completed_ns")) > 0
        )
        done = completed or entry.get("retired") is True
        running = started_ns > 0 or entry.get("state") == "started"
        call = Call(
            group=_text(names[0]),
            description="" if description == "undefined" else description,
            seq=seq,
            op=op,
            peer=_peers(op, peers),
            inputs=inputs,
            outputs=outputs,
            dtypes=self._read_dtypes(entry),
            state="done" if done else "started" if running else "scheduled",
            completed=completed,
            created_ns=max(_number(entry.get("time_created_ns")), 0),
            started_ns=started_ns,
            where=self._place(entry.get("frames")),
            record=_number(entry.get("record_id")),
            message=op in _PEERS or entry.get("is_p2p") is True,
        )
        return _Entry(call, _number(entry.get("p2p_seq_id")))

    def _is_shape(self, one: object) -> bool:
        """Note how many elements it has, once: a pickle can refer to one shape a million times."""
        if id(one) not in self._shapes:
            if not isinstance(one, list) or len(one) > MOST_DIMENSIONS:
                return False
            if not all(type(dimension) is int for dimension in one):
                return False
            self._shapes[id(one)] = math.prod(one)
        return True

    def _read_sizes(self, sizes: object) -> Tensors | None:
        if not isinstance(sizes, list) or len(sizes) > MOST_TENSORS:
            return None
        if id(sizes) not in self._sizes:
            if not all(self._is_shape(one) for one in sizes):
                return None
            self._sizes[id(sizes)] = _tensors(sizes, self._shapes)
        return self._sizes[id(sizes)]

    def _read_dtypes(self, entry: dict[object, object]) -> tuple[str, ...]:
        lists = entry.get("input_dtypes"), entry.get("output_dtypes")
        key = id(lists[0]), id(lists[1])
        if key not in self._dtypes:
            found: set[str] = set()
            for names in lists:
                if isinstance(names, list) and len(names) <= MOST_TENSORS:
                    found.update(name for name in map(_text, names) if name)
            self._dtypes[key] = tuple(sorted(found))
        return self._dtypes[key]

    def _place(self, frames: object) -> str:
        """The innermost line that is not torch's."""
        if not isinstance(frames, list):
            return ""
        if id(frames) not in self._where:
            self._where[id(frames)] = ""
            for frame in frames[:MOST_FRAMES]:
                if not isinstance(frame, dict):
                    continue
                file = _text(frame.get("filename"))
                if file and not _TORCH.search(file):
                    line, name = _number(frame.get("line")), _text(frame.get("name"))
                    told = f"{os.path.basename(file)}:{line} in {name}"  # noqa: PTH119
                    self._where[id(frames)] = shortened(told, 200)
                    break
        return self._where[id(frames)]


def _tensors(sizes: list[list[int]], elements: dict[int, int]) -> Tensors:
    text = " ".join(map(str, sizes[:_TENSORS_TOLD]))
    if len(sizes) > _TENSORS_TOLD:
        apart = {id(one): hash(tuple(one)) for one in sizes}
        mark = hash(tuple(apart[id(one)] for one in sizes)) & 0xFFFF
        text += f" and {len(sizes) - _TENSORS_TOLD} more ({mark:04x})"
    return Tensors(text, sum(elements[id(one)] for one in sizes))


_PEERS: Final = {
    "send": re.compile(r"(\d{1,7})->(\d{1,7})", re.ASCII),
    "recv": re.compile(r"(\d{1,7})<-(\d{1,7})", re.ASCII),
}


def _peers(op: str, peers: str) -> tuple[int, int] | None:
    """From which rank of the group to which a message goes."""
    pattern = _PEERS.get(op)
    pair = pattern.fullmatch(peers) if pattern else None
    if pair is None:
        return None
    first, second = int(pair[1]), int(pair[2])
    return (first, second) if op == "send" else (second, first)


# The entries that end a coalesced call.
_ENDS: Final = frozenset({"coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"})


def _add_calls(dump: Dump, entries: list[object]) -> None:
    """Add the calls of a dump, those of a coalesced one as its parts."""
    reader = _Entries()
    runs: list[list[_Entry]] = []  # entries of a group one behind the other that have one number
    newest: dict[str, list[_Entry]] = {}
    for value in entries:
        entry = reader.read(value)
        if entry is None:
            dump.damaged += 1
            continue
        run = newest.get(entry.call.group)
        if run and (run[-1].call.seq, run[-1].p2p_seq) == (entry.call.seq, entry.p2p_seq):
            run.append(entry)
        else:
            newest[entry.call.group] = run = [entry]
            runs.append(run)
    dump.wrapped = bool(runs) and runs[0][0].call.record > 0
    for run in runs:
        call = run[0].call if len(run) == 1 else _coalesced([entry.call for entry in run])
        dump.calls.append(call)
        if dump.wrapped and not call.message:
            # Of a coalesced one the first parts may be gone.
            dump.first.setdefault(call.group, call.seq + bool(call.parts))


def _coalesced(calls: list[Call]) -> Call:
    """One call of the entries that NCCL writes for it: the last one ends it, and has the state."""
    is_ended = calls[-1].op in _ENDS
    parts = tuple(calls[:-1] if is_ended else calls)
    end = calls[-1] if is_ended else replace(calls[0], op="coalesced", peer=None, dtypes=())
    for part in parts:
        part.state, part.completed = end.state, end.completed
    return replace(
        end,
        inputs=NO_TENSORS,
        outputs=NO_TENSORS,
        created_ns=parts[0].created_ns,
        message=all(part.message for part in parts),
        where=end.where or parts[0].where,
        parts=parts,
    )
