"""Blocks, links and names of the pages: programs run, commands exist, links lead somewhere."""

from __future__ import annotations

import inspect
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main
from conftest import trace_files

import dftrace_ai
from dftrace_ai.cli import app
from docs.conftest import RunExample, run_program
from docs.pages import (
    DOCS,
    ROOT,
    Block,
    anchors,
    blocks,
    links,
    pages,
    quoted_examples,
    section,
    shown_rows,
    table,
)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_project_resolve(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leads out of the project"
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        if page.is_relative_to(DOCS):
            published = target.is_relative_to(DOCS) or target.parent == ROOT / "schemas"
            assert published, f"{page.name}: {link} leads to what is no part of the site"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link} names no heading"


def programs() -> list[Block]:
    """The Python blocks that are no example files."""
    return [
        block
        for page in pages()
        for block in blocks(page, "python")
        if block.text not in quoted_examples(page).values()
    ]


# Each program in a child of one process, which has imported for all of them what takes long. What is frozen
# a child does not collect as it ends, which would copy all of it.
FORKING = """
import gc, os, runpy, sys

__import__(sys.argv[1])
gc.freeze()
for folder in sys.argv[2:]:
    if not os.fork():
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
else:
    sys.exit()
os.chdir(folder)
said = os.open("said", os.O_WRONLY | os.O_CREAT)
for number in (1, 2):
    os.dup2(said, number)
sys.argv = ["block.py"]
runpy.run_path("block.py", run_name="__main__")
"""


@pytest.mark.parametrize("needs", ["dftrace_ai.analysis.why", "torch._dynamo"])
def test_the_python_blocks_run(needs: str, tmp_path: Path, run_example: RunExample) -> None:
    pytest.importorskip(needs)
    lacking = [name for name in ("pandas", "polars") if find_spec(name) is None]
    some = [
        block
        for block in programs()
        if ("torch" in block.text) == ("torch" in needs)
        and not any(n in block.text for n in lacking)
    ]
    folders = [tmp_path / str(number) for number in range(len(some))]
    for block, folder in zip(some, folders, strict=True):
        shutil.copytree(run_example("marks.py").folder / "out", folder / "out")
        (folder / "block.py").write_text(block.text, encoding="utf-8")
    ended = run_program(["-c", FORKING, needs, *map(str, folders)], tmp_path)
    assert ended.returncode == 0, ended.stderr
    for block, folder, status in zip(some, folders, ended.stdout.split(), strict=True):
        assert status == "0", f"{block}: {(folder / 'said').read_text()}"


def test_commands_exist() -> None:
    known = set(typer.main.get_command(app).commands)
    named = {
        match
        for page in pages()
        # The first has wrong calls, too, and a test for each; the other kinds of JSON.
        if page.name not in {"first-hour.md", "promises.md"}
        for match in re.findall(r"[`$] ?dftrace ([a-z]+)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= known


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    for page in pages():
        named = re.findall(r"(?:(?<![\w)])`|\$ ?)make ([a-z-]+)", page.read_text(encoding="utf-8"))
        assert set(named) <= known, page.name


def test_the_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (\w+ \w+)", text, re.M)
    assert commands[:2] == ["make demo", "make test"]


def test_the_readme_is_short_and_shows_a_picture() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    (picture,) = re.findall(r"^!\[[^\]]+\]\((\S+)\)$", "\n".join(lines), re.M)
    assert (ROOT / picture).stat().st_size < 30_000


def test_the_summary_shows_the_counts_of_the_example(run_example: RunExample) -> None:
    page = DOCS / "quick-start.md"
    (text,) = [block.text for block in blocks(page, "text") if "dftrace summary" in block.text]
    shown = shown_rows(text)
    trace = run_example("training.py").trace
    found: dict[tuple[str, str], int] = {}
    for event in trace.spans:
        found[event.cat, event.name] = found.get((event.cat, event.name), 0) + 1
    assert shown == found
    assert f"{trace.footer['events']} events in 1 file" in text


def test_the_layout_of_the_project_is_as_described() -> None:
    page = ROOT / "CONTRIBUTING.md"
    for heading in ("Tests", "Generated files"):
        for row in table(section(page, heading)):
            first = ""
            for name in re.findall(r"`([^`]+)`", row[0]):
                path = name if "/" in name else f"{first.rpartition('/')[0]}/{name}"
                first = path
                assert (ROOT / path).exists(), path


def test_the_architecture_names_files_that_exist() -> None:
    page = DOCS / "design" / "architecture.md"
    count = 0
    for heading in (
        *("The rooms", "The seams", "The way of a span", "The way of a trace that is read"),
        *("The way of a tensor", "The way of a logged value"),
        "Where does my change go?",
    ):
        for path in re.findall(r"`([\w.]+/[\w./]*)`", section(page, heading)):
            assert (ROOT / path).exists() or (ROOT / "dftrace_ai" / path).exists(), path
            count += 1
    assert count > 60
    rooms = {
        row[0].strip("`").removeprefix("dftrace_ai/") for row in table(section(page, "The rooms"))
    }
    folders = {path.parent.name for path in (ROOT / "dftrace_ai").glob("*/__init__.py")}
    assert folders <= {room.rstrip("/") for room in rooms}


def test_the_query_of_the_trace_format_runs(tmp_path: Path, run_example: RunExample) -> None:
    import duckdb

    run = run_example("training.py")
    (query,) = blocks(DOCS / "trace-format.md", "sql")
    assert trace_files(run.folder / "out")
    rows = duckdb.sql(query.text.replace("'out/", f"'{run.folder}/out/")).fetchall()
    assert len(rows) == 8
    assert sum(row[2] for row in rows) == len(run.trace.spans)


PAGES = [
    ROOT / "README.md",
    *DOCS.glob("*.md"),
    *DOCS.glob("guide/*.md"),
    *DOCS.glob("questions/*.md"),
]


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
