"""The colours of pages in two themes, and the files that pages hold or are served with.

In `static` beside this file lie styles and plain scripts: a page of one file has them inside, a
server gives them as they are.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).with_name("static")

# Okabe and Ito's (jfly.uni-koeln.de/color); the first is lighter where the paper is dark.
LINES: Final = ("var(--first)", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES: Final = ("", "5 3", "2 2", "8 3 2 3")

# From dark to light, of even steps of lightness, so that it also reads in grey.
VALUES: Final = (
    (13, 27, 66), (31, 60, 118), (41, 99, 142), (45, 140, 147), (79, 178, 134),
    (150, 208, 106), (232, 228, 94),
)  # fmt: skip
# The same below zero.
NEGATIVE: Final = (
    (13, 27, 66), (66, 40, 70), (112, 52, 62), (160, 72, 48), (205, 105, 40),
    (238, 150, 70), (255, 205, 150),
)  # fmt: skip

DARKEST_FOR_BLACK: Final = 105

BLOCK: Final = re.compile(r"(:root[^{,]*)\{([^}]*)\}")
VALUE: Final = re.compile(r"--([a-z-]+):\s*([^;]+);")
VARIABLE: Final = re.compile(r"var\(--([a-z-]+)\)")


@cache
def static_text(name: str) -> str:
    """Return a style or a script that lies beside this file."""
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def light() -> dict[str, str]:
    """Return the variables of the light theme by their names."""
    return _variables(0)


@cache
def dark() -> dict[str, str]:
    """Return the variables of the dark theme."""
    return light() | _variables(1)


def _variables(block: int) -> dict[str, str]:
    blocks = BLOCK.findall(static_text("palette.css"))
    return dict(VALUE.findall(blocks[block][1]))


def in_light(text: str) -> str:
    """Return a text of CSS without variables: programs other than browsers know none."""
    while VARIABLE.search(text):
        text = VARIABLE.sub(lambda match: light()[match[1]], text)
    return text


def of_share(share: float) -> str:
    """Return the colour of a value from the darkest, 0, to the brightest: 1, or -1 below zero."""
    ramp = NEGATIVE if share < 0 else VALUES
    place = min(abs(share), 1.0) * (len(ramp) - 1)
    at = min(int(place), len(ramp) - 2)
    rest = place - at
    mixed = (
        round(low + (high - low) * rest) for low, high in zip(ramp[at], ramp[at + 1], strict=True)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink_on(colour: str) -> str:
    """Return the class of text that can be read on a colour; none where it changes by theme."""
    name = VARIABLE.fullmatch(colour)
    colour = light()[name[1]] if name else colour
    if not colour.startswith("#") or (name and dark()[name[1]] != colour):
        return ""
    red, green, blue = bytes.fromhex(colour[1:])
    light_ = 0.299 * red + 0.587 * green + 0.114 * blue
    return "inside" if light_ > DARKEST_FOR_BLACK else "light"
