"""The page on slow steps: its example, its tables and its JSON against what the command does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from analysis.why import real_runs
from analysis.why.made_runs import PLANTED
from analysis.why.precision_table import row_of
from printed_json import checked
from safety.commands import invoke

from dftrace_ai.analysis.steps import measuring
from dftrace_ai.analysis.why import LIMITS, evidence, late_ranks
from dftrace_ai.analysis.why.findings import counters, patterns, phases
from dftrace_ai.analysis.why.model import KINDS, verdict_adapter
from docs.conftest import RunExample
from docs.pages import DOCS, between, blocks, plain, table

PAGE = DOCS / "guide" / "why-is-my-step-slow.md"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a verdict by their names; the first two lines are `verdict` and `what`."""
    lines = text.splitlines()
    rows = {line[2:12].strip(): line[12:] for line in lines[2:] if line.startswith("  ")}
    return {"verdict": lines[0], "what": lines[1], **rows}


def without_figures(text: str) -> str:
    text = re.sub(r"\d+(?:[.,]\d+)*(?:e\+\d+)?", "N", text)
    return re.sub(r"N (s|ms|us)\b", "TIME", text)


def test_the_answer_is_as_shown(run_example: RunExample) -> None:
    pytest.importorskip("sklearn")
    folder: Path = run_example("slow_loader.py").folder
    result = invoke("why", folder / "out")
    assert result.status == 0, result.err
    (text,) = [block.text for block in blocks(PAGE, "text") if "$ dftrace why out" in block.text]
    shown = rows_of(text.removeprefix("$ dftrace why out\n"))
    told = rows_of(result.out)
    for name in ("what", "because"):
        assert without_figures(told[name]) == without_figures(shown[name]), name
    # Where a busy machine takes long to start the worker, the steps are not most of so short a run.
    best = without_figures(told["at best"]).removeprefix("a step ")
    assert best == without_figures(shown["at best"])
    assert told["verdict"] == shown["verdict"]
    # Whether the host has the cores depends on the host.
    assert without_figures(told["do next"]).startswith("N workers would keep up,")
    assert told["step"].partition(":")[2].startswith(" loader wait ")
    assert told["judged"].endswith(" of 80, by loader blocks")
    assert told["unseen"] == shown["unseen"]


def test_every_kind_and_cause_is_on_the_page() -> None:
    assert [plain(row[0]) for row in table(between(PAGE, "kinds"))] == list(KINDS)
    causes = {planted.partition("/")[2] for planted, _ in PLANTED.values() if "input" in planted}
    assert {plain(row[0]) for row in table(between(PAGE, "causes"))} == causes - {""}


def test_the_limits_are_those_of_the_command() -> None:
    rows = {
        plain(name): (float(warning), float(critical) if critical else None)
        for mark in ("limits", "bounds")
        for name, warning, critical, _ in table(between(PAGE, mark))
    }
    assert rows == {name: tuple(limit) for name, limit in LIMITS.items()}
    (block,) = blocks(PAGE, "sh")
    words = block.text.split()
    limits = [word for before, word in zip(words, words[1:]) if before == "--threshold"]
    from dftrace_ai.analysis.why import limits_of

    assert limits_of(limits) != LIMITS


def test_what_is_fixed_is_as_the_page_says() -> None:
    wanted = [
        *(
            evidence.FEWEST_STEPS,
            patterns.LEAST_BEATS,
            patterns.LEAST_EXCESS,
            patterns.MOST_BY_CHANCE,
        ),
        *(patterns.SLOW_STEP_TIMES, phases.START_STEPS, phases.WARM_UP_STEPS),
        *(measuring.MOST_COME_BACK, patterns.TREND_STEPS),
        *(patterns.LEAST_TAU, patterns.SOME_OF_IT, patterns.ALL_GREW, evidence.LEAST_LOOPS),
        *(
            evidence.LEAST_LONGER,
            patterns.LEAST_OF_KIND,
            patterns.LEAST_APART,
            patterns.MOST_SPREAD,
        ),
        *(patterns.ONE_PART, patterns.NEARLY_ALL, patterns.LEAST_TURNS, patterns.MOST_BY_CUT),
        late_ranks.EXPLAINED,
        *(counters.FEWEST_SAMPLES, counters.LEAST_TAU_OF_MEMORY),
    ]
    assert [float(value) for _, value in table(between(PAGE, "fixed"))] == wanted
    assert counters.SETTLING == 0.2


def test_the_json_is_what_the_schema_says() -> None:
    (block,) = blocks(PAGE, "json")
    verdict_adapter().validate_python(checked(block.text, "why"))


def test_the_table_of_verdicts_has_a_row_for_all_that_is_planted() -> None:
    rows = table(between(PAGE, "verdicts"))
    kinds = {planted.partition("/")[0] for planted, _ in PLANTED.values()}
    assert {row[0].partition(":")[0] for row in rows} == {
        *kinds,
        "nothing",
        "any of these, a category left out",
    }
    runs = sum(int(row[1].replace(",", "")) for row in rows if row[2] and row[0] != "nothing")
    assert f" of {runs}, " in between(PAGE, "verdicts")


def test_the_table_of_real_runs_has_a_row_for_all_that_is_planted() -> None:
    rows = table(between(PAGE, "verdicts of real runs"))
    planted = {row_of(label) for label, _ in real_runs.PLANTED.values()}
    assert [row[0] for row in rows][-1] == "nothing"
    assert {row[0] for row in rows[:-1]} == planted
    # Every kind that a training of one process can have in less than a minute.
    kinds = {label.partition("/")[0] for label, _ in real_runs.PLANTED.values()}
    assert kinds == set(KINDS) - {"host-bound", "start-up-heavy", "late-rank"}
    assert len(real_runs.PLANTED) + len(real_runs.CLEAN) >= 50
    runs = sum(int(row[1]) for row in rows[:-1])
    assert f" of {runs}, " in between(PAGE, "verdicts of real runs")
