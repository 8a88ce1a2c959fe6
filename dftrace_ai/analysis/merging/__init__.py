"""Many traces as one file for a viewer, or as an archive of them with what brings them together."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai._reader import Rewriting
from dftrace_ai.analysis.converting.placing import (
    MANIFEST,
    ConvertedFile,
    in_place,
    new_file,
)
from dftrace_ai.analysis.merging.file_lines import Change, FileLines, Shown
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.errors import DftraceError, TraceError, readable
from dftrace_ai.trace_format.file_names import SUFFIX_OF
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path
    from tarfile import TarFile

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.merging.gathering import Asked, Gathered
    from dftrace_ai.analysis.merging.merged_trace import MergedTrace
    from dftrace_ai.analysis.merging.shown_times import Piece, ShownTimes
    from dftrace_ai.analysis.reading.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import Json

__all__ = ["Merged", "merge", "written"]

HOST_LETTERS: Final = 100

# Perfetto's "trace manifest format", version 1, which its versions from 58 on read. A file that has
# a machine of its own keeps its pids apart; `clocks` without a clock moves all of a file, later for
# what is positive. What is moved before the beginning of all would lose events: others go by the
# first.
ARCHIVED: Final = "perfetto_manifest.json"

NAME_BYTES: Final = 99
"""Longer names of members the UI does not take."""

MOST_DRIFT_NS: Final = 20_000
"""An archive has no drift: of clocks that drift by more over half a run times are written anew."""

SIZED: Final = 16


@dataclass(frozen=True)
class Merged:
    """What was written.

    Attributes:
        format: version of this form, 1.
        out: the file or directory.
        lines: of all files; 0 of an archive, whose traces are as they were.
        files: each of them.
        notes: what could not be read, one line each.
        told: what was changed or left out, and how to have it, likewise.
        kind: ``dftrace merge``, by which its JSON is known.
    """

    format: Literal[1]
    out: str
    lines: int
    files: tuple[ConvertedFile, ...]
    notes: tuple[str, ...]
    told: tuple[str, ...]
    kind: Literal["dftrace merge"] = "dftrace merge"


def merge(
    traces: Sequence[Trace],
    out: Path,
    asked: Asked | None = None,
    *,
    split: bool = False,
    archive: bool = False,
    force: bool = False,
    jobs: int = 1,
    spread: Spread | None = None,
) -> Merged:
    """Write traces of many processes as one file that a viewer opens.

    Args:
        traces: which.
        out: the file, compressed where its name ends in ``.gz``; with `split` a directory. It gets
            its name when all of it is there.
        asked: what of the traces is written; by default as much as a viewer takes.
        split: a file for each host.
        archive: a tar of the traces, with a manifest for Perfetto 58 and newer: as they are, but
            for times of clocks that drift or were set.
        force: what an earlier call has written there is replaced.
        jobs: lines of so many traces are written side by side.
        spread: who reads the ranks for arrows and clocks; by default this process.

    Returns:
        What was written.

    Raises:
        DftraceError: `out` is there already, or cannot be written; then nothing is left of it.
        ClockError: clocks are not known as well as was asked for.
        TraceError: a trace cannot be read any more.

    Example::

        merge(open_traces(["out/"]).files, Path("all.pfw.gz"))
    """
    from dftrace_ai.analysis.merging.gathering import Asked, gathered

    if split and archive:
        raise DftraceError("an archive has the traces of all hosts: it is not split")
    if not split:
        check_name(out, compressed=not archive)
    notes: list[str] = []
    inputs = [trace.path for trace in traces]
    with in_place(out, inputs, directory=split, force=force) as unnamed:
        asked = asked or Asked()
        if archive:
            asked = asked._replace(arrows=0)  # a trace by itself has one end of each
        shown = gathered(traces, asked, spread=spread)
        told = list(shown.told)
        if archive:
            files, told_of_it = _write_archive(shown, unnamed, out.name, notes)
            told += told_of_it
        elif split:
            files = []
            for name, some in _of_hosts(shown.files).items():
                new_file(unnamed / name)
                part = shown.merged(files=some, packed=True, jobs=jobs)
                files.append(written(part, unnamed / name, name, notes, told))
        else:
            merged = shown.merged(packed=out.name.endswith(".gz"), jobs=jobs)
            files = [written(merged, unnamed, out.name, notes, told)]
        lines = sum(file.lines for file in files)
        unique = tuple(dict.fromkeys(told))
        made = Merged(1, str(out), lines, tuple(files), tuple(notes), unique)
        if split:
            new_file(unnamed / MANIFEST)
            (unnamed / MANIFEST).write_bytes(json.dumps(asdict(made), indent=2).encode("ascii"))
    return made


def check_name(out: Path, *, compressed: bool = True) -> None:
    """Refuse a name that promises what is not written: zstd, or compression of what has none."""
    if out.name.endswith(".zst") or (not compressed and out.name.endswith((".gz", ".tgz"))):
        kinds = "plain, or compressed by gzip (.gz)" if compressed else "a tar (.tar)"
        raise DftraceError(f"{out}: what is written is {kinds}; choose a name that says so")


def written(
    merged: MergedTrace, path: Path, name: str, notes: list[str], told: list[str]
) -> ConvertedFile:
    """Write a merged trace to a path that will have this name.

    What could not be read is added to `notes`, what was changed to `told`.
    """
    size = 0
    merged.marked = True
    with path.open("wb") as file:
        for piece in merged:
            file.write(piece)
            size += len(piece)
    notes += merged.notes
    told += merged.told
    ranks = {trace.said.rank for trace in merged.files}
    rank = ranks.pop() if len(ranks) == 1 else None
    return ConvertedFile(name, rank, merged.lines, size)


def _of_hosts(files: Sequence[Trace]) -> dict[str, list[Trace]]:
    found: dict[str, list[Trace]] = {}
    for file in files:
        host = re.sub(r"[^A-Za-z0-9._-]", "_", file.said.host or "")[:HOST_LETTERS]
        found.setdefault(f"{host.lstrip('.') or 'no-host'}.pfw.gz", []).append(file)
    return found


def _write_archive(
    shown: Gathered, path: Path, name: str, notes: list[str]
) -> tuple[list[ConvertedFile], list[str]]:
    """Write what is shown as an archive of this name; return it, and what is to be told of it."""
    # What could not be read of traces is added to `notes`: one that is not whole, for which
    # Perfetto refuses the archive, is written anew without it, and one without an event left out.
    import tarfile  # late: of what comes by here, few need it

    if shown.window or shown.steps_only:
        raise DftraceError(
            "an archive holds traces as they are: without --archive steps and collectives, a part "
            "of the time, and what is more than a viewer takes can be chosen; with it --ranks and "
            "--all"
        )
    own = [file for file in shown.files if not file.file.copy]
    faulty, empty = _not_whole(shown, own)
    notes += [f"{file}: has no event, and is left out" for file in empty]
    members = _members([file for file in own if file not in empty], shown.times, faulty)
    if not members:
        raise DftraceError("no trace has an event, so there is no archive to write")
    first = min(members, key=lambda one: one.begin_ns)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        attributes = {
            "dftrace.run": first.trace.said.run or "",
            "dftrace.ranks": len({one.trace.said.rank for one in members} - {None}),
        }
        manifest = [_told(one, first) for one in members]
        document = {"version": 1, "files": manifest, "attributes": attributes}
        text = json.dumps({"perfetto_manifest": document}).encode("ascii")
        _add(tar, ARCHIVED, io.BytesIO(text))
        for one in members:
            if one.is_anew:
                with TemporaryFile(dir=path.parent) as file:
                    merged = shown.merged(files=[one.trace], packed=one.name.endswith(".gz"))
                    merged.marked = True
                    file.writelines(merged)
                    _add(tar, one.name, file)
                notes += merged.notes
            else:
                with readable(one.trace), one.trace.file.opened() as raw:
                    _add(tar, one.name, raw)
    told = ["an archive is for Perfetto 58 and newer; earlier ones do not go by its manifest"]
    if count := sum(one.is_anew and one.trace not in faulty for one in members):
        told.append(
            f"times of {counted(count, 'trace')} are written anew: by one shift for each, which "
            "is what an archive has, their clocks would lie apart"
        )
    if faulty:
        told.append(
            f"{counted(len(faulty), 'trace')} written anew: for what it lacks all would be refused"
        )
    if len(own) < len(shown.files):
        told.append("traces of other forms are not in an archive")
    return [ConvertedFile(name, None, 0, path.stat().st_size)], told


class _Member(NamedTuple):
    """A trace in an archive."""

    trace: Trace
    name: str
    is_anew: bool  # its times are written anew, by one clock
    offset_ns: int  # else by which it is moved
    begin_ns: int  # then


def _not_whole(shown: Gathered, files: list[Trace]) -> tuple[list[Trace], list[Trace]]:
    """Return the traces of which something cannot be read, and those without an event."""
    faulty, empty = [], []
    for file in files:
        lines = FileLines(file, Change([]), Shown())
        for _ in lines.pieces(first=True):
            pass
        if not lines.lines:
            empty.append(file)
        elif lines.notes:
            faulty.append(file)
    return faulty, empty


def _members(files: list[Trace], times: ShownTimes, faulty: list[Trace]) -> list[_Member]:
    shifts = {
        file.path: None if file in faulty else _one_shift(file, times.pieces(file))
        for file in files
    }
    names = _names(files, {file.path for file in files if shifts[file.path] is None})
    return [
        _Member(
            file,
            names[file.path],
            shift is None,
            shift or 0,
            _begin_ns(file, times.pieces(file), shift),
        )
        for file in files
        for shift in (shifts[file.path],)
    ]


def _add(tar: TarFile, name: str, content: IO[bytes]) -> None:
    entry = tar.tarinfo(name)
    entry.size = content.seek(0, 2)
    content.seek(0)
    tar.addfile(entry, content)


def _told(member: _Member, first: _Member) -> dict[str, Json]:
    said: dict[str, Json] = {"path": member.name}
    said["machine"] = {"name": member.trace.said.host or "unknown host"}
    offset_ns = member.offset_ns - first.offset_ns
    if member is not first and offset_ns:
        said["clocks"] = {"sync_to": {"file": first.name}, "offset_ns": offset_ns}
    return said


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


def _names(files: list[Trace], anew: Container[Path]) -> dict[Path, str]:
    names: dict[Path, str] = {}
    taken: set[str] = set()
    for file in files:
        rank = "no-rank" if file.said.rank is None else f"rank{file.said.rank:05}"
        stem, suffix = file.path.name, ""
        for known in (*SUFFIX_OF.values(), ".pfw"):
            if stem.endswith(known):
                stem, suffix = stem.removesuffix(known), known
                break
        if suffix and file.path in anew:
            suffix = SUFFIX_OF["gzip"]
        plain = stem.encode("ascii", "replace").decode().replace("?", "_")
        room = NAME_BYTES - SIZED
        name, number = f"{rank}-{plain}"[: room - len(suffix)] + suffix, 1
        while name in taken:
            number += 1
            name = f"{rank}-{plain}"[: room - len(suffix) - 8] + f"-{number}{suffix}"
        taken.add(name)
        names[file.path] = name
    return names
