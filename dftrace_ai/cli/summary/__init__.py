"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.dead_traces import NOTHING, Paths, Recover, complete_dead_traces

if TYPE_CHECKING:
    from dftrace_ai.analysis.summary.report import By as ReportBy

__all__ = ["command"]

FILES_SKIPPED = 1


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


class Sort(str, Enum):
    """By what rows are put in falling order."""

    total = "total"
    self_time = "self"
    number = "count"  # `str` has a method of that name
    mean = "mean"
    p99 = "p99"
    max = "max"


def command(
    paths: Paths,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print rows of spans as CSV, with all figures, in microseconds."
        ),
    ] = False,
    by: Annotated[
        By,
        typer.Option(
            help="What has a row: a name in its category, a whole category, or each name of a "
            "rank, host, process, thread, step or epoch, which are added up apart. Steps and "
            "epochs are those of the arguments `step` and `epoch`; what lies in a `pipeline.step` "
            "without a number has that of `dftrace why`."
        ),
    ] = By.name,
    sort: Annotated[
        Sort | None,
        typer.Option(help="Put rows in falling order of a figure; without it by category."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the first N rows; by total without --sort."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only events that meet it, such as \"cat = 'comm' and dur_us > 500\": cat, name, "
            "rank, host, pid, tid, dur_us and args.NAME; = != < > <= >= like in; and, or, not. "
            "Self is still without all that lies inside.",
        ),
    ] = None,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="A row for each place among the spans, of all ranks and threads together.",
        ),
    ] = False,
    tensors: Annotated[
        bool,
        typer.Option("--tensors", help="A row for each statistic of a tensor that was inspected."),
    ] = False,
    recover: Recover = True,
) -> None:
    """Count events and add up their durations, by category and name.

    Example: dftrace summary out --tree --where "rank = 0"

    Total is the sum of durations, with all that lies inside of the spans. Self
    is the part of it in which no other span of the same thread lies. Share is
    self, of the wall time of the processes that have such spans, each from its
    first event to its last; by thread, step or epoch of the time from the
    first span of that one to the last. Threads that work at the same time can
    have more than all of it. Percentiles of more than 128 spans are at most 0.78 % off.

    What was lost stands below the table, on the error stream. Files of a
    directory that cannot be read are skipped with a warning. Exit status 1
    when there are any.
    """
    from dftrace_ai.analysis.summary.report import reported
    from dftrace_ai.cli.summary.tables import csv_text, summary_tables
    from dftrace_ai.cli.terminal import (
        complain,
        console,
        print_all,
        shown_progress,
        write_json,
        write_out,
    )

    if json and csv:
        raise typer.BadParameter("--json and --csv cannot be given together")
    form: ReportBy = "tree" if tree else "tensor" if tensors else by.value
    if tree or tensors:
        given = {"--by": by is not By.name, "--sort": sort is not None, "--csv": csv}
        given |= {"--tree": tree and tensors, "--top": tensors and top is not None}
        for option in (name for name, is_given in given.items() if is_given):
            word = "--tree" if tree and option != "--tree" else "--tensors"
            raise typer.BadParameter(f"{word} and {option} cannot be given together")
    completed = complete_dead_traces(paths) if recover else NOTHING
    with shown_progress("reading", paths):
        report = reported(paths, form, sort.value if sort else None, top, where)
    report = report.with_running(completed.running)
    report = replace(report, losses={**report.losses, **completed.losses})
    if json:
        write_json(report.to_dict())
    elif csv:
        write_out(csv_text(report))
    else:
        out = console()
        print_all(out, summary_tables(report, out.width))
    for warning in report.warnings:
        complain(warning, loud=": LOST " in warning)
    if report.skipped:
        raise typer.Exit(FILES_SKIPPED)
    completed.end()
