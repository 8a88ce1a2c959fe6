"""Builds the documents as a site, and fails where a link or a question leads nowhere.

.venv-docs/bin/python docs/site/build.py
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SITE = ROOT / "build" / "site"
QUESTIONS = HERE / "questions.csv"
FIRST = 3  # among so many results the page of a question has to be

# Links of pages to the schemas, which lie beside the documents, as the generator writes them.
TO_SCHEMAS = re.compile(r'(href="(?:\.\./)*)\.\./(schemas/[\w.-]+")')

# Docstrings announce a block by two colons, of which Markdown shows both.
BEFORE_A_BLOCK = re.compile(r"::(</p>\s*<div)")


class Page(HTMLParser):
    """What a page of HTML leads to, and what in it may be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses and the ids of a tag."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def generate() -> list[str]:
    """Have the generator write the site; returns its complaints, a warning among them."""
    made = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{made.stdout}{made.stderr}"
    return [] if made.returncode == 0 and "No issues found" in said else [said]


def finish(site: Path) -> None:
    """Lay the schemas of JSON into the site, have its pages lead there, and mend their colons."""
    shutil.copytree(ROOT / "schemas", site / "schemas", ignore=shutil.ignore_patterns("*.py", "_*"))
    for path in site.rglob("*.html"):
        text = TO_SCHEMAS.sub(r"\1\2", path.read_text(encoding="utf-8"))
        path.write_text(BEFORE_A_BLOCK.sub(r":\1", text), encoding="utf-8")


def broken_links(site: Path) -> Iterator[str]:
    """Yield the links of a site's pages that lead nowhere in it, those to other sites left out."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in sorted(pages.items()):
        # It is shown at any address, by whoever serves the site.
        for link in page.links if path.name != "404.html" else ():
            address, anchor = urldefrag(link)
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            where = path.relative_to(site)
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{where}: {link} leads nowhere"
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                yield f"{where}: {link} names nothing on that page"


def questions() -> dict[str, str]:
    """Return what a reader may ask, and the page of the answer by its address in the site."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        return {row["question"]: row["page"] for row in csv.DictReader(file)}


def found(site: Path, asked: Iterable[str]) -> list[list[str]]:
    """Ask the search of a site, which node runs; returns the pages found for each, best first."""
    node = shutil.which("node")
    if node is None:
        raise SystemExit("the search of the site is tried in node, which is not installed")
    answered = subprocess.run(
        [node, str(HERE / "search.js"), str(site)],
        input="".join(f"{question}\n" for question in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        [urldefrag(each)[0].rstrip("/") for each in json.loads(line)]
        for line in answered.stdout.splitlines()
    ]


def unanswered(site: Path, wanted: Mapping[str, str]) -> Iterator[str]:
    """Yield the questions whose page is not among the first results of a site's search."""
    for (question, page), pages in zip(wanted.items(), found(site, wanted), strict=True):
        if page not in pages[:FIRST]:
            yield f"{question!r} does not find {page}, but {pages[:FIRST]}"


def main() -> int:
    """Build and look at it; what is wrong is printed, a line each."""
    wrong = generate()
    if not wrong:
        finish(SITE)
        wrong = [*broken_links(SITE), *unanswered(SITE, questions())]
    for each in wrong:
        print(each, file=sys.stderr)
    if not wrong:
        nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].split()
        for page in sorted((ROOT / "docs").rglob("*.md")):
            if page.relative_to(ROOT / "docs").as_posix() not in nav:
                print(f"{page.relative_to(ROOT)} has no place in the nav of mkdocs.yml")
        print(f"{SITE.relative_to(ROOT)}: {len(questions())} questions find their pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
