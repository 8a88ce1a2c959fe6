"""Many traces as one file for a viewer, or as an archive of them with what brings them together."""

from __future__ import annotations

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
from dftrace_ai.analysis.merging.archive import write_archive
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.merging.gathering import Asked
    from dftrace_ai.analysis.merging.merged_trace import MergedTrace
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["Merged", "merge", "written"]

HOST_LETTERS: Final = 100


@dataclass(frozen=True)
class Merged:
    """What was written.

    Attributes:
        format: version of this form, 1.
        out: the file or directory.
        lines: of all files; 0 of an archive.
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
        archive: a tar of the traces, with a manifest for Perfetto 58 and newer: their lines as they
            are, but for times of clocks that drift or were set.
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
            files, told_of_it = write_archive(shown, unnamed, out.name, notes)
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
