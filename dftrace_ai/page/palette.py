"""Colours of a page in its two themes, told apart also by people who see fewer of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DASHES", "LINES", "in_light", "ink_on", "of_share", "theme_style"]

LIGHT: Final = {
    "paper": "#ffffff", "ink": "#1b1f24", "faint": "#5d6672", "grid": "#dfe3e8",
    "shade": "#eef1f4", "none": "#e4e7eb", "odd": "#c2007a", "card": "#f6f7f9",
    "loud": "#a40000", "loud-paper": "#fdecea", "good": "#0b6b3a", "link": "#0059a8",
    "first": "#0072b2", "band": "0.35",
}  # fmt: skip
DARK: Final = {
    "paper": "#14171b", "ink": "#e6e9ed", "faint": "#9aa4b0", "grid": "#31363d",
    "shade": "#20252b", "none": "#3a4048", "odd": "#ff6ac1", "card": "#1c2025",
    "loud": "#ff9d94", "loud-paper": "#3c1917", "good": "#6fd39b", "link": "#7cb7f0",
    "first": "#56b4e9", "band": "0.5",
}  # fmt: skip

# Okabe and Ito's (jfly.uni-koeln.de/color); the first is lighter where the paper is dark.
LINES: Final = ("var(--first)", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES: Final = ("", "5 3", "2 2", "8 3 2 3")

# From dark to light, of even steps of lightness, so that it also reads in grey.
VALUES: Final = (
    (13, 27, 66), (31, 60, 118), (41, 99, 142), (45, 140, 147), (79, 178, 134),
    (150, 208, 106), (232, 228, 94),
)  # fmt: skip

DARKEST_FOR_BLACK: Final = 105

VARIABLE: Final = re.compile(r"var\(--([a-z-]+)\)")


def theme_style() -> str:
    """Return the variables of both themes; on paper it is the light one."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        "@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) "
        f"{{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
        "@media print { :root, :root:not([data-theme=light]), :root[data-theme=dark] "
        f"{{ color-scheme: light; {light} }} }}"
    )


def in_light(text: str) -> str:
    """Return a text of CSS without variables: programs other than browsers know none."""
    return VARIABLE.sub(lambda match: LIGHT[match[1]], text)


def _variables(theme: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in theme.items())


def of_share(share: float) -> str:
    """Return the colour of a value between the least, 0, and the greatest, 1."""
    place = min(max(share, 0.0), 1.0) * (len(VALUES) - 1)
    at = min(int(place), len(VALUES) - 2)
    rest = place - at
    mixed = (
        round(low + (high - low) * rest)
        for low, high in zip(VALUES[at], VALUES[at + 1], strict=True)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink_on(colour: str) -> str:
    """Return the class of text that can be read on a colour."""
    if not colour.startswith("#"):
        return ""
    red, green, blue = bytes.fromhex(colour[1:])
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    return "inside" if light > DARKEST_FOR_BLACK else "light"
