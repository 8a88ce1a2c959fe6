"""A plot as SVG text: axes, lines with bands, and names as harmless text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.page.palette import in_light
from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WIDTH: Final = 920
NARROW: Final = 360
"""Of a plot on a telephone, drawn anew and not made smaller; its words are as large."""
NAME_LETTERS: Final = 200
LETTER_WIDTH: Final = 6.3
ATTRIBUTE: Final = re.compile(r'="var\(--[a-z-]+\)"')

MOST: Final = 1.7e308
LEAST_WAY: Final = 1e-300
UNGROUPED, GROUPED = 9999.5, 1e5
PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

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
svg .oddly { fill: var(--loud); }
svg .hit { fill: none; pointer-events: all; }
svg .plain { fill: var(--none); stroke: var(--faint); stroke-width: .5; }
"""


@dataclass(frozen=True)
class Plot:
    """A drawing: its name of small letters, digits and hyphens, what it shows, how it is read."""

    name: str
    title: str
    caption: str
    svg: str
    narrow: str = ""  # shown in its place in a narrow window

    def alone(self, comment: str) -> str:
        """Return it as a file of its own, with its style; the comment says whose it is."""
        # No name can be taken for an attribute: its quotation marks are escaped.
        svg = ATTRIBUTE.sub(lambda match: in_light(match[0]), self.svg)
        head, _, body = svg.partition(">")
        paper = in_light('<rect width="100%" height="100%" fill="var(--paper)"/>')
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n{comment}\n{head}>'
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
    """Return dotted names in so many letters each, where need be without the modules of all."""
    if all(len(name) <= letters for name in names):
        return list(names)
    # Ascending, the first and the last have in common what all have.
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    shared = first.rfind(".", 0, same) + 1
    sign = "…" if shared else ""
    return [
        _at_both_ends(sign + _brief(name[shared:], letters - len(sign)), letters) for name in names
    ]


def _brief(name: str, letters: int) -> str:
    """Return a dotted name of whose modules the first ones are initials, as many as need be."""
    # Numbers stay: layers that are called alike differ in them.
    *modules, last = name.split(".")
    for at, module in enumerate(modules):
        if len(".".join([*modules, last])) <= letters:
            break
        modules[at] = module if module.isdigit() else module[:1]
    return ".".join([*modules, last])


def _at_both_ends(name: str, letters: int) -> str:
    # Longer names may differ at either end.
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


def svg_of(
    attributes: str, title: str, parts: Iterable[str], *, width: float, height: float
) -> str:
    """Return a picture of parts; the title may be any text."""
    return (
        f'<svg {attributes} role="img" '
        f'aria-label="{told(title)}" viewBox="0 0 {width:g} {height:.0f}" width="{width:g}" '
        f'height="{height:.0f}">{"".join(parts)}</svg>'
    )


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
    """Return a plot of parts, with more attributes; title and caption may be any text."""
    which = 'class="narrow"' if width == NARROW else f'id="plot-{name}"'
    attributes = f'xmlns="http://www.w3.org/2000/svg" {which}{f" {more}" if more else ""}'
    return Plot(name, title, caption, svg_of(attributes, title, parts, width=width, height=height))


def at_both_widths(draw: Callable[[float], Plot]) -> Plot:
    """Return a plot of a function that draws it in a width."""
    return replace(draw(WIDTH), narrow=draw(NARROW).svg)


class Box(NamedTuple):
    """Where the values of a plot are drawn."""

    left: float
    top: float
    right: float
    bottom: float


class Axis:
    """Places of values between the two ends of a picture that the least and the greatest have.

    A logarithmic one is of those above zero; with `zero`, that has a place, too.
    """

    def __init__(
        self,
        values: Iterable[float | None],
        begin: float,
        end: float,
        *,
        logarithmic: bool = False,
        zero: bool = False,
    ) -> None:
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if logarithmic:
            finite = [value for value in finite if value > 0]
        self.logarithmic = logarithmic and bool(finite)
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if zero and not self.logarithmic:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            room = abs(low) * 0.1 or 1.0
            low, high = (low * 0.9, high * 1.1) if self.logarithmic else (low - room, high + room)
        self.low, self.high = max(low, -MOST), min(high, MOST)
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        """Return where a value is drawn; at an end what lies beyond."""
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            share = (math.log(max(value, self.low)) - low) / (high - low) if high > low else 0.5
        else:
            # Halves, since the whole way between two finite numbers may not be one.
            way = self.high / 2 - self.low / 2
            share = (value / 2 - self.low / 2) / way if way else 0.5
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def marks(self, about: int = 5, *, whole: bool = False) -> list[float]:
        """Return round values within the axis, about so many."""
        if self.logarithmic:
            return self._powers()
        way = self.high - self.low
        if not math.isfinite(way) or way < LEAST_WAY:
            return [self.low, self.high]
        step = 10.0 ** math.floor(math.log10(way / about))
        step *= next(many for many in (1, 2, 5, 10) if way / (step * many) <= about * 1.2)
        step = max(step, 1.0) if whole else step
        first = math.ceil(self.low / step - 1e-9)
        marks = [number * step for number in range(first, first + about * 3)]
        return [mark for mark in marks if mark <= self.high + step * 1e-9]

    def _powers(self) -> list[float]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        marks = [
            many * 10.0**power
            for power in range(max(low, -300), min(high, 300) + 1)
            for many in ((1, 2, 5) if high - low <= 3 else (1,))
        ]
        inside = [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]
        if len(inside) > 8:
            inside = inside[:: len(inside) // 6]
        return inside if len(inside) > 1 else [self.low, self.high]


def unit_of_ns(greatest_ns: float) -> tuple[float, str]:
    """Return in which unit times up to the greatest are shown, and its nanoseconds."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if greatest_ns >= size:
            return size, unit
    return 1.0, "ns"


def unit_of_s(greatest_s: float) -> tuple[float, str]:
    """Return in which unit a stretch of time is shown, and its seconds."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if greatest_s >= 3 * size:
            return size, unit
    if greatest_s >= 1 or not greatest_s:
        return 1.0, "s"
    return 1e-3, "ms"


def number_text(value: float) -> str:
    """Return a number as people read it: ``12.5``, ``3.2 M``, ``1e-07``."""
    size = abs(value)
    if UNGROUPED <= size < GROUPED:
        return f"{value:,.0f}"
    if GROUPED <= size < 1e15:
        for many, prefix in PREFIXES:
            if size >= many:
                return f"{value / many:.4g} {prefix}"
    return f"{value:.4g}" if value else "0"


def frame(
    box: Box,
    across: Axis | None,
    up: Axis | None,
    *,
    x_title: str = "",
    y_title: str = "",
    x_size: float = 1.0,
    y_size: float = 1.0,
    x_whole: bool = False,
    x_marks: int = 8,
    y_marks: int = 5,
    y_title_above: float = 10.0,
) -> str:
    """Return grid, marks and titles around a plot.

    A size is what one of the unit in a title is of the values; about so many marks are made.
    """
    parts = []
    if up is not None:
        for value, said in _marks(up, y_size, y_marks):
            y = up.at(value)
            parts.append(f'<path class="grid" d="M{box.left} {y:.1f}H{box.right}"/>')
            parts.append(text(box.left - 6, y + 3.5, said, "", "end"))
    if across is not None:
        for value, said in _marks(across, x_size, x_marks, whole=x_whole):
            x = across.at(value)
            parts.append(f'<path class="grid" d="M{x:.1f} {box.bottom}v4"/>')
            parts.append(text(x, box.bottom + 17.5, said, "", "middle"))
    parts.append(f'<path class="frame" d="M{box.left} {box.top}V{box.bottom}H{box.right}"/>')
    if x_title:
        middle = (box.left + box.right) / 2
        parts.append(text(middle, box.bottom + 32, x_title, "soft", "middle"))
    if y_title:
        parts.append(text(4, box.top - y_title_above, y_title, "soft"))
    return "".join(parts)


def _marks(
    axis: Axis, size: float, about: int, *, whole: bool = False
) -> Iterator[tuple[float, str]]:
    scaled = Axis([axis.low / size, axis.high / size], 0, 1, logarithmic=axis.logarithmic)
    marks = scaled.marks(about, whole=whole)
    texts = [number_text(mark) for mark in marks]
    if len(set(texts)) < len(texts):
        # Far from zero and close together, as the steps of a run that goes on.
        texts = [f"{mark:,.10g}" for mark in marks]
    return ((mark * size, said) for mark, said in zip(marks, texts, strict=True))


class Place(NamedTuple):
    """Values of one place on a line, where they are drawn; the middle one is on the line."""

    x: float
    low: float
    middle: float
    high: float


def line_and_band(places: Iterable[Place | None], colour: str, dash: str = "") -> Iterator[str]:
    """Draw a line, which ends where there is none, and around it the band of all values."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    for piece in _pieces(places):
        if any(place.low != place.high for place in piece):
            # A spike in one group is still a pixel wide.
            steps = [f"M{piece[0].x - 0.5:.1f} {piece[0].high:.1f}"]
            steps += [f"L{place.x:.1f} {place.high:.1f}" for place in piece]
            steps += [f"L{place.x + 0.5:.1f} {place.low:.1f}" for place in reversed(piece)]
            path = "".join(steps)
            yield f'<path class="band" fill="{colour}" d="{path}z"/>'
        points = " ".join(f"{place.x:.1f},{place.middle:.1f}" for place in piece)
        yield f'<polyline class="line" stroke="{colour}"{dashed} points="{points}"/>'
        if len(piece) == 1:
            (place,) = piece
            yield f'<circle cx="{place.x:.1f}" cy="{place.middle:.1f}" r="2" fill="{colour}"/>'


def _pieces(places: Iterable[Place | None]) -> list[list[Place]]:
    pieces: list[list[Place]] = [[]]
    for place in places:
        if place is not None:
            pieces[-1].append(place)
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def line_legend(rows: list[tuple[str, str, str]], left: float, y: float) -> Iterator[str]:
    """Draw the signs of lines and their names, which may be any text, in a row."""
    for name, colour, dash in rows:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<path class="line" stroke="{colour}"{dashed} d="M{left:.0f} {y - 4}h18"/>'
        yield text(left + 23, y, told(name, 40))
        left += 40 + 6.2 * min(len(name), 40)


def cross(x: float, y: float, attributes: str, title: str = "") -> str:
    """Return a mark at a value that is not finite; a title is for pages without a script."""
    shape = f'<path {attributes} d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"'
    return f"{shape}><title>{title}</title></path>" if title else f"{shape}/>"
