"""The page on comparing runs: its example, its conditions and its JSON against what the command does."""

from __future__ import annotations

import re
import shlex
from typing import get_args

from analysis.diff.made_pairs import PLANTED
from printed_json import checked
from safety.commands import invoke

from dftrace_ai.analysis.diff import conditions_of, diff_adapter
from dftrace_ai.analysis.diff.comparing import NS, Asked
from dftrace_ai.analysis.diff.model import Kind, Measure
from dftrace_ai.analysis.robust_statistics import steps_needed
from docs.conftest import RunExample
from docs.pages import DOCS, between, blocks, plain, section, table

PAGE = DOCS / "guide" / "compare-two-runs.md"


def test_the_answer_is_as_shown(run_example: RunExample) -> None:
    out = run_example("compared_runs.py").folder / "out"
    done = invoke("diff", out / "before", out / "after")
    assert done.status == 0, done.err
    (shown,) = [block.text for block in blocks(PAGE, "text") if "$ dftrace diff" in block.text]
    first, *lines = [line for line in done.out.splitlines() if line.strip()]
    command, verdict, *shown_lines = [line for line in shown.splitlines() if line.strip()]
    assert command == "$ dftrace diff out/before out/after"
    assert verdict.startswith("SLOWER: ")
    # Where others take the processors, the time of a whole step may be anything: then it says so.
    interval = re.search(r"\(([-+][\d.,]+) to ([-+][\d.,]+) %\)", first)
    assert interval, first
    sure = float(interval[1].replace(",", "")) > 0
    assert first.partition(":")[0] == ("SLOWER" if sure else "NO CLEAR CHANGE")
    rows = [line.split()[:2] for line in lines if line.startswith("  slower")]
    # On a busy machine others may be slower, too.
    named = ["slower", "data.preprocess.augment"]
    assert named in rows
    assert [line.split()[:2] for line in shown_lines if line.startswith("  slower")] == [named]
    heads = [re.split(r"\s{2,}", line.strip()) for line in (lines[1], shown_lines[1])]
    assert heads[0] == heads[1]
    # How many steps are steady depends on the machine.
    closing = [re.sub(r"\d+ steady", "N steady", line) for line in lines]
    for line in shown_lines[-2:]:
        assert re.sub(r"\d+ steady", "N steady", line).replace("out/", f"{out}/") in closing


def test_the_conditions_are_those_of_the_command() -> None:
    rows = {plain(name): text for name, text in table(between(PAGE, "conditions"))}
    assert set(re.findall(r"`(\w+)`", rows["figure"])) == set(get_args(Asked))
    assert set(NS) < set(re.findall(r"`(\w+)`", rows["limit"]))
    (block,) = blocks(PAGE, "sh")
    words = shlex.split(block.text.replace("\\\n", " "))
    texts = [word for before, word in zip(words, words[1:]) if before == "--fail-if"]
    assert [condition.text for condition in conditions_of(texts)] == texts
    needs = {figure: steps_needed(figure) for figure in ("p50", "p95", "p99")}
    statuses = table(section(PAGE, "In CI").split("<!-- conditions: end -->")[1])
    assert [row[0] for row in statuses] == ["0", "1", "2"]
    told = re.findall(r"`(p\d+)` (?:needs )?(\d+)", statuses[2][1])
    assert {figure: int(count) for figure, count in told} == needs


def test_every_kind_and_measure_is_on_the_page() -> None:
    text = section(PAGE, "What is compared")
    assert [plain(row[0]) for row in table(text)] == list(get_args(Measure))
    kinds = table(text.split("| a row is | when |")[1].join(["| a row is | when |", ""]))
    assert {name for row in kinds for name in plain(row[0]).split(", ")} == set(get_args(Kind))


def test_the_json_is_what_the_schema_says() -> None:
    (block,) = blocks(PAGE, "json")
    diff_adapter().validate_python(checked(block.text, "diff"))


def test_the_table_has_a_row_for_all_that_is_planted() -> None:
    rows = table(between(PAGE, "pairs"))
    assert [row[0] for row in rows] == [*PLANTED, "nothing"]
    of = sum(int(row[2]) for row in rows)
    assert f"Of {of} changes " in between(PAGE, "pairs")
