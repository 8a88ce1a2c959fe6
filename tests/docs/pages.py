"""Markdown pages taken apart: code blocks, tables, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^<!-- example: (\w+\.py) -->\n\n```python\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
ROW = re.compile(r"^\|(.*)\|$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the project."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of a language."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
        if found[1] == language
    ]


def quoted_examples(page: Path) -> dict[str, str]:
    """The example files that a page quotes, each with the text it shows for it."""
    text = page.read_text(encoding="utf-8")
    return {found[1]: found[2] for found in EXAMPLE.finditer(text)}


def after_example(page: Path, name: str) -> str:
    """What stands between an example and the next one."""
    text = page.read_text(encoding="utf-8")
    return text.split(f"<!-- example: {name} -->")[1].split("<!-- example:")[0]


def between(page: Path, mark: str) -> str:
    """What stands between `<!-- mark: begin -->` and `<!-- mark: end -->`."""
    text = page.read_text(encoding="utf-8")
    return text.split(f"<!-- {mark}: begin -->")[1].split(f"<!-- {mark}: end -->")[0]


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next heading."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"{page.name} has no heading {heading!r}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """The cells of the first table in a text, without its head."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        row = ROW.match(line)
        if row:
            rows.append([cell.strip() for cell in row[1].split("|")])
        elif rows:
            break
    return rows[2:]


def shown_rows(summary: str) -> dict[tuple[str, str], int]:
    """How often a span occurred, by category and name, as `dftrace summary` shows it."""
    return {
        (words[0], words[1]): int(words[2])
        for words in map(str.split, summary.splitlines())
        if len(words) == 18 and words[2].isdecimal()
    }


def shown_summary(page: Path, name: str) -> dict[tuple[str, str], int]:
    """The rows of a summary that a page shows behind `<!-- summary: name -->`."""
    text = page.read_text(encoding="utf-8").split(f"<!-- summary: {name} -->")[1]
    return shown_rows(text.split("```")[1])


def plain(cell: str) -> str:
    """A cell without its backticks."""
    return cell.replace("`", "")


def anchors(page: Path) -> set[str]:
    """The targets that the headings of a page make, as repository hosts name them."""
    found: set[str] = set()
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for heading in HEADING.findall(text):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


def links(page: Path) -> list[str]:
    """Where the links of a page lead, outside of its blocks."""
    return LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
