"""A run for notebooks: its figures, each of which is made when it is first asked for."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.indexed.reach import NOWHERE, utc_text
from dftrace_ai.analysis.report.figures.counters import (
    CounterSeries,
    counter_charts,
    counter_series,
)
from dftrace_ai.analysis.report.figures.envelopes import briefly_named
from dftrace_ai.analysis.report.figures.facts import losses_of, process_facts
from dftrace_ai.analysis.report.figures.flame import flame_graph
from dftrace_ai.analysis.report.figures.loader import loader_figures
from dftrace_ai.analysis.report.figures.steps import (
    MeasuredRank,
    rank_figures,
    slowest_steps,
    step_figures,
)
from dftrace_ai.analysis.report.figures.tensors import (
    TensorSeries,
    non_finite_marks,
    tensor_figures,
    tensor_series,
)
from dftrace_ai.analysis.report.files import (
    check_page,
    check_plots,
    write_plots,
    write_report,
)
from dftrace_ai.analysis.report.model import ReportFigures
from dftrace_ai.analysis.report.page import page_of, short_page
from dftrace_ai.analysis.report.plots import plots_of
from dftrace_ai.analysis.steps import measure, read_job
from dftrace_ai.analysis.summary.file_facts import NOT_CLOSED
from dftrace_ai.analysis.summary.report import Report, Row, reported
from dftrace_ai.analysis.why import verdict_lines
from dftrace_ai.analysis.why.judging import judge_traces
from dftrace_ai.wording import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.steps import Job, Steps
    from dftrace_ai.analysis.why import Verdict
    from dftrace_ai.analysis.why.limits import Limits

__all__ = ["Run"]

MOST_RANKS: Final = 128
MOST_ROWS: Final = 200
MOST_FILES: Final = 200


class Run:
    """A run as its traces show it.

    Nothing is read before it is asked for, and nothing twice. What a process has only in its
    spool is not seen; ``dftrace recover`` completes the traces of the dead.

    Args:
        paths: trace files and directories, or one of them, as for `open_traces`.
        limits: from which shares on something is a finding, see `limits_of`; by default those
            of `dftrace why`.
        still_written: files among them whose process makes this and goes on for a moment; that
            they are not closed yet is not told.

    Example::

        from dftrace_ai.analysis import Run

        run = Run("out")
        print(run.why.verdict, run.summary.events)
        for rank, steps in run.steps.items():
            print(rank, len(steps), steps.time_ns.max() / 1e6, "ms")
        run.report("report.html")
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        limits: Limits | None = None,
        still_written: Iterable[Path] = (),
    ) -> None:
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.paths: tuple[Path, ...] = tuple(Path(path) for path in several)
        self._limits = limits
        self._still_written = frozenset(map(str, still_written))

    def __repr__(self) -> str:
        return f"<run of {escaped(', '.join(map(str, self.paths)))}>"

    def __rich__(self) -> RenderableType:
        """Return what rich prints: the verdict as `dftrace why` puts it."""
        from rich.text import Text

        return Text("\n".join(escaped(line) for line in self._lines()))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print at a terminal of IPython what rich prints."""
        printer.text("\n".join(escaped(line) for line in self._lines()))

    def _repr_html_(self) -> str:
        return short_page(self.figures)

    def _lines(self) -> list[str]:
        return [*verdict_lines(self.why), *(f"  lost      {line}" for line in self.losses)]

    @cached_property
    def traces(self) -> TraceSet:
        """The files.

        Raises:
            TraceError: a path is missing or is no trace, or nothing can be read.
        """
        return open_traces(self.paths)

    @cached_property
    def _job(self) -> Job:
        return read_job(self.traces, events=True)

    @cached_property
    def _measured(self) -> list[Steps | None]:
        return [measure(rank.process) for rank in self._job.ranks]

    @cached_property
    def _ranks(self) -> list[MeasuredRank]:
        pairs = zip(self._job.ranks, self._measured, strict=True)
        return [MeasuredRank(rank, steps) for rank, steps in pairs if steps is not None]

    @cached_property
    def _shown(self) -> MeasuredRank | None:
        number = self.why.rank
        return next((one for one in self._ranks if one.number == number), None)

    @cached_property
    def why(self) -> Verdict:
        """What makes its steps slow, as `dftrace why` says it."""
        return judge_traces(self.traces, self._job, self._limits, self._measured)

    @cached_property
    def summary(self) -> Report:
        """Counts and durations by category and name, as `dftrace summary` has them."""
        report = reported(self.paths)
        if not self._still_written:
            return report
        files = (
            replace(file, closed=True, ended=file.ended or "wrote this page", tear=None)
            if file.path in self._still_written
            else file
            for file in report.files
        )
        return replace(report, files=tuple(files), warnings=tuple(self._told(report.warnings)))

    @cached_property
    def steps(self) -> dict[int, Steps]:
        """The steps of each rank: NumPy columns of when they begin, what they take and why."""
        return {one.number: one.steps for one in self._ranks}

    @cached_property
    def tensor_statistics(self) -> tuple[TensorSeries, ...]:
        """Each statistic of each tensor over iterations, as tensor inspection wrote it."""
        return tuple(tensor_series(self._job))

    @cached_property
    def counters(self) -> tuple[CounterSeries, ...]:
        """Each number of each counter over time; without those of `tensor_statistics`."""
        known = {f"{one.layer}:{one.tensor}" for one in self.tensor_statistics}
        return tuple(counter_series(self._job, known))

    @cached_property
    def losses(self) -> tuple[str, ...]:
        """What was lost or cannot be read, a line each."""
        notes = list(self._told(self._job.notes))
        return tuple(losses_of(self.traces, self.summary, notes))

    def _told(self, lines: Iterable[str]) -> Iterator[str]:
        """Leave out that files end in the middle which are still written."""
        ends = tuple(
            f"{path}: {what}" for path in self._still_written for what in (NOT_CLOSED, "torn: ")
        )
        return (line for line in lines if not line.startswith(ends))

    @cached_property
    def figures(self) -> ReportFigures:
        """All figures of the page, as plain values; what is long is put together or cut."""
        job, shown, ranks = self._job, self._shown, self._ranks
        first_ns, last_ns = job.reach if job.reach != NOWHERE else (0, 0)
        charts, charts_left_out = counter_charts(self.counters, first_ns)
        facts, facts_left_out = process_facts(job)
        return ReportFigures(
            title=escaped(", ".join(map(str, self.paths))),
            paths=[escaped(str(path)) for path in self.paths],
            made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            first_us=first_ns / 1000 if first_ns else None,
            wall_s=(last_ns - first_ns) / 1e9,
            began_at=utc_text(job.reach.began_ns),
            losses=list(self.losses),
            verdict=self.why,
            summary=_first_rows(self.summary),
            steps=None if shown is None else step_figures(shown),
            ranks=[rank_figures(one) for one in ranks[:MOST_RANKS]],
            ranks_left_out=max(0, len(ranks) - MOST_RANKS),
            slowest=slowest_steps(ranks),
            flame=flame_graph(job),
            loader=None if shown is None else loader_figures(shown, first_ns),
            counters=charts,
            counters_left_out=charts_left_out,
            tensors=tensor_figures(self.tensor_statistics, non_finite_marks(job)),
            processes=facts,
            processes_left_out=facts_left_out,
        )

    def report(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the page, which needs no network; the file is whole when it gets its name.

        Args:
            path: of the page. A report that has the name is replaced.
            force: replace whatever has the name.

        Returns:
            The path.

        Raises:
            DftraceError: it cannot be written, or something else has the name.
            TraceError: the traces cannot be read.
        """
        target = Path(path)
        check_page(target, force=force)
        write_report(target, page_of(self.figures), force=force)
        return target

    def write_plots(self, folder: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write each plot of the page as a file of its own, an SVG.

        Args:
            folder: where to; it is made where it is not there.
            force: replace whatever has the names; else plots of ours alone are replaced.

        Returns:
            The files.

        Raises:
            DftraceError: they cannot be written, or something else has one of the names.
            TraceError: the traces cannot be read.
        """
        check_plots(Path(folder))
        return write_plots(Path(folder), plots_of(self.figures), force=force)


def _brief(row: Row) -> Row:
    name = None if row.name is None else briefly_named(row.name)
    return replace(row, cat=briefly_named(row.cat), name=name)


def _first_rows(summary: Report) -> Report:
    """Return a summary with the rows that have most self time, and of files the first."""
    spans = sorted(summary.spans, key=lambda row: (-(row.self_us or 0.0), -row.total_us))
    return replace(
        summary,
        spans=tuple(_brief(row) for row in spans[:MOST_ROWS]),
        rows_left_out=max(0, len(spans) - MOST_ROWS),
        others=tuple(
            replace(row, cat=briefly_named(row.cat), name=briefly_named(row.name))
            for row in sorted(summary.others, key=lambda row: -row.count)[:MOST_ROWS]
        ),
        files=tuple(
            replace(file, ended=file.ended and briefly_named(file.ended))
            for file in summary.files[:MOST_FILES]
        ),
        skipped=summary.skipped[:MOST_FILES],
        warnings=summary.warnings[:MOST_FILES],
    )
