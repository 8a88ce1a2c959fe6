"""`dftrace diff`: what became slower, faster, new and gone from one run to another."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dftrace_ai.analysis.texts import time_text
from dftrace_ai.cli.markdown import Block, code, figure, folded, table, text, write_markdown
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import Json, Markdown, Recover, not_together, top_option
from dftrace_ai.cli.terminal import (
    NAME_LETTERS,
    complain,
    console,
    fitted_table,
    no_room_told,
    print_all,
    shown,
    write_json,
)
from dftrace_ai.errors import needs_numpy
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from dftrace_ai.analysis.diff import Change, Diff, Judged, Row, RunFacts
    from dftrace_ai.analysis.diff.model import Measure

NOT_JUDGED = 2
ROWS = 20
TOLD = ("slower", "new", "faster", "gone")
TEXTS = ("", "name")
FIGURES = ("A", "B", "change", "for sure", "B - A a step")
SIGNS: Final[dict[Measure, str]] = {"each": "/", "mean": "~"}
"""Before times that are not the median of steps."""
# What a narrow terminal has no room for goes in this order.
SPARED = ("B - A a step", "for sure", "A")


class By(str, Enum):
    """What has a row of its own."""

    name = "name"
    category = "category"
    tree = "tree"


def command(
    before: Annotated[
        Path | None,
        typer.Argument(
            metavar="[A",
            help="Trace file of the first run, or its directory. Of A alone its last two runs are "
            "compared; without A and B the last two below the current directory.",
        ),
    ] = None,
    after: Annotated[
        Path | None, typer.Argument(metavar="B]", help="The same of the second run.")
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
    by: Annotated[
        By,
        typer.Option(
            help="What has a row: a name in its category, a whole category, or a place in the "
            "tree of spans. JSON has them all."
        ),
    ] = By.name,
    top: Annotated[int, top_option("Only the first N rows, of changes.")] = ROWS,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="End with status 1 where a condition is met for sure, such as 'compute.step p50 "
            "> +5%': a name with its category, a category, or step for the whole step; one of "
            "p50, p90, p95, p99, mean, self, count; > or <; and a limit. With % or a sign the "
            "limit is for what is added to A, else for B by itself. May be given again.",
        ),
    ] = None,
    recover: Recover = True,
) -> None:
    """Tell what became slower, faster, new or gone in a step, from run A to run B.

    Times are a span's own, without the spans inside of it. Each change has a 99.9 % interval,
    and what may be chance is not called a change; of fewer than 20 steady steps nothing is.

    Example: dftrace diff before after --fail-if 'step p50 > +5%'

    Exit status: 0 whatever has changed, 1 where a condition of --fail-if is met, 2 when the
    call is wrong, nothing can be read, or a condition cannot be judged.
    """
    not_together({"--json": json, "--markdown": markdown})
    with needs_numpy():
        from dftrace_ai.analysis.diff import conditions_of, diff

    conditions = conditions_of(fail_if or ())
    reading = Reading([path for path in (before, after) if path], recover=recover, compared=True)
    with reading.progress():
        found = diff(*reading.last_two(), conditions)
    if json:
        write_json(found.to_dict())
    elif markdown:
        write_markdown(_blocks(found, by, top))
    else:
        out = console()
        print_all(out, diff_lines(found, out.width, by, top))
    reading.warn(found.notes)
    for one in found.conditions:
        if one.met is None:
            complain(f"--fail-if {one.condition}: cannot be judged: {one.why}", loud=True)
    met = any(one.met for one in found.conditions)
    if not met and any(one.met is None for one in found.conditions):
        raise typer.Exit(NOT_JUDGED)
    reading.end(failed=met)


def diff_lines(
    found: Diff, width: int, by: By = By.name, top: int = ROWS
) -> Iterator[RenderableType]:
    """Yield what to print for a comparison: the verdict, rows of changes, and what they are of."""
    # Columns that do not fit into a width, in letters, are left out.
    yield shown(_verdict(found))
    if found.step is not None:
        yield from (shown(line.text) for line in found.lines)
        rows = found.rows(by.value)
        told = [row for row in rows if row.change.kind in TOLD]
        if told:
            cells = [_cells(row, by) for row in told[:top]]
            title = "What changed: own time in a step"
            table, kept = fitted_table(title, TEXTS, FIGURES, cells, SPARED, width)
            yield table
            yield from no_room_told(FIGURES, kept)
        yield from _below(found, len(told) - top, rows)
    for one in found.conditions:
        yield f"--fail-if {shown(one.condition)}: {_judgement(one)}"
    for letter, run in _judged_runs(found):
        yield f"{letter}: {shown(run.path)}: {_steps(run)}"


def _blocks(found: Diff, by: By, top: int) -> Iterator[Block]:
    """Yield what `--markdown` prints: the same, with rows that did not change folded."""
    yield Block([f"### {text(_verdict(found))}"])
    yield from (Block([text(line.text)]) for line in found.lines)
    if found.conditions:
        yield table(("--fail-if", ""), 2, map(_asked, found.conditions))
    if found.step is not None:
        rows = found.rows(by.value)
        told = [row for row in rows if row.change.kind in TOLD]
        others = [row for row in rows if row.change.kind not in TOLD]
        if told:
            yield _rows_of(told[:top], by)
        yield from (Block([text(line)]) for line in _below(found, len(told) - top, rows))
        if others:
            yield folded("What did not change for sure", _rows_of(others[:top], by))
    if found.notes:
        yield Block([], [f"- {text(note)}" for note in found.notes])
    for letter, run in _judged_runs(found):
        yield Block([f"{letter}: {code(run.path)}: {text(_steps(run))}"])


def _asked(one: Judged) -> tuple[str, str]:
    why = f": {one.why}" if one.why else ""
    return code(one.condition), text(f"{_judgement(one)}{why}")


def _rows_of(rows: list[Row], by: By) -> Block:
    def marked(row: Row) -> list[str]:
        kind, _, *figures = _cells(row, by).values()
        beside = " &#42;" if row.beside else ""
        return [kind, code(_name(row, by)) + beside, *map(figure, figures)]

    return table((*TEXTS, *FIGURES), len(TEXTS), map(marked, rows))


def _verdict(found: Diff) -> str:
    if found.step is None:
        return f"NOT JUDGED: {found.abstained}"
    word = {"none": "no clear change"}.get(found.verdict, found.verdict).upper()
    return f"{word}: a step took {_times(found.step)}"


def _judged_runs(found: Diff) -> Iterator[tuple[str, RunFacts]]:
    for letter, run in (("A", found.before), ("B", found.after)):
        if run.steps:
            yield letter, run


def _steps(run: RunFacts) -> str:
    of_ranks = f" of {counted(run.ranks, 'rank')}" if run.ranks > 1 else ""
    # One for all ranks together, where they have as many.
    of_each, left = divmod(run.steps, run.ranks)
    of = run.steps if left or run.judged > of_each else of_each
    return f"{counted(run.judged, 'steady step')} of {of:,}{of_ranks}, by {run.found_by}"


def _below(found: Diff, cut: int, rows: tuple[Row, ...]) -> Iterator[str]:
    if cut > 0:
        yield f"{counted(cut, 'row')} more, which --top leaves out"
    told = [row for row in rows if row.change.kind in TOLD]
    if not told:
        yield "nothing that is annotated changed for sure"
    if any(row.beside for row in told):
        yield "* in other threads or processes than the one that trains"
    if any(row.change.measure == "each" for row in told):
        yield f"{SIGNS['each']} of one span, for what is not in every step or beside it"
    if any(row.change.measure == "mean" for row in told):
        yield f"{SIGNS['mean']} the mean of steps, where the median says nothing for sure"
    unsure = sum(row.change.kind == "unsure" for row in rows)
    if unsure:
        yield f"{counted(unsure, 'row')} may differ by chance; --json has them"
    if found.rows_left_out:
        yield f"{counted(found.rows_left_out, 'place')} with the least time are not compared"


def _name(row: Row, by: By) -> str:
    if by is By.tree:
        return " > ".join(row.path)
    # As a condition has it.
    return row.cat if row.name is None else f"{row.cat}.{row.name}"


def _cells(row: Row, by: By) -> dict[str, str]:
    change = row.change
    sign = "-" if row.mean_added_ns < 0 else "+"
    values = (
        change.kind,
        shown(_name(row, by), NAME_LETTERS) + (" *" if row.beside else ""),
        *(_time(change.measure, ns) for ns in (change.before_ns, change.after_ns)),
        _percent(change),
        _between(change),
        f"{sign}{time_text(abs(row.mean_added_ns))}",
    )
    return dict(zip((*TEXTS, *FIGURES), values, strict=True))


def _time(measure: Measure, ns: float) -> str:
    marked = f"{SIGNS[measure]} " if ns and measure in SIGNS else ""
    return f"{marked}{time_text(ns)}"


def _times(change: Change) -> str:
    before, after = (time_text(ns) for ns in (change.before_ns, change.after_ns))
    between = f" ({_between(change)})" if change.low_ns is not None else ""
    mean = " on average" if change.measure == "mean" else ""
    return f"{before} in A, {after} in B{mean}: {_percent(change)}{between}"


def _percent(change: Change) -> str:
    if not change.before_ns:
        return "-"
    return f"{100 * change.added_ns / change.before_ns:+.1f} %"


def _between(change: Change) -> str:
    if change.low_ns is None or change.high_ns is None or not change.before_ns:
        return "-"
    low, high = (100 * ns / change.before_ns for ns in (change.low_ns, change.high_ns))
    return f"{low:+.1f} to {high:+.1f} %"


def _judgement(one: Judged) -> str:
    word = {None: "not judged", False: "not met", True: "MET"}[one.met]
    if one.value is None or one.low is None or one.high is None:
        return word
    of = 1e6 if one.unit == "ns" else 1.0
    unit = " ms" if one.unit == "ns" else f" {one.unit}".rstrip()
    sign = "+" if one.unit == "%" else ""

    def told(value: float) -> str:
        return f"{value / of:{sign}{'.4g' if abs(value / of) < 1000 else '.1f'}}"

    return f"{word}: {told(one.value)}{unit} ({told(one.low)} to {told(one.high)})"
