"""Writes the results: a text, and the tables that docs/performance publishes."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from .series import Bench, Interval, Judged, Series, interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIGURES = "bench,contestant,unit,median,low,high,cpu,ratio,ratio to"
TARGETS = "target,measured,wanted,verdict"


def number(value: float) -> str:
    """Return a figure with about four significant digits, thousands grouped."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size < 1 else f"{value:.2f}"


def ratio_text(value: Interval) -> str:
    """Return a ratio with its interval; small ratios as 1/n, the way targets are written."""
    if 0 < value.median < 0.05 and value.low > 0:
        return f"1/{1 / value.median:.0f} [1/{1 / value.high:.0f} .. 1/{1 / value.low:.0f}]"
    digits = 3 if value.median < 10 else 1
    return f"{value.median:.{digits}f} [{value.low:.{digits}f} .. {value.high:.{digits}f}]"


def judged_text(judged: Judged) -> str:
    """Return what a target's ratio or figure came to."""
    if judged.value is None:
        return "-"
    if judged.target.against:
        return ratio_text(judged.value)
    value = judged.value
    if value.low == value.high:
        return number(value.median)
    return f"{number(value.median)} [{number(value.low)} .. {number(value.high)}]"


def verdict_text(judged: Judged) -> str:
    """Return met or missed; "narrowly" where the interval holds the limit."""
    if judged.verdict == "unmeasured":
        return "-"
    reaches = judged.verdict == "met" and not judged.clear
    return "met, narrowly" if reaches else judged.verdict


def _cells(bench: Bench, series: Series) -> list[str]:
    if not series.there:
        return [series.contestant, "-", "", "", ""]
    value = interval(series.samples)
    spread = "" if value.low == value.high else f"{number(value.low)} .. {number(value.high)}"
    cpu = number(median(series.cpu_samples)) if series.cpu_samples else ""
    ratio = ""
    if bench.reference and series.contestant != bench.reference:
        found = bench.ratio(series.contestant, bench.reference)
        ratio = f"{found.median:.2f}" if found else ""
    return [series.contestant, number(value.median), spread, cpu, ratio]


def _rows(bench: Bench) -> list[list[str]]:
    """Return a bench's table with its head, without the columns that nobody fills."""
    head = ["", bench.unit, "95 % interval", "CPU, all threads", f"x {bench.reference}"]
    body = [_cells(bench, series) for series in bench.series]
    kept = [column for column in range(len(head)) if any(row[column] for row in body)]
    return [[row[column] for column in kept] for row in [head, *body]]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    return lines


def target_rows(benches: list[Bench]) -> list[list[str]]:
    """Return a row per target: bench, what was found, what was wanted, verdict."""
    return [
        [
            f"{bench.title}: {judged.target.subject}",
            judged_text(judged),
            judged.wanted,
            verdict_text(judged),
        ]
        for bench in benches
        for judged in bench.judged()
    ]


def text(benches: list[Bench], machine: dict[str, str], missing: dict[str, str]) -> str:
    """Return everything as aligned plain text, the targets last."""
    lines = [f"{name}: {value}" for name, value in machine.items()]
    for why in dict.fromkeys(missing.values()):
        names = ", ".join(name for name, reason in missing.items() if reason == why)
        lines.append(f"not measured: {names} ({why})")
    for bench in benches:
        lines += ["", bench.title.replace("`", ""), *_aligned(_rows(bench))]
        lines += [f"  {note}" for note in bench.notes]
    head = ["target", "measured", "wanted", ""]
    rows = [[cell.replace("`", "") for cell in row] for row in target_rows(benches)]
    return "\n".join([*lines, "", *_aligned([head, *rows])]) + "\n"


def _figure_rows(bench: Bench) -> Iterator[list[str]]:
    for series in bench.series:
        cells = (cell.replace(",", "") for cell in _cells(bench, series)[1:])
        median_text, spread, cpu, ratio = cells
        low, _, high = spread.partition(" .. ")
        named = [bench.title, series.contestant, bench.unit]
        yield [*named, median_text, low, high, cpu, ratio, bench.reference]


def _write_csv(path: Path, head: str, rows: Iterable[list[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head.split(","))
        writer.writerows([cell.replace("`", "") for cell in row] for row in rows)


def write(
    directory: Path, benches: list[Bench], machine: dict[str, str], missing: dict[str, str]
) -> None:
    """Write results.txt, figures.csv and targets.csv."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.txt").write_text(text(benches, machine, missing))
    figures = (row for bench in benches for row in _figure_rows(bench))
    _write_csv(directory / "figures.csv", FIGURES, figures)
    _write_csv(directory / "targets.csv", TARGETS, target_rows(benches))
