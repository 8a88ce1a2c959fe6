"""Markdown for a comment on a pull request: names that cannot act in it, and no more than fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.cli.terminal import NAME_LETTERS, shown, write_out
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# GitHub refuses a comment of more than 65,536 characters; the rest is for what is put around it.
MOST_LETTERS = 60_000
# Of one sentence, before letters are written out.
SENTENCE_LETTERS = 1_000

# What has a meaning in Markdown, in HTML or in its formulas; and where an address, a mention, a
# number of an issue or an emoji would begin, which are found in the text that is left.
MEANT = re.compile(r"[\\`*_\[\]<>|~&$\"]")
BEGINS = re.compile(r"[@#]|\b(?:www|GH)(?=[.-])|:(?=//|[a-z+-][\w+-]*:)", re.IGNORECASE)
# At the beginning of a line these make lists, lines and headings; of each the last letter does.
FIRST = re.compile(r"^(?:[-+=]|\d+[.)](?=\s|$))")
STROKE = "\\|"
NOTHING_WIDE = "&#8203;"


class Block(NamedTuple):
    """Lines that stand together: of `rows` the first may be all that there is room for."""

    head: Sequence[str]
    rows: Sequence[str] = ()
    tail: Sequence[str] = ()


def text(sentence: str) -> str:
    """Return a sentence that can hold names that others chose, as text on one line."""
    plain = shown(sentence.strip(), SENTENCE_LETTERS)
    found = FIRST.match(plain)
    end = 0 if found is None else found.end()
    first = f"{plain[: end - 1]}&#{ord(plain[end - 1])};" if end else ""
    parts = (MEANT.sub(_written_out, part) for part in _pieces(plain[end:]))
    return first + NOTHING_WIDE.join(parts)


def code(name: str) -> str:
    """Return a name as code, in which nothing acts."""
    plain = shown(name, NAME_LETTERS)
    fence = "`"
    while fence in plain:
        fence += "`"
    # Of a backtick at the beginning, or of spaces there and at the end, a reader takes one away.
    apart = " " if plain.startswith(("`", " ")) or plain.endswith(("`", " ")) else ""
    return f"{fence}{apart}{plain}{apart}{fence}"


def figure(value: str) -> str:
    """Return a number with its unit, which no line ends between."""
    return value.replace(" ", "&nbsp;").replace("&nbsp;to&nbsp;", " to ")


def table(columns: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> Block:
    """Return a table of cells that are Markdown; the first so many columns are texts."""
    lines = ["---"] * texts + ["---:"] * (len(columns) - texts)
    return Block((_row(columns), _row(lines)), tuple(map(_row, rows)))


def folded(title: str, block: Block) -> Block:
    """Return a block that is opened by a click on its title."""
    head = ("<details>", f"<summary>{title}</summary>", "", *block.head)
    return Block(head, block.rows, (*block.tail, "", "</details>"))


def write_markdown(blocks: Iterable[Block]) -> None:
    """Write blocks to the standard output stream, as far as a comment has room for them."""
    write_out(fitted(blocks))


def fitted(blocks: Iterable[Block], most: int = MOST_LETTERS) -> str:
    """Return blocks as one text of so many letters at most, which says what it leaves out."""
    # What is around rows comes first, so that no table takes the room of what is below it.
    room = most - len(_left_out(10**9))
    whole = []
    left_out = 0
    for block in blocks:
        around = sum(len(line) + 1 for line in (*block.head, *block.tail, ""))
        if around <= room:
            room -= around
            whole.append(block)
        else:
            left_out += len(block.head) + len(block.rows)
    lines: list[str] = []
    for block in whole:
        lines += block.head
        for row in block.rows:
            room -= len(row) + 1
            if room >= 0:
                lines.append(row)
            else:
                left_out += 1
        lines += [*block.tail, ""]
    if left_out:
        lines.append(_left_out(left_out))
    return "\n".join(lines).rstrip() + "\n"


def _left_out(count: int) -> str:
    return f"no room in a comment for {counted(count, 'line')}; --json has all"


def _row(cells: Sequence[str]) -> str:
    # Texts hold no such stroke any more; in code it is written so, whatever is in front of it.
    return f"| {' | '.join(cell.replace('|', STROKE) for cell in cells)} |"


def _pieces(plain: str) -> list[str]:
    pieces, at = [], 0
    for found in BEGINS.finditer(plain):
        pieces.append(plain[at : found.end()])
        at = found.end()
    return [*pieces, plain[at:]]


def _written_out(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"
