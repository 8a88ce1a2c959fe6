"""Draws the last epoch of a trace as a timeline, for the pages of the guide.

`python docs/design/timeline.py out docs/guide/frameworks/lightning.svg` draws the traces in `out`,
one process below the other, from the beginning of their last epoch to their end. What takes longer
than that epoch behind it is cut at the right edge.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.report.step_plots import of_span
from dftrace_ai.page.palette import in_light, ink_on

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, LEFT, RIGHT = 1000, 108, 8
ROW, GAP, HEAD = 17, 7, 20
LETTER = 6.2
# So many alike in a row are one box.
MANY = 8
NS_PER_US, NS_PER_MS = 1_000, 1_000_000
STEPS_MS = [n * 10**e for e in range(-2, 6) for n in (1, 2, 5)]
MOST_STEPS = 12
MOST_OF_EPOCH = 2
NAME_LETTERS = 15

STYLE = """text { font: 11px system-ui, sans-serif; fill: #1b1f24; }
.track { fill: #5d6672; } .head { font-weight: 600; } .light { fill: #fff; }
rect { stroke: #fff; stroke-width: .5; } line { stroke: #dfe3e8; }"""


@dataclass
class Box:
    """A span, or several alike in a row."""

    cat: str
    name: str
    begin_ns: int
    end_ns: int
    count: int = 1
    inner: list[Box] = field(default_factory=list)

    @property
    def told(self) -> str:
        """What the box is called, with how many it stands for."""
        name = f"{self.cat} {self.name}"
        return name if self.count == 1 else f"{self.count} {name}"


@dataclass
class Track:
    """Spans that lie within each other."""

    name: str
    boxes: list[Box]

    def rows(self) -> Iterator[tuple[int, Box]]:
        """Give each box with its depth, from 0."""
        todo = [(0, one) for one in self.boxes]
        while todo:
            depth, one = todo.pop()
            yield depth, one
            todo += [(depth + 1, inner) for inner in one.inner]


@dataclass
class Process:
    """A process and its tracks."""

    name: str
    tracks: list[Track]


def read(places: list[str]) -> list[Process]:
    """Read the spans of the last epoch and what follows it, process by process."""
    told = []
    for trace in open_traces(places):
        names: dict[int, str] = {}
        process = f"process {trace.path.name}"
        spans: list[tuple[int, Box]] = []
        for _, event in trace.events():
            if event["ph"] == "M" and event["name"] == "thread_name":
                names[event["tid"]] = event["args"]["name"]
            elif event["ph"] == "M" and event["name"] == "process_name":
                process = event["args"]["name"]
            elif event["ph"] == "X":
                spans.append((event["tid"], _box(event)))
        epochs = [one for _, one in spans if (one.cat, one.name) == ("pipeline", "epoch")]
        told.append((process, names, spans, max((one.begin_ns for one in epochs), default=0)))
    return [
        Process(name, _tracks(names, [(tid, one) for tid, one in spans if one.begin_ns >= begin]))
        for name, names, spans, begin in sorted(told, key=lambda one: one[0])
    ]


def _box(event: dict[str, Any]) -> Box:
    begin = round(event["ts"] * NS_PER_US)
    return Box(event["cat"], event["name"], begin, begin + round(event["dur"] * NS_PER_US))


def _tracks(names: dict[int, str], spans: list[tuple[int, Box]]) -> list[Track]:
    found = []
    for tid in sorted({tid for tid, _ in spans}, key=lambda tid: (_order(names, tid), tid)):
        boxes = sorted((o for t, o in spans if t == tid), key=lambda o: (o.begin_ns, -o.end_ns))
        outer: list[Box] = []
        open_now: list[Box] = []
        for one in boxes:
            while open_now and open_now[-1].end_ns <= one.begin_ns:
                open_now.pop()
            (open_now[-1].inner if open_now else outer).append(one)
            open_now.append(one)
        for one in outer:
            one.inner = _drawn_together(one.inner)
        found.append(Track(names.get(tid, str(tid)), outer))
    return found


def _order(names: dict[int, str], tid: int) -> int:
    ours = ("evaluations", "steps", "epochs")
    name = names.get(tid, "")
    return ours.index(name) + 1 if name in ours else 4 if name.startswith("collectives") else 0


def _drawn_together(boxes: list[Box]) -> list[Box]:
    """Make one box of many alike in a row."""
    found: list[Box] = []
    rest = boxes
    while rest:
        first = rest[0]
        alike = next(
            (
                n
                for n, o in enumerate(rest)
                if (o.cat, o.name) != (first.cat, first.name) or o.inner
            ),
            len(rest),
        )
        if alike >= MANY:
            found.append(Box(first.cat, first.name, first.begin_ns, rest[alike - 1].end_ns, alike))
        else:
            alike = 1
            first.inner = _drawn_together(first.inner)
            found.append(first)
        rest = rest[alike:]
    return found


def drawing(processes: list[Process]) -> str:
    """Make the text of the drawing."""
    begin, end = _window([o for p in processes for t in p.tracks for o in t.boxes])
    scale = (WIDTH - LEFT - RIGHT) / max(end - begin, 1)

    def x(time_ns: int) -> float:
        return LEFT + (min(time_ns, end) - begin) * scale

    parts: list[str] = []
    y = HEAD
    for process in processes:
        if len(processes) > 1:
            parts.append(f'<text x="4" y="{y + 12}" class="head">{escape(process.name)}</text>')
            y += ROW
        for track in process.tracks:
            name = track.name
            name = name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"
            parts.append(f'<text x="4" y="{y + 12}" class="track">{escape(name)}</text>')
            deepest = 0
            for depth, one in track.rows():
                deepest = max(deepest, depth)
                parts += _shown(one, x(one.begin_ns), x(one.end_ns), y + depth * ROW)
            y += (deepest + 1) * ROW + GAP
    lines = list(_axis(begin, end, x, y))
    y = _legend(processes, parts, y)
    size = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{STYLE}</style>{paper}", *lines, *parts, "</svg>\n"])


def _window(boxes: list[Box]) -> tuple[int, int]:
    """Return what is drawn: all of it, or as much behind the epoch as that is long."""
    begin, end = min(one.begin_ns for one in boxes), max(one.end_ns for one in boxes)
    epochs = [one.end_ns for one in boxes if (one.cat, one.name) == ("pipeline", "epoch")]
    return begin, min(end, begin + MOST_OF_EPOCH * (max(epochs) - begin)) if epochs else end


def _legend(processes: list[Process], parts: list[str], y: int) -> int:
    """Say what the colours are, below the tracks; return where the drawing ends."""
    named: dict[str, list[str]] = {}
    for _, one in (row for p in processes for t in p.tracks for row in t.rows()):
        names = named.setdefault(_colour(one), [])
        if one.told.split()[-1] not in names and not one.cat.startswith("pipeline"):
            names.append(one.told.split()[-1])
    x = float(LEFT)
    for colour, names in named.items():
        words = ", ".join(sorted(names))
        if not words:
            continue
        if x + len(words) * LETTER + 30 > WIDTH:
            x, y = float(LEFT), y + ROW
        parts.append(f'<rect x="{x:.0f}" y="{y + 3}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14:.0f}" y="{y + 12}" class="track">{escape(words)}</text>')
        x += len(words) * LETTER + 30
    return y + ROW + 3


def _colour(one: Box) -> str:
    return in_light(of_span(one.cat, one.name))


def _axis(begin: int, end: int, x: Any, height: int) -> Iterator[str]:
    whole = (end - begin) / NS_PER_MS
    step = next((s for s in STEPS_MS if whole / s <= MOST_STEPS), STEPS_MS[-1])
    for number in range(int(whole / step) + 1):
        at = x(begin + round(number * step * NS_PER_MS))
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{HEAD - 4}" y2="{height}"/>'
        yield f'<text x="{at:.1f}" y="12" class="track">{number * step:g} ms</text>'


def _shown(one: Box, left: float, right: float, y: int) -> Iterator[str]:
    width = max(right - left, 0.6)
    colour = _colour(one)
    yield (
        f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" '
        f'fill="{colour}"><title>{escape(one.told)}</title></rect>'
    )
    name = one.name if one.count == 1 else f"{one.count} {one.name}"
    if width > len(name) * LETTER + 4:
        kind = ' class="light"' if ink_on(colour) == "light" else ""
        yield f'<text x="{left + 2:.1f}" y="{y + 12}"{kind}>{escape(name)}</text>'


if __name__ == "__main__":
    Path(sys.argv[-1]).write_text(drawing(read(sys.argv[1:-1])), encoding="utf-8")
