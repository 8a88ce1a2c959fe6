"""All that is shown of a snapshot: a table of its processes, and what could not be seen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from dftrace_ai.cli.terminal import shown
from dftrace_ai.live import jobs_of, judge
from dftrace_ai.live.model import NS
from dftrace_ai.live.told import told_hosts
from dftrace_ai.live.verdict_words import hidden_lines, problem_lines, told_lines, waited_lines
from dftrace_ai.live.wording import age_text, path_text, processes_text, rate_text
from dftrace_ai.trace_format.names_and_phases import loop_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dftrace_ai.live import Job, Mark, RankStatus, Snapshot


CATEGORY_STYLES = {
    "compute": "green",
    "data": "blue",
    "dataloader": "bright_blue",
    "comm": "magenta",
    "device": "cyan",
    "checkpoint": "yellow",
    "pipeline": "white",
}
OTHER_STYLE = "bright_black"

MARK_STYLES = {"dead": "bold red", "silent": "bold red", "unwritable": "bold red", "drops": "red"}

# Time in no span, or in the body of a loop outside of all that is annotated there.
UNANNOTATED = "not annotated"

# A share of time that is not worth a word.
LEAST_SHARE = 0.01

# Open spans are shown whole up to the first width, if that costs no column. A column of little
# worth goes before they become narrower than the second, any other before the third.
WIDE_PATH = 48
FAIR_PATH = 40
NARROW_PATH = 24
LITTLE_WORTH = 3
LEAST_COLUMNS = 3
PATH_HEAD = "open spans"
GAP = 2
BAR_CELLS = 10


@dataclass(frozen=True)
class Row:
    """A process and why it differs from the others."""

    process: RankStatus
    marks: Sequence[Mark]


@dataclass(frozen=True)
class _Column:
    head: str
    texts: list[Text]
    worth: int  # the least goes first where there is no room
    right: bool = False

    @property
    def width(self) -> int:
        return max(len(self.head), *(text.cell_len for text in self.texts), 0)


class _Detail(NamedTuple):
    remarks: bool
    bar: bool
    shares: int


# From the widest to the narrowest.
DETAILS = (
    _Detail(remarks=True, bar=True, shares=3),
    _Detail(remarks=False, bar=True, shares=3),
    _Detail(remarks=True, bar=False, shares=3),
    _Detail(remarks=False, bar=False, shares=3),
    _Detail(remarks=False, bar=False, shares=2),
    _Detail(remarks=False, bar=False, shares=1),
)


def rows_of(
    processes: Sequence[RankStatus], marks: dict[tuple[str, str], list[Mark]], most: int
) -> list[Row]:
    """Return rows, as many as there is room for: in order, or those that differ first."""
    rows = [Row(process, marks[process.identity]) for process in processes]
    if len(rows) <= most:
        return rows
    by_interest = sorted(rows, key=lambda row: (not row.marks, row.process.worker))
    return by_interest[:most]


def live_table(rows: Sequence[Row], width: int, window_s: float, *, bars: bool) -> Table:
    """Return the table in so many characters, with bars where there are colours for them."""
    wanted = max((len(path_text(row.process.place)) for row in rows), default=0)
    wanted = max(min(wanted, WIDE_PATH), len(PATH_HEAD))
    for detail in DETAILS:
        if detail.bar and not bars:
            continue
        columns = _columns(rows, detail, window_s)
        room = width - sum(column.width + GAP for column in columns)
        if room >= wanted:
            break
    while len(columns) > LEAST_COLUMNS:
        least = min(columns, key=lambda column: column.worth)
        if room >= min(wanted, NARROW_PATH if least.worth > LITTLE_WORTH else FAIR_PATH):
            break
        columns.remove(least)
        room += least.width + GAP
    room = max(min(room, max(wanted, NARROW_PATH)), len(PATH_HEAD))
    columns.insert(1, _Column(PATH_HEAD, [_path(row, room) for row in rows], 9))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.head, justify="right" if column.right else "left", no_wrap=True)
    for texts in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*texts)
    return table


def _columns(rows: Sequence[Row], detail: _Detail, window_s: float) -> list[_Column]:
    processes = [row.process for row in rows]
    columns = [
        _Column("rank", [_rank(process) for process in processes], 9, right=True),
        _Column("for", [_since(process) for process in processes], 8, right=True),
    ]
    if any(row.marks for row in rows):
        remarks = [_remark(row, detailed=detail.remarks) for row in rows]
        columns.append(_Column("remark", remarks, 7))
    shares = [_shares(process, detail) for process in processes]
    columns += [
        _Column(f"last {window_s:g} s", shares, 6),
        _Column("step", [_number(process.step) for process in processes], 5, right=True),
        _Column("events/s", [_rate(process) for process in processes], 4, right=True),
        _Column("epoch", [_number(process.epoch) for process in processes], 3, right=True),
        _Column("pid", [_number(process.pid) for process in processes], 2, right=True),
    ]
    if len({process.host for process in processes}) > 1:
        columns.append(_Column("host", [Text(shown(one.host)) for one in processes], 1))
    return columns


def _rank(process: RankStatus) -> Text:
    name = "-" if process.rank is None else str(process.rank)
    # Its rank's workers stand below it.
    return Text(f"{name}·w" if process.worker else name, style="dim" if process.worker else "bold")


def _path(row: Row, width: int) -> Text:
    path = row.process.place
    if not path:
        return Text("in no span"[:width], style="dim")
    text = Text(shown(path_text(path, width)), no_wrap=True)
    text.truncate(width, overflow="ellipsis")
    inner = shown(path[-1].label)
    if loop_part(path[-1].name) != "body" and text.plain.endswith(inner):
        style = CATEGORY_STYLES.get(path[-1].cat, OTHER_STYLE)
        text.stylize(style, len(text.plain) - len(inner))
    return text


def _since(process: RankStatus) -> Text:
    if process.state == "dead":
        return Text(f"{age_text(process.dead_s())} ago", style="red")
    if not process.place:
        return Text("")
    return Text(age_text(max(process.seen_ns - process.place[-1].start_ns, 0) / NS))


def _remark(row: Row, *, detailed: bool) -> Text:
    words = []
    for mark in row.marks:
        words.append(mark.word)
        if detailed and mark.detail != mark.word:
            words[-1] += f" ({shown(mark.detail)})"
    main = row.process.main
    if detailed and words and main is not None and main.stands_in:
        words.append(f"stands in {shown(main.stands_in)}")
    style = next((MARK_STYLES[m.word] for m in row.marks if m.word in MARK_STYLES), "yellow")
    return Text(", ".join(words), style=style)


def _shares(process: RankStatus, detail: _Detail) -> Text:
    """The largest shares of the main thread's time, in words, and as a bar where there is room."""
    main = process.main
    if main is None or main.covered_s <= 0.0 or process.state == "dead":
        return Text("")
    spent = [*main.self_s.items(), (None, main.unannotated_s)]
    shares = [(cat, seconds / main.covered_s) for cat, seconds in spent]
    notable = sorted((one for one in shares if one[1] >= LEAST_SHARE), key=lambda one: -one[1])
    text = Text()
    if detail.bar and main.self_s:
        text.append_text(_bar([(cat, share) for cat, share in notable if cat is not None])).append(
            "  "
        )
    for number, (cat, share) in enumerate(notable[: detail.shares]):
        text.append("" if number == 0 else "  ")
        if cat is None:
            text.append(f"{share:4.0%} {UNANNOTATED}", style="dim")
        else:
            text.append(f"{share:4.0%} {shown(cat)}", style=CATEGORY_STYLES.get(cat, OTHER_STYLE))
    return text


def _bar(shares: Sequence[tuple[str, float]]) -> Text:
    bar = Text()
    filled = 0.0
    for cat, share in shares:
        cells = round((filled + share) * BAR_CELLS) - round(filled * BAR_CELLS)
        bar.append("█" * cells, style=CATEGORY_STYLES.get(cat, OTHER_STYLE))
        filled += share
    return bar.append("·" * (BAR_CELLS - len(bar)), style="dim")


def _number(value: int | None) -> Text:
    return Text("" if value is None else str(value))


def _rate(process: RankStatus) -> Text:
    rate = process.events_per_s
    return Text("" if rate is None or process.state == "dead" else rate_text(rate))


TABLE_HEAD_LINES = 2
# Of a table that is cut so many rows are worth more than a verdict.
FEWEST_ROWS = 8


def page(
    snapshot: Snapshot,
    width: int,
    most_rows: int | None,
    *,
    coloured: bool,
    verdict: Sequence[str] = (),
) -> list[RenderableType]:
    """Return what to print, in order, in lines of so many characters, and so many of them.

    None for as many as it takes. Processes make room for the `verdict` on why steps are slow.
    """
    jobs = jobs_of(snapshot)
    processes = [process for job in jobs for process in job.processes]
    notes = [Text(line, style="yellow") for line in waited_lines(snapshot.waited_for)]
    notes += [Text(line, style="dim") for line in told_lines(told_hosts(processes))]
    notes += [Text(line, style="yellow") for line in hidden_lines(snapshot.hidden)]
    notes += [Text(line, style="bold red") for line in problem_lines(snapshot.problems)]
    head = _head(snapshot, jobs)
    judged = _verdict(verdict)
    room = len(processes)
    if most_rows is not None:
        room = most_rows - 1 - TABLE_HEAD_LINES - len(notes)
        if room - len(judged) >= min(len(processes), FEWEST_ROWS):
            room -= len(judged)
        else:
            judged = []
        if room < len(processes):
            room -= 1  # for the line that says so
    room = max(room, 1)
    rows = rows_of(processes, judge(snapshot), room)
    if len(rows) < len(processes):
        left_out = len(processes) - len(rows)
        differing = sum(bool(row.marks) for row in rows)
        what = "that differ come first" if differing else "as the others"
        notes.insert(
            0, Text(f"{left_out:,} more, for which there is no room; those {what}", style="dim")
        )
    for text in (head, *notes, *judged):
        text.truncate(width, overflow="ellipsis")
    return [head, live_table(rows, width, snapshot.window_s, bars=coloured), *judged, *notes]


def _verdict(lines: Sequence[str]) -> list[Text]:
    if not lines:
        return []
    return [Text(), Text(f"why: {lines[0]}", style="bold"), *(Text(line) for line in lines[1:])]


def _head(snapshot: Snapshot, jobs: list[Job]) -> Text:
    processes = snapshot.processes
    ranks = [process for process in processes if not process.worker]
    silent = sum(one.state == "dead" and one.told_s is not None for one in processes)
    dead = sum(process.state == "dead" for process in processes) - silent
    parts = [shown(jobs[0].name) if len(jobs) == 1 else f"{len(jobs)} jobs"]
    parts.append(processes_text(len(processes)))
    if len(ranks) < len(processes):
        parts[-1] += f", {len(processes) - len(ranks):,} of them workers"
    if dead:
        parts[-1] += f", {dead:,} dead"
    if silent:
        parts[-1] += f", {silent:,} silent"
    hosts = sorted({process.host for process in processes})
    parts.append(shown(hosts[0]) if len(hosts) == 1 else f"{len(hosts)} hosts")
    started = [process.started_ns for process in processes if process.started_ns]
    if started and len(processes) > dead + silent:
        latest = max(process.present_ns for process in processes)
        parts.append(f"for {age_text(max(latest - min(started), 0) / NS)}")
    parts.append(time.strftime("%H:%M:%S", time.localtime(snapshot.taken_ns / NS)))
    return Text("  ".join(parts), style="bold")
