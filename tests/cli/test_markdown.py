"""`--markdown` of `why` and `diff`: what a reader of Markdown makes of it, whatever names hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines
from analysis.why.made_runs import Training
from markdown_it import MarkdownIt
from safety.commands import answer, invoke

MS = 1_000_000
COMMENT = 65_536
# GitHub's tables, addresses without brackets and HTML.
GITHUB = MarkdownIt("gfm-like")

HOSTILE = [
    "a|b\\|c\\\\|d",
    "``` `x` ``",
    "<img src=x onerror=alert(1)>",
    "</code></details><script>alert(1)</script>",
    "@somebody please look, also @org/team and #12, GH-3",
    "[a](https://example.org) www.example.org http://example.org",
    "**bold** _it_ ~~gone~~ $x^2$ &lt; &#64;",
    "# title",
    "line\n\n| --- |\n- end",
    "- item",
    "1. item",
    "*",
]


def of(markdown: str) -> tuple[list[Any], str]:
    """The tokens of a text, those within others too, and what is read outside of code."""
    flat, read = [], []
    for token in GITHUB.parse(markdown):
        flat += [token, *(token.children or ())]
        read += [child.content for child in token.children or () if child.type == "text"]
        read.append("\n")
    return flat, "".join(read)


def tables(markdown: str) -> list[list[list[str]]]:
    """The rows of each table, as the text of their cells."""
    found: list[list[list[str]]] = []
    for token, inside in zip((all_of := GITHUB.parse(markdown)), [*all_of[1:], None]):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in {"td_open", "th_open"}:
            texts = [one.content for one in inside.children]
            found[-1][-1].append("".join(texts).replace("\xa0", " "))
    return found


def acts(markdown: str) -> list[str]:
    """What in a text would do something but be read."""
    tokens, read = of(markdown)
    blocks = r"(<details>|<summary>[\w -]+</summary>|</details>|\s)*"
    bad = [one.content for one in tokens if one.type == "html_inline"]
    bad += [
        one.content
        for one in tokens
        if one.type == "html_block" and not re.fullmatch(blocks, one.content)
    ]
    kinds = {"link_open", "image", "strong_open", "em_open", "s_open", "fence", "code_block"}
    bad += [
        one.type
        for one in tokens
        if one.type in kinds | {"bullet_list_open", "ordered_list_open", "hr"}
    ]
    return bad + re.findall(r"[@#]\w+|GH-\d|www\.|\w+://", read)


def stepped(folder: Path, ms: float, names: list[str]) -> Path:
    """Steps of 40 ms; in each a span of every name, which takes so long."""
    trace = TraceLines()
    for step in range(30):
        at = step * 40 * MS
        for number, name in enumerate(names):
            trace.span(name, "compute", at + MS + number * 36 * MS // len(names), int(ms * MS))
        trace.span("step", "pipeline", at, 40 * MS)
    trace.footer()
    return trace.write(folder / "t.pfw.gz", 50)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("a|<b>@c`")
    return stepped(folder / "before", 1, HOSTILE), stepped(folder / "after", 1.5, HOSTILE)


def test_a_comparison_is_read_as_the_json_has_it(hostile: tuple[Path, Path]) -> None:
    """Each row is of the cells that it has, and what names hold is read and does nothing."""
    done = invoke("diff", *hostile, "--markdown", "--fail-if", "step p50 > +5%")
    value = answer("diff", *hostile)
    assert done.status == 0
    assert acts(done.out) == []
    asked, changed, *_ = tables(done.out)
    assert asked[1][0] == "step p50 > +5%"
    assert asked[1][1].startswith("not met: ")
    assert {len(row) for row in changed} == {7}
    slower = [row for row in changed if row[0] == "slower"]
    told = [row for row in value["names"] if row["change"]["kind"] == "slower"]
    assert len(told) == len(HOSTILE)
    assert [row[1] for row in slower] == [
        f"compute.{row['name']}".replace("\n", "\\n") for row in told
    ]
    assert {row[4] for row in slower} == {"+50.0 %"}
    # The sentences are those of the words.
    first, *_, last = invoke("diff", *hostile).out.splitlines()
    assert first in of(done.out)[1]
    assert last.partition(".gz: ")[2] in of(done.out)[1]


def test_a_condition_ends_it_with_the_same_status(hostile: tuple[Path, Path]) -> None:
    done = invoke("diff", *hostile, "--markdown", "--fail-if", '"compute.# title" > +5%')
    assert done.status == 1
    assert tables(done.out)[0][1][1].startswith("MET: +50 %")
    short = invoke("diff", hostile[0], hostile[1], "--markdown", "--fail-if", "step p99 > +5%")
    assert short.status == 2
    assert re.search("not judged: .*p99 needs 500", tables(short.out)[0][1][1])


def test_a_verdict_has_the_titles_and_rows_of_its_words(tmp_path: Path) -> None:
    folder = Training(item_ms=20, steps=60, transfer_ms=12).write(tmp_path / "run", 1)
    done = invoke("why", folder, "--markdown", "--lines")
    assert acts(done.out) == []
    head, sentence, _, *rows = invoke("why", folder).out.splitlines()
    read = of(done.out)[1]
    assert f"\n{head.replace('  ', ' ')}\n" in re.sub(" +", " ", read)
    assert sentence in read
    cells = tables(done.out)[0][1:]
    assert [(row[2:12].strip(), row[12:]) for row in rows] == [(*cell,) for cell in cells[:-1]]
    assert re.search(r"^\| step \| \d+(\.\d+)? ms", done.out, re.MULTILINE)
    assert cells[-1][0] == "lines"
    assert "no samples of Python's stacks" in cells[-1][1]


def test_names_of_a_finding_do_nothing_either(tmp_path: Path) -> None:
    """They stand within its sentences."""
    for name in HOSTILE:
        trace = TraceLines()
        for step in range(60):
            trace.span(name, "extra", step * 40 * MS, 30 * MS)
            trace.span("step", "pipeline", step * 40 * MS, 40 * MS)
        trace.footer()
        done = invoke("why", trace.write(tmp_path / "t.pfw", 50), "--markdown")
        assert done.status == 0
        assert acts(done.out) == []
        read = of(done.out)[1].replace("\u200b", "")
        assert f"extra {name}"[:59].replace("\n", "\\n") in read


def test_it_fits_a_comment_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    names = [f"{number} " + "<@|`" * 60 for number in range(300)]
    before, after = (stepped(tmp_path / str(ms), ms, names) for ms in (0.005, 0.01))
    done = invoke("diff", before, after, "--markdown", "--top", 300)
    assert len(done.out) <= COMMENT
    assert acts(done.out) == []
    # Rows are whole, and what is opened is closed.
    assert {len(row) for row in tables(done.out)[0]} == {7}
    assert done.out.count("<details>") == done.out.count("</details>")
    assert re.search(r"no room in a comment for \d+ lines; --json has all", done.out)
    assert "steady steps" in done.out


def test_one_form_of_an_answer_is_asked_for() -> None:
    for command in ("why", "diff"):
        done = invoke(command, "--json", "--markdown")
        assert done.status == 2
        assert "--json and --markdown cannot be given together" in done.err
