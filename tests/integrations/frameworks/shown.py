"""What the page of a framework shows of its program: summary and timeline, held against a run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import timeline
from docs.pages import DOCS, shown_rows, shown_summary
from safety.commands import invoke

PAGES = DOCS / "guide" / "frameworks"
TITLE = re.compile("<title>(.*?)</title>")


def boxes(drawing: str) -> Counter[str]:
    """The boxes of a timeline; the parts of a checkpoint are those of a version."""
    return Counter(title for title in TITLE.findall(drawing) if ".part" not in title)


def shows_what_is_recorded(
    page: str, name: str, folder: Path, *, picture: str = "", without: str = ".part"
) -> None:
    """The summary of a run has the counts that a page shows, and its timeline the boxes.

    `without` is in the names of spans of which each run has its own number.
    """
    told = shown_summary(PAGES / f"{page}.md", name)
    lines = shown_rows(invoke("summary", str(folder)).out)
    own = [
        {key: n for key, n in one.items() if not re.search(without, f"{key[0]} {key[1]}")}
        for one in (told, lines)
    ]
    assert own[0] == own[1] != {}
    drawn = boxes((PAGES / f"{picture or name}.svg").read_text(encoding="utf-8"))
    found = boxes(timeline.drawing(timeline.read([str(folder)])))
    drawn, found = (
        Counter({title: n for title, n in one.items() if not re.search(without, title)})
        for one in (drawn, found)
    )
    assert drawn == found
