"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import Enum
from io import StringIO
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dftrace_ai.analysis.texts import lasted_text, time_text
from dftrace_ai.cli.long_tables import All, left_out_told, spread_told, spreads, worst
from dftrace_ai.cli.readers import Readers, with_readers
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import (
    Paths,
    Recover,
    Run,
    csv_option,
    json_option,
    not_together,
    top_option,
    where_option,
)
from dftrace_ai.cli.terminal import (
    MOST_ROWS,
    NAME_LETTERS,
    console,
    figures_table,
    fitted_table,
    no_room_told,
    print_all,
    shown,
    with_rows,
    write_json,
    write_out,
)
from dftrace_ai.wording import counted, escaped, in_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dftrace_ai.analysis.summary.report import By as ReportBy
    from dftrace_ai.analysis.summary.report import Report, Row, SortKey
    from dftrace_ai.analysis.summary.rows import LineRow, TensorRow, TreeRow

T = TypeVar("T")

FIGURES = ("count", "total", "self", "share", "mean", "p50", "p95", "p99", "max")
# What a narrow terminal has no room for goes in this order.
SPARED = ("p95", "mean", "p50", "p99", "max", "self", "share")

TREE_TIMES = ("total", "self", "mean", "p50", "p95", "p99", "max")
INDENT = "  "
MOST_INDENTS = 30

TENSOR_STATS = "tensor_stats"
TENSOR_FIGURES = ("count", "first", "last", "min", "max", "non-finite since step")
LINE_FIGURES = ("samples", "total", "self", "share", "CPU")
LINE_SPARED = ("samples", "CPU", "total")
NO_LINES = (
    "these traces hold no samples of Python's stacks; they are recorded with the setting lines_hz, "
    "such as DFTRACE_LINES_HZ=20"
)
NONE_READ = "none of the samples of Python's stacks that these traces hold can be read"
TENSOR_SPARED = ("count", "first", "min", "max")


class By(str, Enum):
    """What has a row of its own."""

    name = "name"
    category = "category"
    rank = "rank"
    host = "host"
    process = "process"
    thread = "thread"
    step = "step"
    epoch = "epoch"
    tree = "tree"
    tensor = "tensor"
    line = "line"


class Sort(str, Enum):
    """By what rows are put in falling order."""

    total = "total"
    self_time = "self"
    number = "count"  # `str` has a method of that name
    mean = "mean"
    p99 = "p99"
    max = "max"


@with_readers(bytes_a_second=65e6)
def command(
    paths: Paths = None,
    json: Annotated[bool, json_option("Print JSON instead of a table.")] = False,
    csv: Annotated[
        bool, csv_option("Print CSV of the rows of spans, with all figures, in microseconds.")
    ] = False,
    by: Annotated[
        By,
        typer.Option(
            help="What has a row: a name in its category, a whole category, or each name of a "
            "rank, host, process, thread, step or epoch, which are added up apart; a place in the "
            "tree of spans, of all ranks and threads together; a statistic of a tensor that was "
            "inspected; or a line of the program, by samples of Python's stacks. Steps and epochs "
            "are those of the arguments `step` and `epoch`; what lies in a `pipeline.step` without "
            "a number has that of `dftrace why`."
        ),
    ] = By.name,
    sort: Annotated[
        Sort | None,
        typer.Option(help="Put rows in falling order of a figure; without it by category."),
    ] = None,
    top: Annotated[
        int | None, top_option("Only the first N rows; by total without --sort.")
    ] = None,
    where: Annotated[
        list[str] | None,
        where_option(
            "Only the events that meet it, such as 'cat = comm and dur_us > 500': cat, name, rank, "
            "host, pid, tid, dur_us and args.NAME; self is still without all that lies inside"
        ),
    ] = None,
    every: All = False,
    run: Run = None,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Count events and add up their durations, by category and name.

    Example: dftrace summary out --by tree --where "rank = 0"

    Total is the sum of durations, with all that lies inside of the spans. Self
    is the part of it in which no other span of the same thread lies; steps and
    epochs that lie beside a thread have none. Of the main thread they and what is
    not annotated are all of its time. Share is
    self, of the wall time of the processes that have such spans, each from its
    first event to its last; by thread, step or epoch of the time from the
    first span of that one to the last. Threads that work at the same time can
    have more than all of it. Percentiles of more than 128 spans are at most 0.78 % off.

    What was lost stands below the table, on the error stream. Files of a
    directory that cannot be read are skipped with a warning. Exit status 1
    when there are any.
    """
    from dftrace_ai.analysis.summary.report import reported

    not_together({"--json": json, "--csv": csv})
    form: ReportBy = by.value
    for option, is_given in {"--sort": sort is not None, "--csv": csv}.items():
        not_together({f"--by {form}": by in (By.tree, By.tensor), option: is_given})
    not_together({"--by tensor": by is By.tensor, "--top": top is not None})
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress(), readers:
        spread = readers.of(reading.traces)
        key: SortKey | None = sort.value if sort else None
        report = reported(reading.traces, form, key, top, _all_of(where), spread)
    report = report.with_running(reading.running)
    report = replace(report, losses={**report.losses, **reading.losses})
    if json:
        write_json(report)
    elif csv:
        write_out(csv_text(report))
    else:
        out = console()
        print_all(out, summary_tables(report, out.width, sort, every=every))
    reading.warn(report.warnings)
    reading.end(failed=readers.left_out or bool(report.skipped))


def _all_of(where: Sequence[str] | None) -> str | None:
    if not where:
        return None
    from dftrace_ai.conditions import all_of

    return all_of(where)


def summary_tables(
    report: Report, width: int, sort: Sort | None = None, *, every: bool = False
) -> list[RenderableType]:
    """Return what to print: spans, other events, and closing lines."""
    # Figures that do not fit into the width, in letters of a line, are left out, which is said.
    tables: list[RenderableType]
    if report.tree is not None:
        # Whatever is around a place takes as long and longer: so the tree stays whole.
        tree, cut = _shown(report.tree, "the longest total", lambda row: row.total_us, every)
        order = {id(row): at for at, row in enumerate(report.tree)}
        tree = sorted(tree, key=lambda row: order[id(row)])
        tables = _tree_table(tree, width) if tree else [_no_spans(report)]
        return [*tables, *_closing_lines(report, cut)]
    if report.tensors is not None:
        tensors, cut = _shown(
            report.tensors, "the most values that are not finite", lambda row: row.nonfinite, every
        )
        tables = _tensor_table(tensors, width) if tensors else [_no_tensors(report)]
        return [*tables, *_closing_lines(report, cut)]
    if report.lines is not None:
        from dftrace_ai.analysis.reading.stack_lines import UNREAD

        lines, cut = _shown(report.lines, "the longest self", lambda row: row.self_us, every)
        unread = any(told.endswith(UNREAD) for told in report.warnings)
        tables = _line_table(lines, width) if lines else [NONE_READ if unread else NO_LINES]
        return [*tables, *_closing_lines(report, cut)]
    # What a loop's body takes is the time of everything in it, and no work of the loop's category.
    bodies = [row for row in report.spans if row.loop == "body"]
    spans = [row for row in report.spans if row.loop != "body"]
    tables = [] if report.spans else [_no_spans(report)]
    places = _places(report) if report.by == "rank" else {}
    spared: set[str] = set()
    cuts: list[str] = []
    texts = [] if report.by in ("name", "category") else [report.by]
    figure = sort.value if sort else "total"
    for title, column, rows in (
        ("Spans", "category", spans),
        ("Bodies of loops, with all that is done in them", "loop of", bodies),
    ):
        if not rows:
            continue
        if len(rows) > MOST_ROWS and report.by in SPREAD_BY and not every:
            tables += _spread_table(title, column, rows, report.by, places, width)
            cuts.append(spread_told(len(rows), report.by))
            continue
        kept_rows, cut_told = _shown(
            rows, f"the greatest {figure}", lambda row: _worth(row, figure), every
        )
        cuts += cut_told
        heads = [*texts, column, *([] if report.by == "category" else ["name"])]
        cells = [_cells(row, heads, places) for row in kept_rows]
        table, kept = fitted_table(title, heads, FIGURES, cells, SPARED, width)
        spared |= set(FIGURES) - set(kept)
        tables.append(table)
    if report.others:
        kept_others, cut_told = _shown(
            report.others, "the greatest count", lambda row: row.count, every
        )
        cuts += cut_told
        others = figures_table("Other events", ["kind", "category", "name"], ["count"])
        cells_of_others = [
            (
                *(shown(text, NAME_LETTERS) for text in (row.kind, row.cat, row.name)),
                f"{row.count:,}",
            )
            for row in kept_others
        ]
        tables.append(with_rows(others, cells_of_others, width))
    return [*tables, *no_room_told(FIGURES, set(FIGURES) - spared), *_closing_lines(report, cuts)]


SPREAD_BY = ("rank", "host", "process")
SPREAD_FIGURES = ("count", "total", "least", "median", "greatest", "of", "beyond")
SPREAD_SPARED = ("count", "least", "total", "median")


def _shown(
    rows: Sequence[T], what: str, worth: Callable[[T], float], every: bool
) -> tuple[Sequence[T], list[str]]:
    """Return the rows that are printed, and what is said of others."""
    kept = worst(rows, worth, every=every)
    left_out = len(rows) - len(kept)
    return kept, [left_out_told(left_out, f"those with {what}")] if left_out else []


def _worth(row: Row, figure: str) -> float:
    value = row.count if figure == "count" else getattr(row, f"{figure}_us")
    return -1.0 if value is None else float(value)


def _spread_table(
    title: str,
    column: str,
    rows: Sequence[Row],
    by: str,
    places: Mapping[str, str],
    width: int,
) -> list[RenderableType]:
    cells = []
    for one in spreads(rows)[:MOST_ROWS]:
        times = (one.total_us, one.least_us, one.median_us, one.greatest_us)
        values = (
            shown(one.cat, NAME_LETTERS),
            shown(one.name or "", NAME_LETTERS),
            f"{one.groups:,}",
            f"{one.spans:,}",
            *map(_time, times),
            shown(places.get(one.of, one.of), NAME_LETTERS),
            f"+{_time(one.beyond_us)}",
        )
        heads = (column, "name", _several(by), *SPREAD_FIGURES)
        cells.append(dict(zip(heads, values, strict=True)))
    figures = (_several(by), *SPREAD_FIGURES)
    title = f"{title}: totals of each {by}, and the {by} with the greatest"
    table, kept = fitted_table(title, [column, "name"], figures, cells, SPREAD_SPARED, width)
    return [table, *no_room_told(figures, kept)]


def _several(by: str) -> str:
    return "processes" if by == "process" else f"{by}s"


def _closing_lines(report: Report, cuts: Sequence[str]) -> Iterator[str]:
    """Yield what stands below the tables: how much there is, and what is missing."""
    from dftrace_ai.analysis.reading.reach import local_text
    from dftrace_ai.trace_format.header_and_footer import LOSSES

    yield from cuts
    if report.rows_left_out:
        yield f"{counted(report.rows_left_out, 'row')} more, which --top leaves out"
    shares = [row.share or 0.0 for row in report.spans]
    shares += [row.share or 0.0 for row in report.tree or ()]
    if max(shares, default=0.0) > 1:
        yield "a share of more than 100 %: several of these spans lasted at the same time"
    outside = report.not_annotated
    if outside is not None:
        whose = "the main thread's time"
        if outside.processes > 1:
            whose = f"the time of {outside.processes:,} main threads"
        yield f"of {whose} {_share(outside.share)} ({_time(outside.us)}) is not annotated"
    if report.length_us is not None:
        began = "" if report.began_at is None else f"began {local_text(report.began_at)}, "
        yield began + lasted_text(report.length_us * 1e3)
    yield f"{counted(report.events, 'event')} in {counted(len(report.files), 'file')}"
    if report.chosen_events is not None:
        yield f"of these {report.chosen_events:,} meet --where"
    tensors = sum(row.count for row in report.others if row.cat == TENSOR_STATS)
    if tensors and report.tensors is None:
        yield f"{counted(tensors, 'event')} with statistics of tensors; --by tensor has a table"
    unfinished = report.losses.get("unfinished", 0)
    if unfinished:
        yield f"{counted(unfinished, 'span')} without an end, in no row of the spans"
    for loss in LOSSES:
        if loss.text and loss.member in report.losses:
            yield "in all: " + loss.text.format(counted(report.losses[loss.member], loss.noun))
    unreadable = report.losses.get("unreadable", 0)
    if unreadable:
        # Late: it loads NumPy.
        from dftrace_ai.analysis.summary.table import unreadable_told

        yield f"in all: {unreadable_told(unreadable)}"


def _tree_table(rows: Sequence[TreeRow], width: int) -> list[RenderableType]:

    cells = []
    for row in rows:
        name = shown(f"{row.cat}.{row.name}", NAME_LETTERS)
        indent = INDENT * min(len(row.path) - 1, MOST_INDENTS)
        figures = {"count": f"{row.count:,}", "share": _share(row.share)}
        figures |= {name: _time(getattr(row, f"{name}_us")) for name in TREE_TIMES}
        cells.append({"span": indent + name, **figures})
    title = "Spans, and those inside of them"
    table, kept = fitted_table(title, ["span"], FIGURES, cells, SPARED, width)
    return [table, *no_room_told(FIGURES, kept)]


def _tensor_table(rows: Sequence[TensorRow], width: int) -> list[RenderableType]:

    cells = []
    for row in rows:
        step = row.first_nonfinite_step
        values = {name: getattr(row, name) for name in ("first", "last", "min", "max")}
        cells.append(
            {
                "tensor": shown(row.name, NAME_LETTERS),
                "statistic": shown(row.statistic, NAME_LETTERS),
                "count": f"{row.count:,}",
                **{
                    name: "-" if value is None else f"{value:.4g}" for name, value in values.items()
                },
                "non-finite since step": "-" if step is None else f"{step:,}",
            }
        )
    texts = ["tensor", "statistic"]
    title = "Statistics of tensors"
    table, kept = fitted_table(title, texts, TENSOR_FIGURES, cells, TENSOR_SPARED, width)
    return [table, *no_room_told(TENSOR_FIGURES, kept)]


def _line_table(rows: Sequence[LineRow], width: int) -> list[RenderableType]:
    from dftrace_ai.analysis.lines.words import place_text

    cells = [
        {
            "line": shown(place_text(row.function, row.file, row.line), NAME_LETTERS),
            "samples": f"{row.samples:,}",
            "total": _time(row.total_us),
            "self": _time(row.self_us),
            "share": _share(row.share),
            "CPU": _share(row.cpu_us / row.self_us if row.self_us else None),
        }
        for row in rows
    ]
    title = "Lines of the program, by samples of its stacks"
    table, kept = fitted_table(title, ["line"], LINE_FIGURES, cells, LINE_SPARED, width)
    return [table, *no_room_told(LINE_FIGURES, kept)]


def _no_spans(report: Report) -> str:
    return "no spans meet --where" if report.where is not None else "there are no finished spans"


def _no_tensors(report: Report) -> str:
    if report.where is not None:
        return "no statistics of tensors meet --where"
    return (
        "no statistics of tensors are in these traces. Recorded are those that a config of tensor "
        "inspection selects (dftrace_ai.inspect: initialize, attach and step), and what "
        "log_tensor_stats is given; docs/guide/inspect.md has an example"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _time(micros: float | None) -> str:
    return "-" if micros is None else time_text(micros * 1e3)


def csv_text(report: Report) -> str:
    """Return the rows of spans as CSV: a column for each member of a row, empty for null."""
    import csv

    from dftrace_ai.analysis.summary.report import Row

    columns = [field.name for field in fields(Row)]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in report.spans:
        values = (getattr(row, column) for column in columns)
        writer.writerow(in_csv(escaped(one)) if isinstance(one, str) else one for one in values)
    return text.getvalue()


def _places(report: Report) -> dict[str, str]:
    """Return what a rank is called, with its place in a parallel training where that is known."""
    return {
        str(file.rank): f"{file.rank} {file.layout}"
        for file in report.files
        if file.rank is not None and file.layout
    }


def _cells(row: Row, heads: Sequence[str], places: Mapping[str, str]) -> dict[str, str]:
    group = row.group if row.group is None else places.get(row.group, row.group)
    names = [name for name in (group, row.cat, row.name) if name is not None]
    cells = {head: shown(name, NAME_LETTERS) for head, name in zip(heads, names, strict=True)}
    for figure in FIGURES:
        if figure == "count":
            cells[figure] = f"{row.count:,}"
            continue
        if figure == "share":
            cells[figure] = _share(row.share)
        else:
            cells[figure] = _time(getattr(row, f"{figure}_us"))
    return cells
