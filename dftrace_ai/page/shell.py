"""The shell of a page: its head, policy, style and script, and tables; it fetches nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from dftrace_ai.page.svg import PLOT_STYLE, theme_style, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUTTONS: Final = (
    "<span class=buttons><button type=button data-save=svg>SVG</button> "
    "<button type=button data-save=png>PNG</button></span>"
)

STYLE: Final = """
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.25rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--grid); }
p { margin: .4rem 0; } a { color: var(--link); }
header { display: flex; gap: 1rem; justify-content: space-between; align-items: start; }
.faint { color: var(--faint); }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: 13px; }
th, td { padding: .18rem .6rem; text-align: left; border-bottom: 1px solid var(--grid);
  overflow-wrap: anywhere; vertical-align: top; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td { min-width: 3rem; } td.key { min-width: 5rem; }
th { white-space: nowrap; } td code { white-space: nowrap; }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; user-select: all; }
.wide { overflow-x: auto; }
.plots { display: flex; flex-wrap: wrap; gap: .6rem; }
figure { margin: .8rem 0; width: 100%; break-inside: avoid; }
.plots figure { margin: 0; width: auto; max-width: 100%; position: relative; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
figcaption small { font-weight: 400; font-size: 12px; color: var(--faint); }
.buttons { float: right; opacity: .55; } figure:hover .buttons, .buttons:focus-within
  { opacity: 1; }
button { font: 11px system-ui, sans-serif; color: var(--ink); background: var(--card);
  border: 1px solid var(--grid); border-radius: 3px; padding: .1rem .4rem; cursor: pointer; }
svg { max-width: 100%; height: auto; display: block; }
svg .name { pointer-events: none; }
.swatch { display: inline-block; width: .75em; height: .75em; margin-right: .4em; }
#tip { position: fixed; z-index: 9; pointer-events: none; white-space: pre-line; font-size: 12px;
  max-width: 30rem; overflow-wrap: anywhere; background: var(--ink); color: var(--paper);
  padding: .25rem .5rem; border-radius: 3px; }
@page { size: A4; margin: 12mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; print-color-adjust: exact;
    -webkit-print-color-adjust: exact; }
  .buttons, #theme, nav, #tip { display: none !important; }
  h2 { break-after: avoid; } tr { break-inside: avoid; }
  .plots figure { width: 31.5%; } .wide { overflow: visible; } td code { font-size: 7.5pt; }
  table { font-size: 8.5pt; } th, td { padding: .1rem .3rem; } td { min-width: 1rem; }
}
"""

# Names from a trace only ever become text of a node; nothing here makes HTML of them.
SCRIPT = r"""'use strict';
(() => {
  const figures = JSON.parse(document.getElementById('figures').textContent);
  const root = document.documentElement;
  const tip = document.getElementById('tip');
  const said = (value) => value === null ? 'no value' : String(value);

  // A heat map has a path for each colour; which cell it is, the place of the pointer says.
  function cellOf(svg, event) {
    const heat = figures.tensors.maps[Number(svg.dataset.heat)];
    const at = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(svg.getScreenCTM().inverse());
    const column = Math.floor((at.x - Number(svg.dataset.left)) / Number(svg.dataset.wide));
    const row = Math.floor((at.y - Number(svg.dataset.top)) / Number(svg.dataset.tall));
    if (column < 0 || column >= heat.first.length || row < 0 || row >= heat.layers.length) {
      return '';
    }
    const first = heat.first[column], last = heat.last[column];
    const when = first === last ? `iteration ${first}` : `iterations ${first} to ${last}`;
    return `${heat.layers[row]}\n${when}\n${heat.statistic}: ${said(heat.values[row][column])}`;
  }

  document.addEventListener('pointermove', (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const named = target && target.closest('[data-tip]');
    const heat = target && target.closest('svg[data-heat]');
    const words = named ? named.dataset.tip : heat ? cellOf(heat, event) : '';
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - box.width - 6))}px`;
    const below = event.clientY + 16, above = event.clientY - box.height - 8;
    tip.style.top = `${below + box.height > innerHeight ? above : below}px`;
  });
  document.addEventListener('pointerleave', () => { tip.hidden = true; });

  const isDark = () => getComputedStyle(root).colorScheme.includes('dark');
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
  });

  // A plot as it is seen now, with the style and the colours of the theme inside.
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
    const now = getComputedStyle(root);
    // Programs other than browsers know no variables.
    const settled = (text) => text.replace(/var\((--[a-z-]+)\)/g,
        (_, name) => now.getPropertyValue(name).trim());
    style.textContent = settled(document.getElementById('plot-style').textContent);
    for (const name of ['fill', 'stroke']) {
      for (const one of copy.querySelectorAll(`[${name}^="var("]`)) {
        one.setAttribute(name, settled(one.getAttribute(name)));
      }
    }
    const paper = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    paper.setAttribute('width', '100%');
    paper.setAttribute('height', '100%');
    paper.setAttribute('fill', settled('var(--paper)'));
    copy.prepend(style, paper);
    return new XMLSerializer().serializeToString(copy);
  }

  function pngOf(svg, scale) {
    return new Promise((done, failed) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement('canvas');
        canvas.width = svg.viewBox.baseVal.width * scale;
        canvas.height = svg.viewBox.baseVal.height * scale;
        canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => blob ? done(blob) : failed(new Error('too large a picture')));
      };
      image.onerror = () => failed(new Error('the plot cannot be drawn'));
      image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(standalone(svg));
    });
  }

  function save(blob, name) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  document.addEventListener('click', async (event) => {
    const button = event.target instanceof Element && event.target.closest('button[data-save]');
    if (!button) return;
    const svg = button.closest('figure').querySelector('svg');
    const name = svg.id.replace(/^plot-/, '');
    if (button.dataset.save === 'svg') {
      save(new Blob([standalone(svg)], {type: 'image/svg+xml'}), `${name}.svg`);
    } else {
      save(await pngOf(svg, 2), `${name}.png`);
    }
  });

  window.dftraceReport = {figures, standalone, pngOf};
})();
"""


def html_page(
    title: str, about: str, body: Iterable[str], *, tab: str, style: str, mark: str, figures: str
) -> str:
    """Return a page; with figures, which are JSON, it has the script that shows and saves them.

    Title and tab may be any text; the mark stands in the head, `about` below the title.
    """
    policy, images, button, scripts = "", "data:", "", []
    if figures:
        digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
        policy, images = f"script-src 'sha256-{digest}'; ", "data: blob:"
        button = "<button id=theme type=button>light / dark</button>"
        # In a script element nothing ends it but its own end, which such a sign begins.
        embedded = figures.replace("<", "\\u003c")
        scripts = [
            "<div id=tip hidden></div>",
            f'<script type="application/json" id=figures>{embedded}</script>',
            f"<script>{SCRIPT}</script>",
        ]
    # Whatever else a page might come to hold: no other script runs, and nothing is fetched.
    policy = f"default-src 'none'; {policy}style-src 'unsafe-inline'; img-src {images}"
    parts = [
        "<!doctype html>",
        "<html lang=en><head><meta charset=utf-8>",
        mark,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name=viewport content="width=device-width">',
        f"<title>{told(tab)}</title>",
        f"<style>{theme_style()}{STYLE}{style}</style>",
        f"<style id=plot-style>{PLOT_STYLE}</style></head><body>",
        f"<header><div><h1>{told(title)}</h1>{about}</div>{button}</header>",
        *body,
        *scripts,
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def inner_page(body: str, style: str) -> str:
    """Return a page for a frame in another one, without any script."""
    return (
        f"<!doctype html><meta charset=utf-8><style>{theme_style()}{STYLE}{style}{PLOT_STYLE}"
        f"</style>{body}"
    )


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """Return a table of cells that are escaped; so many columns at the end hold figures."""
    first = len(heads) - figures

    def cells(kind: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{kind}{' class=figure' if at >= first else ' class=key' if not at else ''}>"
            f"{value}</{kind}>"
            for at, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f'<div class=wide><table id="{name}">{head}<tbody>{body}</tbody></table></div>'


def swatch(colour: str) -> str:
    """Return the sign of a colour, to stand before a name."""
    return f'<span class=swatch style="background:{colour}"></span>'
