"""Runs as one page of HTML, which needs no network and runs no script."""

from __future__ import annotations

import math
import time
from base64 import b64encode
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.loggers.runs.comparing import Comparison, compared
from dftrace_ai.loggers.runs.conditions import MISSING
from dftrace_ai.loggers.runs.html.gathering import AXIS_NAMES, MOST_PLOTS, MOST_RUNS, MOST_SHOWN
from dftrace_ai.loggers.runs.log_files import kept_bytes
from dftrace_ai.loggers.runs.model import FIGURES
from dftrace_ai.loggers.runs.wording import duration, figure, moment, value_text
from dftrace_ai.page.palette import DASHES, LINES
from dftrace_ai.page.shell import html_page, swatch, table
from dftrace_ai.page.svg import Axis, Box, Place, cross, frame, line_and_band, svg_of, text, told
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.loggers.runs.html.gathering import Dot, RunsOnPage
    from dftrace_ai.loggers.runs.model import LocalRun

__all__ = ["COLOURS", "Line", "bars", "lines", "page_of"]

MOST_NAMES: Final = 1000
"""Of hyper-parameters, and of metrics, in a table."""
PICTURE_BYTES: Final = 16 << 20
PAGE_BYTES: Final = 64 << 20
MOST_PIXELS: Final = 1 << 26
PNG, GIF = b"\x89PNG\r\n\x1a\n", b"GIF8"

WIDTH, HEIGHT = 560, 230
PLOT: Final = Box(64, 10, WIDTH - 12, HEIGHT - 26)
BARS_WIDTH, BARS_HEIGHT = 260, 120

# Alike in both themes, as another run's colour is the first of a dark page.
COLOURS: Final = ("#0072b2", *LINES[1:], "#7f7f7f")

STYLE: Final = """
.plots { gap: 1rem; }
svg .cross { fill: none; stroke-width: 1.6; } svg .bar { fill: #0072b2; }
.failed, .killed { color: #c33; } .running { color: #27a; } .finished { color: #283; }
img { max-width: 320px; max-height: 320px; image-rendering: pixelated; min-width: 64px; }
"""

TITLES: Final = {"iteration": "over iterations", "epoch": "over epochs", "time": "over seconds"}


class Line(NamedTuple):
    """What is drawn of a run: its number among the runs, its name, and dots by ascending step."""

    number: int
    name: str
    dots: Sequence[Dot]


def page_of(title: str, found: RunsOnPage) -> str:
    """Make the page of runs, in their order: statuses, params, metrics, plots, pictures."""
    runs = list(found.runs)[:MOST_RUNS]
    side = compared(runs, found.metrics)
    notes = list(found.runs.notes)
    if len(found.runs) > MOST_RUNS:
        notes.insert(0, f"{counted(len(found.runs) - MOST_RUNS, 'run')} more are not shown")
    body = [
        *(f"<p class=note>{told(note)}</p>" for note in notes),
        _statuses(runs),
        _params(side),
        _figures(side),
        *_plots(runs, found),
        _histograms(found),
        _pictures(found),
    ]
    about = f"<p>{counted(len(runs), 'run')}, {moment(time.time())}</p>"
    return html_page(title, about, body, tab=title, style=STYLE, mark="", figures="")


def _statuses(runs: Sequence[LocalRun]) -> str:
    heads = ("run", "status", "project", "group", "tags", "started", "duration", "step", "rows")
    rows = []
    for number, run in enumerate(runs):
        cells = (
            *(run.project, run.group, ", ".join(run.tags), moment(run.started_s)),
            *(duration(run.duration_s), "" if run.step < 0 else run.step, f"{run.rows:,}"),
        )
        name = swatch(COLOURS[number % len(COLOURS)]) + told(run.key)
        rows.append([name, f"<span class={run.status}>{run.status}</span>", *map(told, cells)])
    return _titled("Runs", "statuses", heads, rows, figures=3)


def _params(side: Comparison) -> str:
    if len(side.runs) == 1:
        params = {name: [value] for name, value in sorted(side.runs[0].params.items())}
    else:
        params = side.params
    rows = [
        [told(name), *("" if value is MISSING else told(value_text(value)) for value in values)]
        for name, values in list(params.items())[:MOST_NAMES]
    ]
    shown = _titled("Params", "params", ("", *(told(run.key) for run in side.runs)), rows)
    if side.alike and len(side.runs) > 1:
        shared = side.runs[0].params
        names = sorted(set(shared) - set(side.params))[:MOST_NAMES]
        same = table("alike", (), ([told(name), told(value_text(shared[name]))] for name in names))
        shown += (
            f"<details><summary>{counted(side.alike, 'param')} alike in all</summary>"
            f"{same}</details>"
        )
    return shown


def _figures(side: Comparison) -> str:
    rows = []
    for name, of_runs in list(side.metrics.items())[:MOST_NAMES]:
        for number, which in enumerate(FIGURES):
            cells = ("" if one is None else figure(getattr(one, which)) for one in of_runs)
            rows.append([told(name) if not number else "", which, *map(told, cells)])
    heads = ("", "", *(told(run.key) for run in side.runs))
    return _titled("Metrics", "figures", heads, rows, figures=len(side.runs))


def _titled(
    title: str, name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], figures: int = 0
) -> str:
    return f"<h2>{title}</h2>{table(name, heads, rows, figures)}" if rows else ""


def _plots(runs: Sequence[LocalRun], found: RunsOnPage) -> Iterable[str]:
    for axis, plots in groupby(found.plots, lambda plot: plot[0][0]):
        title = TITLES[AXIS_NAMES[axis]]
        yield f"<h2>{title.capitalize()}</h2><div class=plots>"
        for (_, name), by_run in plots:
            drawn = [
                Line(number, run.key, by_run[run.key].dots())
                for number, run in enumerate(runs)
                if run.key in by_run
            ]
            yield (
                f"<figure><figcaption>{told(name)} <small>{title}</small></figcaption>"
                f"{lines(name, drawn)}</figure>"
            )
        yield "</div>"
    if found.plot_count > MOST_PLOTS:
        yield f"<p>{counted(found.plot_count - MOST_PLOTS, 'plot')} more; --metric chooses</p>"


def lines(name: str, drawn: Sequence[Line]) -> str:
    """Draw a metric over its steps, a line for each run, with crosses for what is not finite."""
    dots = [dot for line in drawn for dot in line.dots]
    across = Axis([dot.x for dot in dots], PLOT.left, PLOT.right)
    up = Axis([y for dot in dots for y in (dot.low, dot.high)], PLOT.bottom, PLOT.top)
    parts = [frame(PLOT, across, up)]
    for line in drawn:
        colour = COLOURS[line.number % len(COLOURS)]
        dash = DASHES[line.number // len(COLOURS) % len(DASHES)]
        parts.append(f"<g><title>{told(line.name)}</title>")
        parts += line_and_band(_places(line.dots, across, up), colour, dash)
        parts += [
            cross(
                across.at(dot.x),
                PLOT.top + 3,
                f'class="cross" stroke="{colour}"',
                f"{dot.non_finite} not finite at {dot.x:.0f}",
            )
            for dot in line.dots
            if dot.non_finite
        ]
        parts.append("</g>")
    return svg_of('class="plot"', name, parts, width=WIDTH, height=HEIGHT)


def _places(dots: Sequence[Dot], across: Axis, up: Axis) -> Iterator[Place | None]:
    for dot in dots:
        if dot.y is None or dot.low is None or dot.high is None or not math.isfinite(dot.y):
            yield None
        else:
            yield Place(across.at(dot.x), up.at(dot.low), up.at(dot.y), up.at(dot.high))


def bars(name: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Draw how many values lie in each bin; there is one ascending edge more than counts."""
    across = Axis(edges, 4, BARS_WIDTH - 4)
    floor, most = BARS_HEIGHT - 16, max(max(counts, default=0), 1)
    parts = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        x, height = across.at(low), count / most * (floor - 4)
        width = max(across.at(high) - x, 0.5)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{floor - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"><title>{count} from {low:.4g} to {high:.4g}</title></rect>'
        )
    for x, anchor, edge in ((4, "start", edges[0]), (BARS_WIDTH - 4, "end", edges[-1])):
        parts.append(text(x, BARS_HEIGHT - 3, f"{edge:.4g}", "", anchor))
    return svg_of('class="bars"', name, parts, width=BARS_WIDTH, height=BARS_HEIGHT)


def _histograms(found: RunsOnPage) -> str:
    """Draw the histograms of runs."""
    parts = [
        f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step}</small></figcaption>"
        f"{bars(name, *bins)}</figure>"
        for (name, run), some in found.histograms
        for step, bins in some.chosen()
    ][:MOST_SHOWN]
    return f"<h2>Histograms</h2><div class=plots>{''.join(parts)}</div>" if parts else ""


def _pictures(found: RunsOnPage) -> str:
    """Show the pictures and animations of runs, and name what else was kept with them."""
    folders = {run.key: run.path for run in found.runs}
    chosen = [
        (name, run, step, picture)
        for (name, run), some in found.pictures
        for step, picture in some.chosen()
    ][:MOST_SHOWN]
    parts: list[str] = []
    left = PAGE_BYTES
    for name, run, step, picture in chosen:
        data = kept_bytes(folders[run], picture.file, min(PICTURE_BYTES, left))
        source = None if data is None else _source(data)
        left -= len(data or b"")
        if source is None:
            shown = f"<p>{told(picture.kind)}: {told(picture.file)}</p>"
        else:
            shown = f'<img alt="{told(name)}" src="{source}">'
        parts.append(
            f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step} {picture.caption}"
            f"</small></figcaption>{shown}</figure>"
        )
    others = _others(found)
    return (f"<h2>Pictures</h2><div class=plots>{''.join(parts)}</div>" if parts else "") + others


def _others(found: RunsOnPage) -> str:
    items = "".join(
        f"<li>{told(run)}: {told(kind)} {told(name)}, {counted(count, 'time')}, last at step "
        f"{step}</li>"
        for (run, kind, name), (count, step) in found.others
    )
    return f"<h2>What else was kept</h2><ul>{items}</ul>" if items else ""


def _source(data: bytes) -> str | None:
    """Return the address that holds a picture whole; None where it is none, or vast."""
    if data.startswith(PNG) and len(data) > 24:
        kind = "png"
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith(GIF) and len(data) > 10:
        kind = "gif"
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    else:
        return None
    if width * height > MOST_PIXELS:
        return None
    return f"data:image/{kind};base64,{b64encode(data).decode()}"
