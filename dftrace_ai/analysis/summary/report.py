"""What `dftrace summary` says, as values; their JSON is `schemas/summary.schema.json`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.reading.reach import utc_text
from dftrace_ai.analysis.reading.trace_file import SkippedFile  # noqa: TC001 - pydantic needs it
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.summary.indexing import figures_elsewhere
from dftrace_ai.analysis.summary.rows import (
    EventGroup,
    FileGroup,
    LineRow,
    NotAnnotated,
    OtherRow,
    Row,
    TensorRow,
    TreeRow,
)
from dftrace_ai.analysis.summary.table import (
    FileFacts,
    Summary,
    groups_of,
    summarise_groups,
)
from dftrace_ai.errors import ConfigError, TraceError, needs_numpy
from dftrace_ai.trace_format.running import RunningProcess, told_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading.trace_set import TracePaths, TraceSet


__all__ = ["By", "Report", "Row", "SortKey", "report_of", "reported"]

FORMAT: Final = 2

By = Literal[
    "name", "category", "rank", "host", "process", "thread", "step", "epoch", "tree", "tensor",
    "line",
]  # fmt: skip
"""What has a row of its own: from `rank` to `epoch` each name of each of them, for `tree` a place
among the spans, for `tensor` a statistic of a tensor, for `line` a line of the program."""

GROUPS: Final[dict[By, FileGroup | EventGroup]] = {
    "rank": "rank",
    "host": "host",
    "process": "process",
    "thread": "thread",
    "step": "step",
    "epoch": "epoch",
}

SortKey = Literal["total", "self", "count", "mean", "p99", "max"]
"""By what rows are put in falling order."""


@dataclass(frozen=True)
class Report:
    """What `dftrace summary --json` prints.

    Attributes:
        format: version of this form; it grows when a member goes or means something else.
        by: what has a row of its own.
        spans: rows of finished spans, in the order of the table.
        others: unfinished spans, instants, counters, flows and custom metadata.
        files: the facts of each file.
        events: lines counted, without names, headers and footers.
        unreadable_lines: lines that hold no event and are not counted above.
        skipped: files of the directories that were given which cannot be read.
        names_left_out: names beyond the 100,000 with the greatest totals; their events
            are counted, and have no row.
        rows_left_out: rows of spans that were not asked for.
        warnings: a line for each loss and fault.
        where: the condition on events; null without one.
        chosen_events: of the events, those that meet it; null without one.
        losses: of all files together, by name: the counts of their closing lines that are
            above zero, and `unreadable`, lines without an event.
        tree: rows of places, those around others before them; null unless asked for.
        tensors: rows of statistics of tensors; null unless asked for.
        lines: rows of lines of the program, by samples of stacks; null unless asked for.
        began_at: the first moment of all events, as ISO 8601 has it, in UTC; null where it is not
            known, as of traces that do not say from when on they count.
        length_us: from then to the last moment, microseconds; null where that is not known.
        not_annotated: what the main threads did in no span, with which the self times of their
            spans are all of the time; null with `where`, by thread, step, epoch, tree and tensor,
            and of files that the recorder has not written.
        running: processes that had not written all of their events when their traces were read.
        kind: ``dftrace summary``, by which its JSON is known.
    """

    format: int
    by: By
    spans: tuple[Row, ...]
    others: tuple[OtherRow, ...]
    files: tuple[FileFacts, ...]
    events: int
    unreadable_lines: int
    skipped: tuple[SkippedFile, ...]
    names_left_out: int
    rows_left_out: int
    warnings: tuple[str, ...]
    where: str | None = None
    chosen_events: int | None = None
    losses: dict[str, int] = field(default_factory=dict)
    tree: tuple[TreeRow, ...] | None = None
    tensors: tuple[TensorRow, ...] | None = None
    lines: tuple[LineRow, ...] | None = None
    began_at: str | None = None
    length_us: float | None = None
    not_annotated: NotAnnotated | None = None
    running: tuple[RunningProcess, ...] = ()
    kind: Literal["dftrace summary"] = "dftrace summary"

    def with_running(self, found: Iterable[RunningProcess]) -> Report:
        """Return it with what is to be said of processes that still run."""
        running = tuple(found)
        warnings = (*self.warnings, *told_of(running))
        return replace(self, running=running, warnings=warnings)


def reported(
    paths: TracePaths,
    by: By = "name",
    sort: SortKey | None = None,
    top: int | None = None,
    where: str | None = None,
    spread: Spread | None = None,
) -> Report:
    """Add up trace files and return what is said of them.

    Args:
        paths: files and directories, as for `summarise`.
        by: what has a row of its own.
        sort: what puts rows in falling order; None for category, within it by falling total.
            Rows of a tree, of tensors and of lines have their own order.
        top: so many rows of spans, and of bodies of loops; by total where `sort` is None.
        where: which events are asked for, see `where_of`; all without it.
        spread: who reads the files; by default this process.

    Raises:
        TraceError: as of `summarise`.
        ConfigError: `where` is no condition, or lines are asked for, which take none.
        DftraceError: NumPy is needed and not installed.

    Example::

        for row in reported(["out/"], by="rank", sort="self", top=10).spans:
            print(row.group, row.name, row.share)
    """
    report = _unsorted(paths, by, where, spread)
    if report.tree is not None:
        kept = report.tree[:top]
        return replace(report, tree=kept, rows_left_out=len(report.tree) - len(kept))
    if report.lines is not None:
        shown = report.lines[:top]
        return replace(report, lines=shown, rows_left_out=len(report.lines) - len(shown))
    if sort is None and top is None:
        return report
    rows = sorted(report.spans, key=lambda row: _rank(row, sort or "total"), reverse=True)
    bodies = [row for row in rows if row.loop == "body"][:top]
    spans = [row for row in rows if row.loop != "body"][:top]
    left_out = len(rows) - len(spans) - len(bodies)
    return replace(report, spans=(*spans, *bodies), rows_left_out=left_out)


OF_PROCESSES: Final[frozenset[By]] = frozenset({"name", "category", "rank", "host", "process"})
"""Forms of which each process has figures of its own, which are added up."""


def _unsorted(paths: TracePaths, by: By, where_text: str | None, spread: Spread | None) -> Report:
    found = open_traces(paths)
    if where_text is None and by in OF_PROCESSES:
        report = _of_processes(found, by, spread)
    else:
        report = _of_events(found, by, where_text, spread)
    told = () if spread is None else tuple(spread.left_out)
    return replace(report, warnings=(*told, *report.warnings))


def _of_events(found: TraceSet, by: By, where_text: str | None, spread: Spread | None) -> Report:
    if by == "line":
        return _of_lines(found, where_text, spread)
    with needs_numpy():
        from dftrace_ai.analysis.summary.choosing import (
            summarise_chosen,
            summarise_tensors,
            summarise_tree,
        )
    if by == "tensor":
        summary, tensors = summarise_tensors(found.files, found.skipped, where_text, spread)
        return replace(report_of(summary, by), where=where_text, tensors=tensors)
    if by == "tree":
        summary, places = summarise_tree(found.files, found.skipped, where_text, spread)
        return replace(report_of(summary, by), where=where_text, tree=places)
    summary = summarise_chosen(
        found.files,
        found.skipped,
        GROUPS.get(by),
        where_text,
        categories=by == "category",
        spread=spread,
    )
    return replace(report_of(summary, by), where=where_text)


def _of_processes(found: TraceSet, by: By, spread: Spread | None) -> Report:
    files, elsewhere = found.files, None
    if spread is not None:
        read = figures_elsewhere(files, spread)
        files = tuple(trace for trace in files if trace.path not in read.missing)
        elsewhere = read.figures
        if not files:
            raise TraceError("; ".join(spread.left_out))
    groups = groups_of(files, by if by in ("rank", "host", "process") else None)
    summary = summarise_groups(
        groups, found.skipped, categories=by == "category", elsewhere=elsewhere
    )
    return report_of(summary, by)


def _of_lines(found: TraceSet, where_text: str | None, spread: Spread | None) -> Report:
    if where_text is not None:
        raise ConfigError(
            "lines are told by samples, which are no events: --by line takes no --where"
        )
    with needs_numpy():
        from dftrace_ai.analysis.lines.tables import line_sums
    report = _of_processes(found, "line", spread)
    sums, notes = line_sums(found.files, spread)
    rows = (
        LineRow(*of[:4], of.total_ns / 1000, of.self_ns / 1000, of.share, of.cpu_ns / 1000)
        for of in sums
    )
    return replace(report, lines=tuple(rows), warnings=(*report.warnings, *notes))


def report_of(found: Summary, by: By = "name") -> Report:
    """Return what is said of a summary, of which `by` has a row of its own."""
    rows = found.spans
    if by == "category":
        rows = tuple(sorted(rows, key=lambda row: (-row.total_us, row.cat)))
    length_ns = found.reach and found.reach.length_ns
    return Report(
        format=FORMAT,
        by=by,
        spans=rows,
        others=found.others,
        files=found.files,
        events=found.events,
        unreadable_lines=found.unreadable_lines,
        skipped=found.skipped,
        names_left_out=found.names_left_out,
        rows_left_out=0,
        warnings=tuple(found.warnings()),
        chosen_events=found.chosen_events,
        losses=_losses(found),
        began_at=utc_text(found.reach and found.reach.began_ns),
        length_us=None if length_ns is None else length_ns / 1000,
        not_annotated=found.not_annotated,
    )


def _losses(found: Summary) -> dict[str, int]:
    losses: Counter[str] = Counter()
    for file in found.files:
        losses.update(file.losses)
    losses["unreadable"] += found.unreadable_lines
    return {name: count for name, count in sorted(losses.items()) if count}


def soundness(file: FileFacts) -> tuple[bool, int]:
    """Return what puts files in order, those first that did not end or lost most."""
    return bool(file.ended) and not file.losses, -sum(file.losses.values())


def _rank(row: Row, sort: SortKey) -> float:
    value = row.count if sort == "count" else getattr(row, f"{sort}_us")
    return -1.0 if value is None else value
