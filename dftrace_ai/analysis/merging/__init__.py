"""Many traces as one file for a viewer, or as an archive of them with what brings them together."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.converting.placing import (
    MANIFEST,
    ConvertedFile,
    in_place,
    new_file,
)
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.errors import DftraceError, TraceError, readable
from dftrace_ai.trace_format.file_names import SUFFIX_OF

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.merging.gathering import Asked, Gathered
    from dftrace_ai.analysis.merging.merged_trace import MergedTrace
    from dftrace_ai.analysis.merging.shown_times import Piece
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

MOST_DRIFT_NS: Final = 100_000
"""An archive has no drift: clocks that drift by more over a run would lie apart."""

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
        archive: a tar of the traces as they are, with a manifest for Perfetto 58 and newer.
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
        shown = gathered(traces, asked or Asked(), spread=spread)
        told = list(shown.told)
        if archive:
            files, told_of_it = _write_archive(shown, unnamed, out.name)
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


def _write_archive(shown: Gathered, path: Path, name: str) -> tuple[list[ConvertedFile], list[str]]:
    """Write what is shown as an archive, which will have this name."""
    # Returns:
    #     The file, and what is to be told of it.
    #
    # Raises:
    #     DftraceError: a part is shown, or clocks drift, which only one file can have.
    import tarfile

    if shown.window or shown.steps_only:
        raise DftraceError(
            "an archive holds traces as they are: without --archive steps and collectives, a part "
            "of the time, and what is more than a viewer takes can be chosen; with it --ranks and "
            "--all"
        )
    files = [file for file in shown.files if not file.file.copy]
    offsets = {file.path: _offset_ns(file, shown.times.pieces(file)) for file in files}
    begins = {file.path: _begin_ns(file, offsets[file.path]) for file in files}
    first = min(files, key=lambda file: begins[file.path])
    names = _names(files)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        manifest = [
            _told(file, names, first, offsets[file.path] - offsets[first.path]) for file in files
        ]
        attributes = {
            "dftrace.run": first.said.run or "",
            "dftrace.ranks": len({file.said.rank for file in files} - {None}),
        }
        document = {"version": 1, "files": manifest, "attributes": attributes}
        text = json.dumps({"perfetto_manifest": document}).encode("ascii")
        head = tarfile.TarInfo(ARCHIVED)
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        for file in files:
            with readable(file), file.file.opened() as raw:
                entry = tarfile.TarInfo(names[file.path])
                entry.size = raw.seek(0, 2)
                raw.seek(0)
                tar.addfile(entry, raw)
    told = ["an archive is for Perfetto 58 and newer; earlier ones do not go by its manifest"]
    if len(files) < len(shown.files):
        told.append("traces of other forms are not in an archive")
    return [ConvertedFile(name, None, 0, path.stat().st_size)], told


def _told(file: Trace, names: dict[Path, str], first: Trace, offset_ns: int) -> dict[str, Json]:
    said: dict[str, Json] = {"path": names[file.path]}
    said["machine"] = {"name": file.said.host or "unknown host"}
    if file is not first and offset_ns:
        said["clocks"] = {"sync_to": {"file": names[first.path]}, "offset_ns": offset_ns}
    return said


def _offset_ns(file: Trace, pieces: list[Piece]) -> int:
    if not pieces:
        return 0
    try:
        reach = recorded(file)
    except TraceError:
        reach = None
    base_ns = (file.said.time_base_us or 0) * 1000
    begin, end = (reach.first_ns - base_ns, reach.last_ns - base_ns) if reach else (0, 0)
    rates = max(abs(rate) for _, _, rate, _ in pieces)
    if len(pieces) > 1 or rates * (end - begin) / 2 > MOST_DRIFT_NS:
        raise DftraceError(
            f"{file}: its clock drifts or was set while it ran, which an archive cannot say; "
            "without --archive its times are written anew"
        )
    _, shift, rate, at = pieces[0]
    return shift - round(rate * ((begin + end) / 2 - at))


def _begin_ns(file: Trace, offset_ns: int) -> int:
    try:
        reach = recorded(file)
    except TraceError:
        reach = None
    base_ns = (file.said.time_base_us or 0) * 1000
    return (
        reach.first_ns - base_ns if reach and reach.first_ns <= reach.last_ns else 0
    ) + offset_ns


def _names(files: list[Trace]) -> dict[Path, str]:
    names: dict[Path, str] = {}
    taken: set[str] = set()
    for file in files:
        rank = "no-rank" if file.said.rank is None else f"rank{file.said.rank:05}"
        stem, suffix = file.path.name, ""
        for known in (*SUFFIX_OF.values(), ".pfw"):
            if stem.endswith(known):
                stem, suffix = stem.removesuffix(known), known
                break
        plain = stem.encode("ascii", "replace").decode().replace("?", "_")
        room = NAME_BYTES - SIZED
        name, number = f"{rank}-{plain}"[: room - len(suffix)] + suffix, 1
        while name in taken:
            number += 1
            name = f"{rank}-{plain}"[: room - len(suffix) - 8] + f"-{number}{suffix}"
        taken.add(name)
        names[file.path] = name
    return names
