"""An archive of traces, with the manifest by which Perfetto brings them together.

That is Perfetto's "trace manifest format", version 1, which it reads from version 58 on
(https://perfetto.dev/docs/reference/perfetto-manifest). A file that has a machine of its own keeps
its pids apart; `clocks` without a clock move all of a file, later for what is positive. What is
moved before the beginning of all would lose events: others go by the first. Of a member that is
compressed nothing can be said, and all would be refused: so members are plain. Nor is the archive
compressed: of each member of a gzip file Perfetto would hold 32 MiB.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from dftrace_ai._reader import Rewriting
from dftrace_ai.analysis.converting.placing import ConvertedFile
from dftrace_ai.analysis.merging.file_lines import Change, FileLines, Shown
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.trace_format.file_names import SUFFIX_OF
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.merging.gathering import Gathered
    from dftrace_ai.analysis.merging.shown_times import Piece, ShownTimes
    from dftrace_ai.analysis.reading.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import Json

MANIFEST: Final = "perfetto_manifest.json"

NAME_BYTES: Final = 99
"""Longer names of members the UI does not take."""

MOST_DRIFT_NS: Final = 20_000
"""An archive has no drift: of clocks that drift by more over half a run times are written anew."""

MOST_OFFSET_NS: Final = -(1 << 63)
"""No offset takes more digits."""

TOO_FAR: Final = "is not moved to the time of the others, which is further than an offset can say"

BLOCK_BYTES: Final = 512

PLAIN: Final = SUFFIX_OF["none"]
SIZED: Final = 8
"""So many bytes of a name are left for a number."""


def write_archive(
    shown: Gathered, path: Path, name: str, notes: list[str]
) -> tuple[list[ConvertedFile], list[str]]:
    """Write what is shown as an archive of this name; return it, and what is to be told of it."""
    # Each trace is read once, a line after the other. What cannot be read of it is left out, and
    # added to `notes`; so is a trace without an event, for which Perfetto refuses all others.
    if shown.window or shown.steps_only:
        raise DftraceError(
            "an archive holds traces as they are: without --archive steps and collectives, a part "
            "of the time, and what is more than a viewer takes can be chosen; with it --ranks and "
            "--all"
        )
    own = [file for file in shown.files if not file.file.copy]
    members = _members(own, shown.times)
    held: list[_Member] = []
    with path.open("r+b") as file:
        tar = _Tar(file)
        manifest = _Manifest(members)
        at = tar.begin(MANIFEST, manifest.widest)
        for one in members:
            lines = FileLines(one.trace, one.change, Shown())
            tar.add(one.name, lines, marked=one.is_anew)
            notes += lines.notes
            if lines.lines > one.is_anew:  # which it says itself
                held.append(one)
            else:
                tar.take_back()
                notes.append(f"{one.trace}: has no event, and is left out")
        if not held:
            raise DftraceError("no trace has an event, so there is no archive to write")
        tar.end()
        tar.replace(at, manifest.of(held))
        notes += (f"{one.trace}: {TOO_FAR}" for one, by_ns in _moved(held) if not _has_room(by_ns))
    told = ["an archive is for Perfetto 58 and newer; earlier ones do not go by its manifest"]
    if count := sum(one.is_anew for one in held):
        told.append(
            f"times of {counted(count, 'trace')} are written anew: by one shift for each, which "
            "is what an archive has, their clocks would lie apart"
        )
    if len(own) < len(shown.files):
        told.append("traces of other forms are not in an archive")
    return [ConvertedFile(name, None, 0, path.stat().st_size)], told


class _Member(NamedTuple):
    """A trace in an archive."""

    trace: Trace
    name: str
    machine: str
    change: Change  # where its times are written anew, by one clock
    offset_ns: int  # else by which it is moved
    begin_ns: int  # then

    @property
    def is_anew(self) -> bool:
        """Whether its times are written anew."""
        return bool(self.change.pieces)


class _Manifest:
    """What the manifest says of members: their machines, and by how much each is moved."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self._members = members
        self._attributes = {
            "dftrace.run": members[0].trace.said.run or "" if members else "",
            "dftrace.ranks": len({one.trace.said.rank for one in members} - {None}),
        }

    @property
    def widest(self) -> bytes:
        """The longest that it can be of these members, or some of them."""
        names = [one.name for one in self._members]
        moved = (self._told(one, max(names, key=len), MOST_OFFSET_NS) for one in self._members)
        return self._text([*moved])

    def of(self, members: Sequence[_Member]) -> bytes:
        """Return that of some members, as long as the widest."""
        first = _first(members).name
        moved = [self._told(one, first, by_ns) for one, by_ns in _moved(members)]
        return self._text(moved, len(self.widest))

    def _told(self, member: _Member, first: str, offset_ns: int) -> dict[str, Json]:
        said: dict[str, Json] = {"path": member.name, "machine": {"name": member.machine}}
        if offset_ns and _has_room(offset_ns):
            said["clocks"] = {"sync_to": {"file": first}, "offset_ns": offset_ns}
        return said

    def _text(self, files: list[dict[str, Json]], size: int = 0) -> bytes:
        document = {"version": 1, "files": files, "attributes": self._attributes}
        text = json.dumps({"perfetto_manifest": document}).encode("ascii")
        # By its beginning it is known for what it is.
        return text[:-1].ljust(size - 1) + text[-1:]


def _first(members: Sequence[_Member]) -> _Member:
    return min(members, key=lambda one: one.begin_ns)


def _moved(members: Sequence[_Member]) -> list[tuple[_Member, int]]:
    """Return by how much each is moved, which begins on the clock of the first."""
    first = _first(members)
    return [(one, one.offset_ns - first.offset_ns) for one in members]


def _has_room(offset_ns: int) -> bool:
    return MOST_OFFSET_NS <= offset_ns < -MOST_OFFSET_NS


class _Tar:
    """A tar whose members say how long they are when they have been written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._last = 0  # where the last member begins

    def begin(self, name: str, text: bytes) -> int:
        """Write a member that may be replaced; returns its place."""
        self._file.write(self._head(name, len(text)))
        place = self._file.tell()
        self._file.write(text)
        self._pad(len(text))
        return place

    def replace(self, place: int, text: bytes) -> None:
        """Write a text in place of another of its length."""
        self._write_at(place, text)

    def add(self, name: str, lines: FileLines, *, marked: bool) -> None:
        """Write a member of the lines of a file."""
        self._last = self._file.tell()
        self._file.write(self._head(name, 0))
        self._file.writelines(lines.pieces(first=True, marked=marked))
        size = self._file.tell() - self._last - BLOCK_BYTES
        self._pad(size)
        self._write_at(self._last, self._head(name, size))

    def take_back(self) -> None:
        """Take back the last member."""
        self._file.seek(self._last)
        self._file.truncate()

    def end(self) -> None:
        """Write the end."""
        self._file.write(bytes(2 * BLOCK_BYTES))

    def _pad(self, size: int) -> None:
        self._file.write(bytes(-size % BLOCK_BYTES))

    def _head(self, name: str, size: int) -> bytes:
        from tarfile import GNU_FORMAT, TarInfo  # late: of what comes by here, few need it

        entry = TarInfo(name)
        entry.size = size
        return entry.tobuf(GNU_FORMAT)

    def _write_at(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        self._file.write(content)
        self._file.seek(0, 2)


def _members(files: Sequence[Trace], times: ShownTimes) -> list[_Member]:
    names, machines = _names(files), _machines(files)
    members = []
    for file, name, machine in zip(files, names, machines, strict=True):
        pieces = times.pieces(file)
        shift = _one_shift(file, pieces)
        begin_ns = _begin_ns(file, pieces, shift)
        pid = file.said.pid or 0
        change = Change(pieces if shift is None else [], pid, pid)
        members.append(_Member(file, name, machine, change, shift or 0, begin_ns))
    return members


def _one_shift(file: Trace, pieces: list[Piece]) -> int | None:
    """Return by how much all times of a file are moved; None where no one shift will do."""
    if not pieces:
        return 0
    reach = _reach_of(file)
    base_ns = (file.said.time_base_us or 0) * 1000
    rates = max(abs(rate) for _, _, rate, _ in pieces)
    if len(pieces) > 1 or (rates and reach is None):
        return None
    begin, end = (reach.first_ns - base_ns, reach.last_ns - base_ns) if reach else (0, 0)
    if rates * (end - begin) / 2 > MOST_DRIFT_NS:
        return None
    _, shift, rate, at = pieces[0]
    return shift - round(rate * ((begin + end) / 2 - at))


def _reach_of(file: Trace) -> Reach | None:
    try:
        reach = recorded(file)
    except TraceError:
        return None
    return reach if reach and reach.first_ns <= reach.last_ns else None


def _begin_ns(file: Trace, pieces: list[Piece], shift_ns: int | None) -> int:
    reach = _reach_of(file)
    begin = reach.first_ns - (file.said.time_base_us or 0) * 1000 if reach else 0
    if shift_ns is not None:
        return begin + shift_ns
    return Rewriting(0, 0, pieces, None, None, False, False, False).shown(begin)


def _names(files: Iterable[Trace]) -> list[str]:
    taken: dict[str, None] = {}
    for file in files:
        rank = "no-rank" if file.said.rank is None else f"rank{file.said.rank:05}"
        stem = file.path.name
        suffix = next((one for one in SUFFIX_OF.values() if stem.endswith(one)), "")
        plain = stem.removesuffix(suffix).encode("ascii", "replace").decode().replace("?", "_")
        room = NAME_BYTES - len(PLAIN) - SIZED
        name, number = f"{rank}-{plain}"[:room] + PLAIN, 1
        while name in taken:
            number += 1
            name = f"{rank}-{plain}"[:room] + f"-{number}{PLAIN}"
        taken[name] = None
    return [*taken]


def _machines(files: Sequence[Trace]) -> list[str]:
    """Return the machine of each file: its host; of containers with the same pids each its own."""
    owners = Owners(files)
    taken: dict[tuple[str, int | None], int] = {}
    machines = []
    for file in files:
        host, owner = file.said.host or "unknown host", owners.of(file).number
        name, number = host, 1
        while taken.setdefault((name, file.said.pid), owner) != owner:
            number += 1
            name = f"{host} ({number})"
        machines.append(name)
    return machines
