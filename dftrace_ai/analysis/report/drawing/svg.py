"""A plot as SVG text: its frame, its style, and names that others chose as harmless text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.drawing.colours import in_light
from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "MADE_BY",
    "PLOT_STYLE",
    "WIDTH",
    "Plot",
    "fitted",
    "plot_of",
    "short_names",
    "text",
    "tip",
    "told",
]

WIDTH: Final = 920
MADE_BY: Final = "dftrace report"
NAME_LETTERS: Final = 200
LETTER_WIDTH: Final = 6.3
ATTRIBUTE: Final = re.compile(r'="var\(--[a-z-]+\)"')

PLOT_STYLE: Final = """
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .small { font-size: 9px; }
svg .strong { font-weight: 600; }
svg .soft { fill: var(--faint); }
svg .inside { fill: #000; }
svg .light { fill: #fff; }
svg .grid { stroke: var(--grid); fill: none; }
svg .frame { stroke: var(--faint); fill: none; }
svg .line { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
svg .band { opacity: var(--band); stroke: none; }
svg .edge { stroke: var(--paper); stroke-width: .6; }
svg .mark { stroke: var(--ink); stroke-dasharray: 3 3; fill: none; }
svg .shade { fill: var(--shade); }
svg .odd { fill: none; stroke: var(--odd); stroke-width: 1.8; }
svg .hit { fill: none; pointer-events: all; }
svg .plain { fill: var(--none); stroke: var(--faint); stroke-width: .5; }
"""


@dataclass(frozen=True)
class Plot:
    """A drawing.

    Attributes:
        name: short, of small letters, digits and hyphens: of the element and of a file.
        title: what it shows.
        caption: how it is read.
        svg: the element.
    """

    name: str
    title: str
    caption: str
    svg: str

    def alone(self) -> str:
        """Return it as a file of its own, with its style."""
        # No name can be taken for an attribute: its quotation marks are escaped.
        svg = ATTRIBUTE.sub(lambda found: in_light(found[0]), self.svg)
        head, _, body = svg.partition(">")
        paper = in_light('<rect width="100%" height="100%" fill="var(--paper)"/>')
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MADE_BY} -->\n{head}>'
            f"<style>{in_light(PLOT_STYLE)}</style>{paper}{body}\n"
        )


def told(name: object, letters: int = NAME_LETTERS) -> str:
    """Return a text that somebody else chose as text of a page, on one line and no tags in it."""
    return escape(escaped(shortened(str(name), letters)))


def fitted(name: str, room: float) -> str:
    """Return as much of a name as there is room for, escaped; empty where it says nothing."""
    letters = int(room / LETTER_WIDTH)
    plain = escaped(shortened(name, NAME_LETTERS))
    if len(plain) > letters and letters < 4:
        return ""
    return escape(shortened(plain, letters))


def short_names(names: Sequence[str], letters: int) -> list[str]:
    """Return names of layers in so many letters each, without the modules that all lie in.

    Args:
        names: whole, their modules with points between them.
        letters: the most that there is room for.

    Returns:
        The names, as they are where they fit; otherwise with an ellipsis for the modules of all,
        and in the middle where they are longer still, as they may differ at either end.
    """
    if all(len(name) <= letters for name in names):
        return list(names)
    # Ascending, the first and the last have in common what all have.
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    shared = first.rfind(".", 0, same) + 1
    return [_at_both_ends(f"…{name[shared:]}" if shared else name, letters) for name in names]


def _at_both_ends(name: str, letters: int) -> str:
    if len(name) <= letters:
        return name
    head = letters // 2
    return f"{name[:head]}…{name[len(name) - (letters - head - 1) :]}"


def tip(*lines: object) -> str:
    """Return the attribute that shows lines where the pointer is."""
    return f'data-tip="{"&#10;".join(told(line) for line in lines if line != "")}"'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return words, already escaped, at a place."""
    kind = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{place}{kind}>{words}</text>'


def plot_of(
    name: str,
    title: str,
    caption: str,
    height: float,
    parts: Iterable[str],
    *,
    width: float = WIDTH,
    more: str = "",
) -> Plot:
    """Return a plot.

    Args:
        name: of small letters, digits and hyphens.
        title: what it shows; any text.
        caption: how it is read; any text.
        height: of the picture.
        parts: its elements.
        width: of the picture.
        more: attributes.
    """
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="plot-{name}" role="img" '
        f'aria-label="{told(title)}" viewBox="0 0 {width:g} {height:.0f}" width="{width:g}" '
        f'height="{height:.0f}"{f" {more}" if more else ""}>{"".join(parts)}</svg>'
    )
    return Plot(name, title, caption, svg)
