"""`dftrace ranks`: which of many ranks is late, why, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dftrace_ai.analysis.texts import time_text
from dftrace_ai.cli.long_tables import All, left_out_told
from dftrace_ai.cli.readers import Readers, with_readers
from dftrace_ai.cli.reading import Reading, within
from dftrace_ai.cli.shared_options import (
    Attempt,
    Certain,
    FailOn,
    Json,
    MaxError,
    Paths,
    Recover,
    Run,
    StepsRead,
    fails,
    threshold_option,
)
from dftrace_ai.cli.terminal import (
    NAME_LETTERS,
    console,
    fitted_table,
    laid_out,
    no_room_told,
    print_all,
    shown,
    shown_progress,
    write_json,
)
from dftrace_ai.errors import ConfigError, needs_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dftrace_ai.analysis.ranks.model import CollectiveRow, RankRow, RankShare, RanksVerdict

MOST_ROWS: Final = 64
CALL_TEXTS: Final = ("collective", "group")
CALL_FIGURES: Final = (
    *("calls", "bytes", "takes p50", "takes p95", "wait p50", "wait p95", "wait share"),
    *("last", "waited for", "imposed a step", "busbw GB/s"),
)
CALL_SPARED: Final = ("bytes", "takes p95", "wait p95", "last", "busbw GB/s", "imposed a step")
RANK_FIGURES: Final = ("ranks", "own", "wait", "later", "last in", "relative", "individual")
RANK_SPARED: Final = ("individual", "relative", "ranks")


@with_readers(bytes_a_second=50e6)
def command(
    paths: Paths = None,
    json: Json = False,
    table: Annotated[
        bool, typer.Option("--table", help="Print a table of all collectives, too.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="rank|host|stage|DIM",
            help="What has a row in a table of its own: a rank, or all of a host, of a stage, or "
            "with one number in another dimension of the layout, such as tp.",
        ),
    ] = None,
    steps: StepsRead = None,
    threshold: Annotated[
        list[str] | None, threshold_option("cost=0.05,0.15", "cost, rotating, link", "steps")
    ] = None,
    fail_on: FailOn = None,
    run: Run = None,
    attempt: Attempt = None,
    max_error: MaxError = None,
    certain: Certain = False,
    every: All = False,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Tell which rank the others wait for, in what, since when, and what that costs.

    The traces are those of one run, of two ranks and more, with their collectives, as
    dftrace run records them. Who is late is known by the work of its own, without what it
    waits: the others wait inside of their spans. What cannot be known is said, too.

    Example: dftrace ranks out --by host --fail-on warning

    Exit status: 0 whether a rank is late or not, 1 where --fail-on says so, or events of the
    dead could not be written to their traces; 2 when the call is wrong, nothing can be read,
    or the traces are of two runs; 3 where a clock is known less well than --max-error.
    """
    with needs_numpy():
        from dftrace_ai.analysis.merging.numbered_steps import parsed_steps
        from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
        from dftrace_ai.analysis.ranks.job import read_ranks
        from dftrace_ai.analysis.ranks.model import limits_of
        from dftrace_ai.analysis.ranks.some_steps import of_steps
        from dftrace_ai.analysis.ranks.verdict import judge_ranks
        from dftrace_ai.analysis.ranks.words import verdict_lines

    limits = limits_of(threshold or ())
    chosen = None if steps is None else parsed_steps(steps)
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress(), readers:
        job = read_ranks(reading.traces, attempt=attempt, spread=readers.of(reading.traces))
    if max_error is not None:
        within(clocks_of(job), max_error, certain=certain)
    with shown_progress("comparing ranks"):
        of_all = job if chosen is None else of_steps(job, chosen)
        verdict = judge_ranks(of_all, limits, readers.jobs)
    notes = (*reading.waiting_notes(), *verdict.notes, *reading.skipped)
    verdict = replace(verdict, running=tuple(reading.running), notes=notes)
    if json:
        write_json(verdict)
    else:
        out = console()
        told = [(one.what, one.severity) for one in verdict.findings]
        head = told[0][1] if told else verdict.verdict
        print_all(out, laid_out(verdict_lines(verdict), out, head, told))
        if by is not None:
            print_all(out, ["", *rank_lines(verdict, by, out.width, every=every)])
        if table:
            print_all(out, ["", *call_lines(verdict.collectives, out.width, every=every)])
    reading.end(
        failed=readers.left_out
        or fails(fail_on, (finding.severity for finding in verdict.findings))
    )


def call_lines(
    rows: Sequence[CollectiveRow], width: int, *, every: bool = False
) -> Iterator[RenderableType]:
    """Yield a table of collectives, those with most waiting first."""
    if not rows:
        yield "no collectives that all of their members have"
        return
    ordered = sorted(rows, key=lambda row: -row.wait_share)[: None if every else MOST_ROWS]
    cells = [_call_cells(row) for row in ordered]
    title = "Collectives: what they take when all are there, and who waits"
    made, kept = fitted_table(title, CALL_TEXTS, CALL_FIGURES, cells, CALL_SPARED, width)
    yield made
    yield from no_room_told(CALL_FIGURES, kept)
    if len(rows) > len(ordered):
        yield left_out_told(len(rows) - len(ordered), "those in which ranks wait most")


def _call_cells(row: CollectiveRow) -> dict[str, str]:
    alike = f" and {row.groups - 1:,} alike" if row.groups > 1 else ""
    where = " across hosts" if row.across else ""
    values = (
        row.name,
        shown(f"{row.group or '-'}{alike}{where}", NAME_LETTERS),
        f"{row.count:,}",
        "-" if row.bytes is None else f"{row.bytes:,}",
        *(
            "-" if of is None else time_text(getattr(of, figure))
            for of in (row.transfer_ns, row.wait_ns)
            for figure in ("p50", "p95")
        ),
        f"{100 * row.wait_share:.1f} %",
        _most(row.last),
        _most(row.root),
        "-" if row.imposed_ns_per_step is None else time_text(row.imposed_ns_per_step),
        "-"
        if row.busbw_gbs is None
        else f"{row.busbw_gbs:.3g}"
        if row.busbw_gbs >= 1
        else f"{row.busbw_gbs:.3f}",
    )
    return dict(zip((*CALL_TEXTS, *CALL_FIGURES), values, strict=True))


def _most(shares: Iterable[RankShare]) -> str:
    first = next(iter(shares), None)
    return "-" if first is None else f"rank {first.rank} {100 * first.share:.0f} %"


def rank_lines(
    verdict: RanksVerdict, by: str, width: int, *, every: bool = False
) -> Iterator[RenderableType]:
    """Yield a table of ranks, or of those with a place in common, who is latest first.

    Raises:
        ConfigError: the layout of ranks has no such dimension.
    """
    grouped = _grouped(verdict.by_rank, by)
    cells = [_rank_cells(by, name, rows, verdict) for name, rows in grouped.items()]
    title = "Ranks: work of their own and waiting, the usual step"
    if len(grouped) < len(verdict.by_rank):
        title += ", on average over those of a row"
    some = cells if every else cells[:MOST_ROWS]
    made, kept = fitted_table(title, (by,), RANK_FIGURES, some, RANK_SPARED, width)
    yield made
    yield from no_room_told(RANK_FIGURES, kept)
    if len(cells) > len(some):
        yield left_out_told(len(cells) - len(some), "those that are latest")


def _grouped(rows: Sequence[RankRow], by: str) -> Mapping[str, list[RankRow]]:
    """Return ranks by their number, host, or number in a dimension, who is latest first."""
    dimension = "pp" if by == "stage" else by
    found: dict[str, list[RankRow]] = {}
    for row in sorted(rows, key=lambda row: -row.late_ns):
        if by == "rank":
            name = str(row.rank)
        elif by == "host":
            name = row.host or "?"
        elif dimension in row.layout:
            name = str(row.layout[dimension])
        else:
            there = sorted({name for each in rows for name in each.layout})
            told = f"there are: {', '.join(there)}" if there else "it is not told in these traces"
            raise ConfigError(f"--by {by}: the layout of ranks has no such dimension; {told}")
        found.setdefault(name, []).append(row)
    return dict(sorted(found.items(), key=lambda one: -_mean(row.late_ns for row in one[1])))


def _rank_cells(
    by: str, name: str, rows: Sequence[RankRow], verdict: RanksVerdict
) -> dict[str, str]:
    marked = {rank for finding in verdict.findings for rank in finding.ranks}
    late = _mean(row.late_ns for row in rows)
    values = (
        shown(name, NAME_LETTERS) + (" *" if marked & {row.rank for row in rows} else ""),
        f"{len(rows):,}",
        time_text(_mean(row.own_ns for row in rows)),
        time_text(_mean(row.wait_ns for row in rows)),
        ("-" if late < 0 else "+") + time_text(abs(late)),
        f"{100 * sum(row.last_share for row in rows):.0f} %",
        f"{min(row.relative for row in rows):.2f}",
        f"{min(row.individual for row in rows):.2f}",
    )
    return dict(zip((by, *RANK_FIGURES), values, strict=True))


def _mean(values: Iterable[int]) -> float:
    every = [*values]
    return sum(every) / len(every)
