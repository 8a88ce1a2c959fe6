"""How the page looks: on a screen in both themes, and on paper."""

from __future__ import annotations

__all__ = ["PAGE_STYLE"]

PAGE_STYLE = """
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.25rem; max-width: 980px;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--grid); }
p { margin: .4rem 0; } a { color: var(--link); }
header { display: flex; gap: 1rem; justify-content: space-between; align-items: start; }
.faint { color: var(--faint); }
nav { margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
.lost { background: var(--loud-paper); color: var(--ink); border-left: 5px solid var(--loud);
  padding: .6rem 1rem; margin: 1rem 0; overflow-wrap: anywhere; }
.lost strong { color: var(--loud); } .lost ul { margin: .3rem 0; padding-left: 1.2rem; }
.whole { color: var(--good); font-weight: 600; }
.verdict { background: var(--card); border-left: 5px solid var(--link); padding: .7rem 1rem; }
.verdict.critical { border-color: var(--loud); } .verdict.warning { border-color: #e69f00; }
.verdict h3 { margin: 0; font-size: 1.05rem; }
.verdict .what { font-size: 1.05rem; }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .15rem .5rem; margin: .5rem 0 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: 13px; }
th, td { padding: .18rem .6rem; text-align: left; border-bottom: 1px solid var(--grid);
  overflow-wrap: anywhere; vertical-align: top; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td { min-width: 3rem; } td.key { min-width: 5rem; }
#names td.key { min-width: 8rem; } #names td:nth-child(2) { min-width: 9rem; }
th { white-space: nowrap; } td code { white-space: nowrap; }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; user-select: all; }
.wide { overflow-x: auto; }
.plots { display: flex; flex-wrap: wrap; gap: .6rem; }
figure { margin: .8rem 0; width: 100%; break-inside: avoid; }
.plots figure { margin: 0; width: auto; max-width: 100%; }
.plots figcaption { font-weight: 400; font-size: 11px; max-width: 296px; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
figcaption small { font-weight: 400; font-size: 12px; color: var(--faint); display: block; }
.buttons { float: right; opacity: .55; } figure:hover .buttons, .buttons:focus-within
  { opacity: 1; }
.plots .buttons { position: absolute; right: 2px; bottom: 2px; opacity: 0; float: none; }
.plots figure { position: relative; }
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
  h2 { break-after: avoid; } tr, .verdict, .lost { break-inside: avoid; }
  .plots figure { width: 31.5%; } .wide { overflow: visible; } td code { font-size: 7.5pt; }
  table { font-size: 8.5pt; } th, td { padding: .1rem .3rem; } td { min-width: 1rem; }
}
"""
