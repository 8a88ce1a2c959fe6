"""A run for notebooks: its figures, each of which is made when it is first asked for."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.reach import NOWHERE, utc_text
from dftrace_ai.analysis.reading.trace_end import NOT_CLOSED
from dftrace_ai.analysis.report.figures.facts import (
    KINDS,
    FirstProcesses,
    briefly_named,
    losses_of,
    turns_of,
)
from dftrace_ai.analysis.report.figures.flame import BESIDE_RANKS, FlameTree, stack_figures
from dftrace_ai.analysis.report.figures.series import (
    CounterCharts,
    CounterSeries,
    TensorPoints,
    series_of,
)
from dftrace_ai.analysis.report.figures.steps import (
    MeasuredRank,
    SlowestSteps,
    loader_figures,
    phase_figures,
    rank_figures,
    rank_maps,
    step_figures,
    with_the_odd,
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
from dftrace_ai.analysis.report.sections import sections_of
from dftrace_ai.analysis.steps import Job, Rank, measure
from dftrace_ai.analysis.steps.elsewhere import made_elsewhere
from dftrace_ai.analysis.summary.report import Report, Row, reported, soundness
from dftrace_ai.analysis.why import verdict_lines
from dftrace_ai.analysis.why.judging import Others, judge_rank
from dftrace_ai.analysis.why.model import LIMITS
from dftrace_ai.analysis.why.verdict import verdict_of
from dftrace_ai.wording import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.frames import Frame
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.report.figures.series import TensorSeries
    from dftrace_ai.analysis.report.model import FlameGraph, RankFigures, RankStackFigures
    from dftrace_ai.analysis.steps import Process, Steps
    from dftrace_ai.analysis.steps.job import JobFacts, Named, Order
    from dftrace_ai.analysis.thresholds import Limits
    from dftrace_ai.analysis.why import Verdict
    from dftrace_ai.analysis.why.judging import JudgedRank

MOST_RANKS: Final = 128
# Of ranks up to this number the stacks are there to be looked at, each with so many frames.
RANKS_WITH_STACKS: Final = 16
FRAMES_OF_A_RANK: Final = 300
MOST_SUMMARY_ROWS: Final = 200
MOST_FILES: Final = 200
# What are the ranks' in a run of one.
OF_ONE: Final = {KINDS[0]: "the training", BESIDE_RANKS: "beside its main thread"}


class Run:
    """A run as its traces show it.

    Nothing is read before it is asked for. Ranks are read one after the other, and let go; those
    of `steps` and `counters`, which are of all ranks, are kept. What a process has only in its
    spool is not seen; ``dftrace recover`` completes the traces of the dead.

    Args:
        paths: trace files and directories, or one of them, as for `open_traces`.
        traces: what they hold, where they are open already.
        limits: from which shares on something is a finding, see `limits_of`; by default those
            of `dftrace why`.
        still_written: files among them whose process makes this and goes on for a moment; that
            they are not closed yet is not told.
        run: of several runs that lie there the one to read, as for `open_traces`: the last that
            was begun, one by its folder or name, or ``all``.
        taken: is called with each rank that has steps, in the order in which they are read.
        spread: who reads the ranks; by default this process, one after the other, as always where
            `taken` is given, and for what is asked of all ranks by `steps` and `counters`.

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
        traces: TraceSet | None = None,
        run: str = "last",
        taken: Callable[[MeasuredRank], None] | None = None,
        spread: Spread | None = None,
    ) -> None:
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.paths: tuple[Path, ...] = tuple(Path(path) for path in several)
        self._limits = LIMITS if limits is None else limits
        self._still_written = frozenset(map(str, still_written))
        self._run = run
        self._taken = taken
        self._spread = spread
        self._is_lent = False
        if traces is not None:
            self.traces = traces

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
        lines = [*verdict_lines(self.why), *(f"  lost      {line}" for line in self.losses)]
        return [*lines, f"  read      {self._title}"] if self.traces.other_runs else lines

    @property
    def _title(self) -> str:
        paths, others = ", ".join(map(str, self.paths)), self.traces.other_runs
        return escaped(
            f"{self.traces.run}, one of {others + 1} runs in {paths}" if others else paths
        )

    @cached_property
    def traces(self) -> TraceSet:
        """The files.

        Raises:
            TraceError: a path is missing or is no trace, or nothing can be read.
        """
        return open_traces(self.paths, self._run)

    @cached_property
    def _job(self) -> Job:
        return Job(self.traces, events=True)

    @cached_property
    def _gathered(self) -> Gathered:
        gathered = Gathered(self._limits)
        if self._spread and not self._taken:
            for part in made_elsewhere(
                self._job, partial(gathered_of, limits=self._limits), self._spread
            ):
                gathered.merge(part)
            return gathered
        for member in self._job:
            gathered.add(member)
            if self._taken and isinstance(member, Rank) and gathered.last is not None:
                self._taken(gathered.last)
            del member
        return gathered

    @cached_property
    def _facts(self) -> JobFacts:
        _ = self._gathered  # only then all of it is known
        return self._job.facts

    @cached_property
    def _shown(self) -> MeasuredRank | None:
        """The rank that is shown; where it was not the last one it is read again."""
        verdict, last = self.why, self._gathered.last
        named = self._gathered.named(verdict.rank or 0)
        if verdict.rank is None:
            # Of processes that say no rank it is the one that the verdict is on.
            on = (
                one.order
                for one in self._gathered.judged
                if one.steps is not None and one.steps.facts == verdict.steps
            )
            named = self._gathered.named_at(next(on, None)) or named
        if last is not None and last.rank.named == named:
            return last
        if named is None:
            return None
        rank = self._job.again(named)
        steps = measure(rank.process)
        return None if steps is None else MeasuredRank(rank, steps)

    @cached_property
    def why(self) -> Verdict:
        """What makes its steps slow, as `dftrace why` says it."""
        gathered = self._gathered
        verdict = verdict_of(
            gathered.judged, gathered.others, self.traces, self._facts, self._limits
        )
        told = tuple(self._spread.left_out) if self._spread else ()
        return replace(verdict, notes=(*told, *verdict.notes)) if told else verdict

    @cached_property
    def summary(self) -> Report:
        """Counts and durations by category and name, as `dftrace summary` has them."""
        report = reported(self.traces, spread=self._spread)
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
        measured = ((rank.process.number, measure(rank.process)) for rank in self._job.ranks)
        return {number: steps for number, steps in measured if steps is not None}

    def frame(self, what: str) -> Frame:
        """Return a table for pandas, polars, pyarrow and whatever takes Arrow's columns.

        Args:
            what: which: ``events``, ``spans``, ``instants``, ``counters``, ``tensor_stats``,
                ``processes``, ``steps``, ``findings`` or ``summary``; or one ``select`` over them,
                as `dftrace sql` takes it.

        Returns:
            The frame, which is not read before it is asked for; `findings` and `summary` are those
            of `why` and `summary`.

        Raises:
            ValueError: there is no such view.
            DftraceError: DuckDB is not installed.

        Example::

            run = Run("out")
            steps = run.frame("steps").to_polars()
            slow = run.frame("select name, max(dur_ns) / 1e6 as ms from spans group by name")
            print(steps.describe(), slow.to_pandas())
        """
        from dftrace_ai.analysis.frames import Frame
        from dftrace_ai.analysis.sql import TraceTables

        def opened() -> TraceTables:
            return TraceTables(self.traces, verdict=lambda: self.why, summary=lambda: self.summary)

        return Frame(what, opened)

    @cached_property
    def tensor_statistics(self) -> tuple[TensorSeries, ...]:
        """Each statistic of each tensor over iterations, as tensor inspection wrote it."""
        return tuple(self._gathered.tensors.series)

    @cached_property
    def _of_tensors(self) -> set[str]:
        return {f"{one.layer}:{one.tensor}" for one in self.tensor_statistics}

    @cached_property
    def counters(self) -> tuple[CounterSeries, ...]:
        """Each number of each counter over time; without those of `tensor_statistics`."""
        by_turn = [
            (turn, [one for one in series_of(process) if one.counter not in self._of_tensors])
            for member in self._job
            for turn, process in turns_of(member)
        ]
        by_turn.sort(key=lambda each: each[0])
        return tuple(one for _, series in by_turn for one in series)

    @cached_property
    def losses(self) -> tuple[str, ...]:
        """What was lost or cannot be read, a line each."""
        notes = list(self._told(self._facts.notes))
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
        gathered, shown, reach = self._gathered, self._shown, self._facts.reach
        first_ns, last_ns = reach if reach != NOWHERE else (0, 0)
        charts, charts_left_out = gathered.counters.charts(first_ns, self._of_tensors)
        facts, facts_left_out = gathered.processes.facts
        late = {one.rank for found in self.why.findings for one in found.late_ranks}
        ranks = with_the_odd(gathered.ranks, late)
        shown_ranks = sorted(ranks, key=lambda one: (not one.odd, -one.own_ns))[:MOST_RANKS]
        steps = phases = stacks = None
        if shown is not None:
            stacks = stack_figures(shown.rank, shown.steps)
            steps = step_figures(shown)
            phases = phase_figures(shown.steps, steps, first_ns, last_ns)
        return ReportFigures(
            title=self._title,
            paths=[escaped(str(path)) for path in self.paths],
            made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            first_us=first_ns / 1000 if first_ns else None,
            wall_s=(last_ns - first_ns) / 1e9,
            began_at=utc_text(reach.began_ns),
            losses=list(self.losses),
            verdict=self.why,
            summary=_first_rows(self.summary),
            steps=steps,
            phases=phases,
            rank_maps=rank_maps(gathered.judged, {one.rank for one in ranks if one.odd}),
            ranks=sorted(shown_ranks, key=lambda one: one.rank),
            ranks_left_out=len(ranks) - len(shown_ranks),
            slowest=gathered.slowest.figures,
            stacks=None if stacks is None else stacks.graph,
            stacks_of_ranks=_of_ranks(stacks, gathered.stacks),
            flame=_one_or_several(gathered.flame.graph(), len(gathered.judged)),
            loader=None if shown is None else loader_figures(shown, first_ns),
            counters=charts,
            counters_left_out=charts_left_out,
            tensors=gathered.tensors.figures(self.tensor_statistics),
            processes=facts,
            processes_left_out=facts_left_out,
        )

    @cached_property
    def page_figures(self) -> ReportFigures:
        """The same with the sections of other packages, which are asked for them now."""
        if self._is_lent:
            return self.figures
        # First of all, so that nothing of it can be another's.
        figures = self.figures
        found, faults = sections_of(self._lent)
        return replace(figures, sections=found, plugin_faults=faults)

    def _lent(self) -> Run:
        # For a function of another package, which may change what it gets.
        lent = copy.copy(self)
        own = {name: self.__dict__[name] for name in ("figures", "why", "summary", "losses")}
        lent.__dict__.update(copy.deepcopy(own))
        lent._is_lent = True
        return lent

    def report(
        self, path: str | os.PathLike[str], *, force: bool = False, plug_ins: bool = True
    ) -> Path:
        """Write the page, which needs no network; the file is whole when it gets its name.

        Args:
            path: of the page. A report that has the name is replaced.
            force: replace whatever has the name, but for a trace that is read.
            plug_ins: ask other packages for their sections.

        Returns:
            The path.

        Raises:
            DftraceError: it cannot be written, or something else has the name.
            TraceError: the traces cannot be read.
        """
        target = Path(path)
        check_page(target, [trace.path for trace in self.traces], force=force)
        write_report(target, page_of(self.page_figures if plug_ins else self.figures), force=force)
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
        return write_plots(Path(folder), plots_of(self.page_figures), force=force)


class Gathered:
    """What was taken in of some members of a job; of tensors all, else little for each rank.

    Attributes:
        judged: the ranks.
        others: what processes that are no ranks show for those that are.
        last: the rank that was taken in last, where it has steps.
    """

    def __init__(self, limits: Limits) -> None:
        self.judged: list[JudgedRank] = []
        self.others = Others()
        self.last: MeasuredRank | None = None
        self.flame = FlameTree()
        self.counters = CounterCharts()
        self.tensors = TensorPoints()
        self.processes = FirstProcesses()
        self.slowest = SlowestSteps()
        self.stacks: dict[int, RankStackFigures] = {}
        self._limits = limits
        self._ranks: dict[Order, tuple[tuple[Named, ...], RankFigures]] = {}

    def add(self, member: Rank | Process) -> None:
        """Take in a rank, or a process that works for none."""
        for turn, process in turns_of(member):
            self.flame.add(turn, process)
            self.counters.add(turn, series_of(process))
            self.tensors.add(turn, process)
            self.processes.add(turn, process)
        if not isinstance(member, Rank):
            self.others.add(member)
            return
        steps = measure(member.process)
        self.judged.append(judge_rank(member, steps, self._limits))
        self.last = None if steps is None else MeasuredRank(member, steps)
        if self.last is not None:
            self._ranks[member.order] = member.named, rank_figures(self.last)
            self.slowest.add(self.last)
            self._add_stacks(member, self.last.steps)

    def merge(self, other: Gathered) -> None:
        """Take in what another has."""
        self.judged += other.judged
        self.others.merge(other.others)
        self.last = other.last
        self.flame.merge(other.flame)
        self.counters.merge(other.counters)
        self.tensors.merge(other.tensors)
        self.processes.merge(other.processes)
        self.slowest.merge(other.slowest)
        self.stacks |= other.stacks
        self._ranks |= other._ranks

    def _add_stacks(self, rank: Rank, steps: Steps) -> None:
        number = rank.process.number
        if number >= RANKS_WITH_STACKS:
            return
        stacks = stack_figures(rank, steps, FRAMES_OF_A_RANK)
        if stacks is not None:
            self.stacks[number] = stacks

    @property
    def ranks(self) -> list[RankFigures]:
        """The rows of all ranks with steps, in their order."""
        return [figures for _, (_, figures) in sorted(self._ranks.items())]

    def named_at(self, order: Order | None) -> tuple[Named, ...] | None:
        """Return the same for one at its place among the others."""
        found = self._ranks.get(order) if order is not None else None
        return found[0] if found else None

    def named(self, number: int) -> tuple[Named, ...] | None:
        """Return how `Job.again` reads the rank with a number; None where none has steps."""
        found = [order for order in self._ranks if order[0] == number]
        return self._ranks[min(found)][0] if found else None


def gathered_of(members: Iterable[Rank | Process], limits: Limits) -> Gathered:
    """Take in some members of a job, as it is sent to who puts all together: no rank is whole."""
    gathered = Gathered(limits)
    for member in members:
        gathered.add(member)
        del member
    gathered.last = None
    return gathered


def _of_ranks(
    shown: RankStackFigures | None, ranks: Mapping[int, RankStackFigures]
) -> list[RankStackFigures]:
    """Return the stacks of ranks that can be looked at, that of the shown one first."""
    if shown is None:
        return []
    return [shown, *(one for number, one in sorted(ranks.items()) if number != shown.rank)]


def _one_or_several(flame: FlameGraph, ranks: int) -> FlameGraph:
    """Return a flame graph that calls the only rank of a run what it is there: its training."""
    if ranks != 1:
        return flame
    frames = [
        frame
        if frame.cat or frame.parent >= 0
        else replace(frame, name=OF_ONE.get(frame.name, frame.name))
        for frame in flame.frames
    ]
    return replace(flame, frames=frames)


def _brief(row: Row) -> Row:
    name = None if row.name is None else briefly_named(row.name)
    return replace(row, cat=briefly_named(row.cat), name=name)


def _first_rows(summary: Report) -> Report:
    """Return a summary with the rows that have most self time, and of files the first."""
    spans = sorted(summary.spans, key=lambda row: (-(row.self_us or 0.0), -row.total_us))
    return replace(
        summary,
        spans=tuple(_brief(row) for row in spans[:MOST_SUMMARY_ROWS]),
        rows_left_out=max(0, len(spans) - MOST_SUMMARY_ROWS),
        others=tuple(
            replace(row, cat=briefly_named(row.cat), name=briefly_named(row.name))
            for row in sorted(summary.others, key=lambda row: -row.count)[:MOST_SUMMARY_ROWS]
        ),
        files=tuple(
            replace(file, ended=file.ended and briefly_named(file.ended))
            for file in sorted(summary.files, key=soundness)[:MOST_FILES]
        ),
        skipped=summary.skipped[:MOST_FILES],
        warnings=summary.warnings[:MOST_FILES],
    )
