"""The colours of pages: words can be read on all that they stand on, in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dftrace_ai
import dftrace_ai.analysis.report.page as of_report
import dftrace_ai.loggers.runs.page as of_runs
from dftrace_ai.analysis.report.step_plots import PARTS
from dftrace_ai.page.palette import dark, in_light, ink_on, light, static_text
from dftrace_ai.page.shell import STYLE
from dftrace_ai.page.svg import PLOT_STYLE

OVER_ALL_RUNS = Path(dftrace_ai.__file__).parent / "ui" / "static"

LEAST = 4.5
# What words stand in, and what they stand on.
WORDS = ("ink", "faint", "loud", "good", "link", "warn", "odd")
PAPERS = ("paper", "card", "shade", "hover")
OF_ONE = {"loud": "loud-paper", "warn": "warn-paper"}


def contrast(a: str, b: str) -> float:
    """As WCAG 2 counts it."""

    def luminance(colour: str) -> float:
        parts = [value / 255 for value in bytes.fromhex(colour[1:])]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [light, dark])
def test_words_can_be_read_in_both_themes(theme) -> None:
    colours = theme()
    pairs = [(word, paper) for word in WORDS for paper in PAPERS]
    pairs += [(word, paper) for word, paper in OF_ONE.items()]
    pairs += [("ink", paper) for paper in ("none", "loud-paper", "warn-paper")]
    pairs += [("faint", paper) for paper in ("loud-paper", "warn-paper")]
    poor = {
        pair: round(found, 2)
        for pair in pairs
        if (found := contrast(*(colours[name] for name in pair))) < LEAST
    }
    assert poor == {}
    # Names on what is coloured by its part are black or white.
    inks = {"inside": "#000000", "light": "#ffffff", "": colours["ink"]}
    names = [name for name in colours if name.startswith("part-")]
    assert {f"var(--part-{part})" for part in PARTS} <= {f"var(--{name})" for name in names}
    for name in names:
        colour = in_light(colours[name]) if name != "part-none" else colours["none"]
        assert contrast(colour, inks[ink_on(f"var(--{name})")]) >= LEAST, name


def test_both_ways_to_a_dark_page_give_the_same_colours() -> None:
    text = static_text("palette.css")
    system, by_hand = re.findall(r"@media screen[^{]*\{\s*:root[^{]*\{([^}]*)\}", text)
    assert re.findall(r"[\w#.-]+", system) == re.findall(r"[\w#.-]+", by_hand)
    # And no colour of the one theme stays in the other by an oversight.
    assert set(re.findall(r"--([a-z-]+):", system)) == {
        name for name in light() if not name.startswith("part-")
    }
    of_ui = [path.read_text("utf-8") for path in OVER_ALL_RUNS.glob("*.css")]
    for sheet in (
        *(static_text("pieces.css"), STYLE, PLOT_STYLE, of_report.STYLE, of_runs.STYLE),
        *(text for text in of_ui if "--" in text),
    ):
        assert set(re.findall(r"var\(--([a-z-]+)\)", sheet)) <= set(light())
        # Words have none but these, or their contrast would go uncounted.
        assert re.findall(r"(?<![\w-])color: (?!var|inherit)[^;]*", sheet) == []
