"""What the package gives by its own name is shown, and what is told of it is there."""

from __future__ import annotations

import inspect
import re

import dftrace_ai
from docs.pages import DOCS, ROOT, section, table

PAGES = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("guide/*.md")]


def test_every_name_is_shown_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = set(re.findall(r"\bdftrace_ai\.(\w+)", text))
    for names in re.findall(r"^from dftrace_ai import (.*)$", text, re.M):
        shown |= set(re.findall(r"\w+", names))
    assert set(dftrace_ai.__all__) - shown == set()


def test_the_names_of_the_table_are_there() -> None:
    rows = table(section(DOCS / "README.md", "What the package gives"))
    named = {name for row in rows for name in re.findall(r"`dftrace_ai\.(\w+)`", " ".join(row))}
    assert named <= set(dftrace_ai.__all__)
    assert all(hasattr(dftrace_ai, name) for name in dftrace_ai.__all__)
    (of_run,) = [what for name, what in rows if name == "`dftrace_ai.Run`"]
    members = set(re.findall(r"`(\w+)(?:\(\))?`", of_run))
    assert members == {name for name, _ in inspect.getmembers(dftrace_ai.Run) if name[0] != "_"}
