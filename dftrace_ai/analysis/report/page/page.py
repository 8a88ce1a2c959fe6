"""The page: one file that fetches nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.reading.indexed.reach import local_text
from dftrace_ai.analysis.report.drawing.colours import theme_style
from dftrace_ai.analysis.report.drawing.svg import PLOT_STYLE, Plot, told
from dftrace_ai.analysis.report.files import PAGE_MARK
from dftrace_ai.analysis.report.page import tables
from dftrace_ai.analysis.report.page.plots import Plots
from dftrace_ai.analysis.report.page.script import SCRIPT
from dftrace_ai.analysis.report.page.style import PAGE_STYLE
from dftrace_ai.analysis.why.words import percent
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.report.model import LoaderFigures, ReportFigures

__all__ = ["json_text", "page_of", "short_page"]

HEIGHT: Final = re.compile(r'viewBox="0 0 [\d.]+ (\d+)')
DIGEST: Final = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
# Whatever else a page might come to hold: no other script runs, and nothing is fetched.
POLICY: Final = (
    f"default-src 'none'; script-src 'sha256-{DIGEST}'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


def json_text(figures: ReportFigures) -> str:
    """Return figures as JSON in ASCII, which says of no mark what it would do.

    Args:
        figures: of a run; a number that JSON has not got is null.
    """
    return json.dumps(_plain(asdict(figures)), default=str, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page_of(figures: ReportFigures) -> str:
    """Return the page of a report.

    Args:
        figures: what is on it.
    """
    sections = list(_sections(figures))
    links = "".join(
        f'<a href="#s-{name}">{title}</a>' for name, title, body in sections if title and body
    )
    bodies = "".join(
        f"<section><h2 id=s-{name}>{title}</h2>{body}</section>" if title else body
        for name, title, body in sections
        if body
    )
    # In a script element nothing ends it but its own end, which such a sign begins.
    embedded = json_text(figures).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            "<html lang=en><head><meta charset=utf-8>",
            PAGE_MARK,
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name=viewport content="width=device-width">',
            f"<title>{told(figures.title)}: report</title>",
            f"<style>{theme_style()}{PAGE_STYLE}</style>",
            f"<style id=plot-style>{PLOT_STYLE}</style></head><body>",
            f"<header><div><h1>{told(figures.title)}</h1>{_about(figures)}</div>",
            "<button id=theme type=button>light / dark</button></header>",
            tables.losses(figures),
            tables.verdict(figures.verdict),
            f"<nav>{links}</nav>",
            bodies,
            "<div id=tip hidden></div>",
            f'<script type="application/json" id=figures>{embedded}</script>',
            f"<script>{SCRIPT}</script>",
            "</body></html>\n",
        ]
    )


def _about(figures: ReportFigures) -> str:
    said = [f"{figures.wall_s:,.1f} s recorded"]
    if figures.began_at is not None:
        said.insert(0, f"began {local_text(figures.began_at)}")
    if figures.processes:
        count = len(figures.processes) + figures.processes_left_out
        said.append(f"{count:,} process{'' if count == 1 else 'es'}")
    if len(figures.ranks) > 1:
        said.append(counted(len(figures.ranks) + figures.ranks_left_out, "rank"))
    said.append(f"made {figures.made_at}")
    return f"<p class=faint>{', '.join(told(each) for each in said)}</p>"


def _sections(figures: ReportFigures) -> Iterator[tuple[str, str, str]]:
    plots = Plots(figures)
    if figures.steps is None:
        yield "steps", "Steps", f"<p id=no-steps>{_no_steps(figures)}</p>"
    else:
        yield "parts", "Where a step goes", _drawn(plots.parts)
        yield "steps", "Steps", _drawn(plots.steps)
        yield "slowest", "Slowest steps", tables.slowest(figures) + _drawn(plots.slowest)
    yield "ranks", "Ranks", tables.ranks(figures)
    yield "flame", "Where the time goes", _drawn(plots.flame) + tables.names(figures)
    if figures.loader is None:
        loader = "<p>No wait for data was recorded.</p>"
    else:
        loader = _waits(figures.loader) + _drawn(plots.loader)
    yield "loader", "Loader", loader if figures.steps is not None else ""
    yield "tensors", "Tensors", _tensors(figures, plots)
    if plots.counters:
        left = figures.counters_left_out
        more = f"<p class=faint>{counted(left, 'number')} more not drawn.</p>" if left else ""
        yield "counters", "Counters", _small(plots.counters) + more
    yield "facts", "The run", tables.facts(figures) + tables.files(figures)


def _waits(loader: LoaderFigures) -> str:
    said = "Nothing is known of workers."
    if loader.busy_share is not None:
        workers = counted(loader.workers, "worker")
        said = f"{workers}, busy for {percent(loader.busy_share)} of the time."
    share = percent(loader.wait_share)
    return f"<p>Rank {loader.rank} waits for data for {share} of the training. {said}</p>"


def _no_steps(figures: ReportFigures) -> str:
    why = next((one.why for one in figures.verdict.abstained if one.what == "run"), "")
    return told(f"This run has no steps to show: {why}" if why else "This run has no steps.", 500)


def _tensors(figures: ReportFigures, plots: Plots) -> str:
    found = figures.tensors
    if found is None:
        return ""
    said = f"{counted(found.layers, 'layer')}; {told(', '.join(found.statistics), 400)}."
    said = f"<p>{said if found.statistics else 'There are no statistics of tensors.'}</p>"
    odd = ""
    if found.non_finite:
        odd = (
            f"<div class=lost><strong>{counted(found.non_finite, 'value')} NaN or infinite</strong>"
            f", first {told(found.first_non_finite)}.</div>"
        )
    more = (
        f"<p class=faint>{counted(found.maps_left_out, 'pair')} of statistic and tensor more not "
        "drawn.</p>"
        if found.maps_left_out
        else ""
    )
    title = ""
    if plots.layers:
        first = found.maps[0]
        what = f"{first.statistic} of {first.tensor}" if first.tensor else first.statistic
        title = f"<p><b>{told(what)}, layer by layer</b>, those that change most</p>"
    head = said + odd + tables.stopped(found)
    return f"{head}{_drawn(plots.tensors)}{more}{title}{_small(plots.layers)}"


def _drawn(plots: Iterable[Plot]) -> str:
    return "".join(
        f"<figure><figcaption>{_buttons()}{told(plot.title)}"
        f"<small>{told(plot.caption, 500)}</small></figcaption>{plot.svg}</figure>"
        for plot in plots
    )


def _small(plots: Iterable[Plot]) -> str:
    figures = "".join(
        f"<figure>{plot.svg}<figcaption>{told(plot.caption, 200)}{_buttons()}</figcaption></figure>"
        for plot in plots
    )
    return f"<div class=plots>{figures}</div>" if figures else ""


def _buttons() -> str:
    return (
        "<span class=buttons><button type=button data-save=svg>SVG</button> "
        "<button type=button data-save=png>PNG</button></span>"
    )


def short_page(figures: ReportFigures) -> str:
    """Return what a notebook shows of a run: losses, verdict, steps; without any script.

    Args:
        figures: of the run.
    """
    plots = Plots(figures)
    shown = [*plots.parts[:1], *plots.steps[:1]]
    drawn = "".join(f"<p><b>{told(plot.title)}</b></p>{plot.svg}" for plot in shown)
    # A page of its own, for the notebook's has a style that is not ours to change.
    inner = (
        f"<!doctype html><meta charset=utf-8><style>{theme_style()}{PAGE_STYLE}{PLOT_STYLE}</style>"
        f"{tables.losses(figures)}{tables.verdict(figures.verdict)}{drawn}"
    )
    # No script may measure it there, so about as high as it is in a notebook's column.
    height = 150 + 30 * inner.count("<dt>") + sum(50 + _height_of(plot.svg) for plot in shown)
    return (
        f'<iframe sandbox="" srcdoc="{told_whole(inner)}" style="width:100%;height:{height}px;'
        'border:0"></iframe>'
    )


def _height_of(svg: str) -> int:
    found = HEIGHT.search(svg)
    return int(found[1]) if found else 0


def told_whole(page: str) -> str:
    """Return a page as the value of an attribute."""
    return page.replace("&", "&amp;").replace('"', "&quot;")
