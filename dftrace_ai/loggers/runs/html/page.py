"""Runs as one page of HTML, which needs no network and runs no script."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from dftrace_ai.loggers.runs.comparing import Comparison, compared
from dftrace_ai.loggers.runs.conditions import MISSING
from dftrace_ai.loggers.runs.html.gathering import AXIS_NAMES, MOST_PLOTS, MOST_RUNS
from dftrace_ai.loggers.runs.html.media import histograms, pictures
from dftrace_ai.loggers.runs.html.plots import COLOURS, Line, lines, told
from dftrace_ai.loggers.runs.model import FIGURES
from dftrace_ai.loggers.runs.wording import duration, figure, moment, value_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.loggers.runs.html.gathering import RunsOnPage
    from dftrace_ai.loggers.runs.model import LocalRun

__all__ = ["page_of"]

MOST_NAMES = 1000
"""Of hyper-parameters, and of metrics, in a table."""

STYLE = """
:root { color-scheme: light dark; --soft: #8884; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { padding: .2rem .7rem; text-align: left; border-bottom: 1px solid var(--soft); }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; max-width: 100%; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
figure small { font-weight: 400; }
svg { max-width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.line { fill: none; stroke-width: 1.6; } .band { opacity: .18; }
.cross { fill: none; stroke-width: 1.6; } .bar { fill: #0072b2; }
.frame { fill: none; stroke: currentColor; } .grid { stroke: var(--soft); }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em; }
.failed, .killed { color: #c33; } .running { color: #27a; } .finished { color: #283; }
img { max-width: 320px; max-height: 320px; image-rendering: pixelated; min-width: 64px; }
"""

# What is allowed, whatever else a page might come to hold: no script, no address.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

TITLES = {"iteration": "over iterations", "epoch": "over epochs", "time": "over seconds"}


def page_of(title: str, found: RunsOnPage) -> str:
    """Make the page: statuses, params, what metrics came to, plots, histograms, pictures.

    Args:
        title: what the runs are of.
        found: the runs, in the order in which they are shown.
    """
    runs = list(found.runs)[:MOST_RUNS]
    side = compared(runs, found.metrics)
    notes = list(found.runs.notes)
    if len(found.runs) > MOST_RUNS:
        notes.insert(0, f"{counted(len(found.runs) - MOST_RUNS, 'run')} more are not shown")
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name=viewport content="width=device-width">',
        f"<title>{told(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{told(title)}</h1><p>{counted(len(runs), 'run')}, {moment(time.time())}</p>",
        *(f"<p class=note>{told(note)}</p>" for note in notes),
        _statuses(runs),
        _params(side),
        _figures(side),
        *_plots(runs, found),
        histograms(found),
        pictures(found),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _statuses(runs: Sequence[LocalRun]) -> str:
    heads = ("run", "status", "project", "group", "tags", "started", "duration", "step", "rows")
    rows = []
    for number, run in enumerate(runs):
        cells = (run.project, run.group, ", ".join(run.tags), moment(run.started_s))
        figures = duration(run.duration_s), "" if run.step < 0 else run.step, f"{run.rows:,}"
        rows.append(
            f"<tr><td>{_swatch(number)}{told(run.key)}</td>"
            f'<td class="{run.status}">{run.status}</td>'
            + "".join(f"<td>{told(cell)}</td>" for cell in cells)
            + "".join(f"<td class=figure>{told(cell)}</td>" for cell in figures)
            + "</tr>"
        )
    return _table("Runs", heads, rows, "statuses", figures=3)


def _params(side: Comparison) -> str:
    if len(side.runs) == 1:
        params = {name: [value] for name, value in sorted(side.runs[0].params.items())}
    else:
        params = side.params
    rows = [
        f"<tr><td>{told(name)}</td>"
        + "".join(f"<td>{'' if one is MISSING else told(value_text(one))}</td>" for one in values)
        + "</tr>"
        for name, values in list(params.items())[:MOST_NAMES]
    ]
    table = _table("Params", ("", *(run.key for run in side.runs)), rows, "params")
    if side.alike and len(side.runs) > 1:
        shared = side.runs[0].params
        same = "".join(
            f"<tr><td>{told(name)}</td><td>{told(value_text(shared[name]))}</td></tr>"
            for name in sorted(set(shared) - set(side.params))[:MOST_NAMES]
        )
        table += (
            f"<details><summary>{counted(side.alike, 'param')} alike in all</summary>"
            f"<table>{same}</table></details>"
        )
    return table


def _figures(side: Comparison) -> str:
    rows = []
    for name, all_figures in list(side.metrics.items())[:MOST_NAMES]:
        for number, which in enumerate(FIGURES):
            first = told(name) if not number else ""
            cells = [
                "" if figures is None else figure(getattr(figures, which))
                for figures in all_figures
            ]
            rows.append(
                f"<tr><td>{first}</td><td>{which}</td>"
                + "".join(f"<td class=figure>{told(cell)}</td>" for cell in cells)
                + "</tr>"
            )
    heads = ("", "", *(run.key for run in side.runs))
    return _table("Metrics", heads, rows, "figures", figures=len(side.runs))


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


def _table(
    title: str, heads: Sequence[str], rows: Sequence[str], name: str, figures: int = 0
) -> str:
    if not rows:
        return ""
    first = len(heads) - figures
    named = "".join(
        f"<th{' class=figure' if number >= first else ''}>{told(head)}</th>"
        for number, head in enumerate(heads)
    )
    return (
        f'<h2>{title}</h2><div class=wide><table id="{name}"><tr>{named}</tr>'
        f"{''.join(rows)}</table></div>"
    )


def _swatch(number: int) -> str:
    colour = COLOURS[number % len(COLOURS)]
    return f'<span class=swatch style="background:{colour}"></span>'
