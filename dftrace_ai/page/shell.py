"""The shell of a page: its head, policy, style and script, and tables; it fetches nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.page.palette import static_text
from dftrace_ai.page.svg import PLOT_STYLE, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUTTONS: Final = (
    "<span class=buttons><button type=button data-save=svg>SVG</button> "
    "<button type=button data-save=png>PNG</button></span>"
)

THEME_BUTTON: Final = "<button id=theme type=button>light / dark</button>"

STYLE: Final = """
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.25rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--grid); }
p { margin: .4rem 0; } a { color: var(--link); }
header { display: flex; gap: 1rem; justify-content: space-between; align-items: start; }
nav { margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
.faint { color: var(--faint); }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: 13px; }
th, td { padding: .18rem .6rem; text-align: left; border-bottom: 1px solid var(--grid);
  overflow-wrap: anywhere; vertical-align: top; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td { min-width: 3rem; } td.key { min-width: 5rem; }
th { white-space: nowrap; } td code { white-space: nowrap; }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; user-select: all; }
.plots { display: flex; flex-wrap: wrap; gap: .6rem; }
figure { margin: .8rem 0; width: 100%; break-inside: avoid; }
.plots figure { margin: 0; width: auto; max-width: 100%; position: relative; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
figcaption small { font-weight: 400; font-size: 12px; color: var(--faint); }
.buttons { float: right; }
.buttons button { color: var(--faint); } .buttons button:hover { color: var(--ink); }
button { font: 11px system-ui, sans-serif; color: var(--ink); background: var(--card);
  border: 1px solid var(--grid); border-radius: 3px; padding: .1rem .4rem; cursor: pointer; }
svg { max-width: 100%; height: auto; display: block; }
svg .name { pointer-events: none; }
svg.narrow { display: none; width: 100%; }
@media screen { svg.paper, .aside { display: none; } }
svg g.told .line, svg g[data-tip]:hover .line { stroke-width: 3.5; }
svg:has(g.told) g[data-tip]:not(.told) { opacity: .25; }
svg .here { fill: none; stroke: var(--ink); stroke-width: 1.5; pointer-events: none; }
@media screen and (max-width: 680px) {
  body { padding: .7rem .6rem; } header { gap: .5rem; }
  figure.both > svg { display: none; } figure.both > svg.narrow { display: block; }
  .plots figure { width: 100%; } .plots svg { width: 100%; }
  button { min-height: 32px; padding: .2rem .6rem; font-size: 13px; white-space: nowrap; }
  td .long { min-width: 13rem; } .wide td { overflow-wrap: break-word; }
}
.swatch { display: inline-block; width: .75em; height: .75em; margin-right: .4em; }
#tip { position: fixed; z-index: 9; pointer-events: none; white-space: pre-line; font-size: 12px;
  max-width: 30rem; overflow-wrap: anywhere; background: var(--ink); color: var(--paper);
  padding: .25rem .5rem; border-radius: 3px; }
@page { size: A4; margin: 12mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; print-color-adjust: exact;
    -webkit-print-color-adjust: exact; }
  .buttons, #theme, nav, #tip, .choose { display: none !important; }
  h2 { break-after: avoid; } tr { break-inside: avoid; }
  .plots figure { width: 31.5%; } td code { font-size: 7.5pt; }
  .wide { overflow: visible; background: none; }
  table { font-size: 8.5pt; } th, td { padding: .1rem .3rem; } td { min-width: 1rem; }
}
"""

SHEETS: Final = ("palette.css", "pieces.css")
# Plain scripts in one element: each needs those before it.
SCRIPTS: Final = ("tables.js", "page.js")
OF_REPORT: Final = ("words.js", "tables.js", "flame.js", "stacks.js", "page.js", "report.js")


def _styles() -> str:
    return "".join(map(static_text, SHEETS))


def html_page(
    title: str, about: str, body: Iterable[str], *, tab: str, style: str, mark: str, figures: str
) -> str:
    """Return a page; with figures, which are JSON, it has the script that shows and saves them.

    Title and tab may be any text; the mark stands in the head, `about` below the title.
    """
    script = "".join(map(static_text, OF_REPORT if figures else SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    images = "data: blob:" if figures else "data:"
    # In a script element nothing ends it but its own end, which such a sign begins.
    embedded = figures.replace("<", "\\u003c")
    data = f'<script type="application/json" id=figures>{embedded}</script>' if figures else ""
    # Whatever else a page might come to hold: no other script runs, and nothing is fetched.
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"img-src {images}"
    )
    parts = [
        "<!doctype html>",
        "<html lang=en><head><meta charset=utf-8>",
        mark,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name=viewport content="width=device-width">',
        f"<title>{told(tab)}</title>",
        f"<style>{_styles()}{STYLE}{style}</style>",
        f"<style id=plot-style>{PLOT_STYLE}</style></head><body>",
        f"<header><div><h1>{told(title)}</h1>{about}</div>{THEME_BUTTON}</header>",
        *body,
        "<div id=tip hidden></div><p id=heard class=heard aria-live=polite></p>",
        data,
        f"<script>{script}</script>",
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def inner_page(body: str, style: str) -> str:
    """Return a page for a frame in another one, without any script."""
    return (
        f"<!doctype html><meta charset=utf-8><style>{_styles()}{STYLE}{style}{PLOT_STYLE}"
        f"</style>{body}"
    )


class Figure(NamedTuple):
    """A cell that is sorted by a number and not by its text; None stands last."""

    text: str
    value: float | None


def table(
    name: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Figure]],
    figures: int = 0,
    *,
    sorts: bool = False,
) -> str:
    """Return a table of cells that are escaped; so many columns at the end hold figures."""
    first = len(heads) - figures

    def cells(kind: str, values: Sequence[str | Figure]) -> str:
        return "".join(
            f"<{kind}{' class=figure' if at >= first else ' class=key' if not at else ''}"
            f"{_inside(value)}</{kind}>"
            for at, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    kind = " class=sorts" if sorts else ""
    return f'<div class=wide><table id="{name}"{kind}>{head}<tbody>{body}</tbody></table></div>'


def _inside(cell: str | Figure) -> str:
    if isinstance(cell, str):
        return f">{cell}"
    return f' data-value="{"" if cell.value is None else format(cell.value, ".10g")}">{cell.text}'


def swatch(colour: str) -> str:
    """Return the sign of a colour, to stand before a name."""
    return f'<span class=swatch style="background:{colour}"></span>'
