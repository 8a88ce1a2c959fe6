"""Every kind of finding, and silence, in words: a title, a sentence, fifteen lines; and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, get_args

import orjson
import pytest
from printed_json import checked

from dftrace_ai.analysis.ranks.model import (
    KINDS,
    LIMITS,
    ClocksSeen,
    CollectiveRow,
    Evidence,
    Excess,
    Finding,
    Quantiles,
    RankShare,
    RanksSeen,
    RanksVerdict,
    StepsSeen,
    Waiting,
)
from dftrace_ai.analysis.ranks.partials import NOT_ANNOTATED, Place
from dftrace_ai.analysis.ranks.words import sentences_of, title_of, verdict_lines
from dftrace_ai.analysis.texts import MOST_LINES
from dftrace_ai.analysis.thresholds import Abstention
from dftrace_ai.analysis.whatif import words as whatif_words
from dftrace_ai.analysis.whatif.model import (
    REASONS,
    Bubble,
    Cause,
    CauseKind,
    Figures,
    Shares,
    StepsJudged,
    Unjudged,
    WhatIf,
    Without,
)

MS = 1_000_000
PLACES = {
    rank: Place(rank, 64, f"node{rank // 8}", "", rank % 8, (("dp", rank),), "run", 1, 4000 + rank)
    for rank in range(64)
}
FIGURES = Evidence(
    210 * MS,
    (Excess("compute/backward", 35_900_000, 0.94, 0.9),),
    Waiting("all_reduce", "dp", 36_400_000, 1.0),
)
ONE = Finding(
    "worker", "persistent", (17,), (), (), None, "critical", "high", 0.17, 0.16, 0.92, 38_200_000,
    "compute/backward", 0.94, 1.21, FIGURES,
)  # fmt: skip
NOBODY = {"ranks": (), "last_share": 0.0}
LINK = Evidence(1, collective="send", group="pp", transfer_ns=12 * MS, usual_ns=MS)

# By name: what differs from the one slow rank; its title, and what the sentence and next say.
FOUND: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "worker": (
        {},
        "ONE SLOW RANK",
        "Rank 17 on node2 was the slowest in 92 % of the steps, by 38.2 ms of 210 ms.",
        "the machine: clocks and temperature of node2 (local rank 1); then the data of rank 17",
    ),
    "workers": ({"ranks": (3, 17)}, "SLOW RANKS", "Ranks 3, 17 were the slowest in", "those ranks"),
    "since": (
        {"since": 1204, "turn": "since"},
        "SLOW SINCE STEP 1,204",
        "Since step 1,204 rank 17 on node2 is the slowest in 92 % of the steps",
        "the machine",
    ),
    "loader": (
        {"name": "dataloader/fetch.iter"},
        "ONE SLOW RANK",
        "Rank 17",
        "its loader: the workers, the storage and the CPUs of node2 (local rank 1)",
    ),
    "nowhere": ({"name": NOT_ANNOTATED}, "ONE SLOW RANK", "Rank 17", "annotate it"),
    "node": (
        {"kind": "node", "ranks": tuple(range(16, 24)), "hosts": ("node2",)},
        "SLOW NODE",
        "Host node2 (ranks 16, 17, 18, 19, 20, 21, 22, 23) was the slowest",
        "clocks and temperature of host node2",
    ),
    "stage": (
        {"kind": "stage", "ranks": (2, 3), "stages": (1,)},
        "SLOW STAGE",
        "Stage 1 (ranks 2, 3) was the slowest",
        "move layers from stage 1 to the others",
    ),
    "stage or worker": (
        {"kind": "stage or worker", "ranks": (1,), "stages": (1,)},
        "SLOW STAGE OR RANK",
        "Stage 1 (rank 1) was the slowest",
        "the machine of rank 1 first",
    ),
    "bursts": (
        {
            "kind": "bursts",
            "turn": "bursts",
            "evidence": replace(FIGURES, steps=12, step_numbers=(40, 95, 99)),
        },
        "ONE RANK PAUSES",
        "Rank 17 on node2 kept the others waiting in 12 of 498 steps, for 38.2 ms on average.",
        "what rank 17 alone does in steps 40, 95, 99 and 9 more (dftrace view --steps 40:41 shows",
    ),
    "bursts in a rhythm": (
        {
            "kind": "bursts",
            "turn": "bursts",
            "evidence": replace(FIGURES, steps=9, step_numbers=(50, 100, 150, 200, 250)),
        },
        "ONE RANK PAUSES",
        "Rank 17 on node2 kept the others waiting in 9 of 498 steps, for 38.2 ms on average.",
        "what rank 17 alone does every 50 steps (dftrace view --steps 50:51 shows step 50): saving",
    ),
    "a span": (
        {
            "evidence": replace(
                FIGURES, excess=(Excess("compute/backward", 35_900_000, 0.94, 0.6),)
            ),
        },
        "ONE SLOW RANK",
        "Rank 17",
        "what rank 17 does in backward and the others do not: hooks, other data; then the machine",
    ),
    "a span of several": (
        {
            "ranks": (3, 17),
            "evidence": replace(FIGURES, excess=(Excess("compute/backward", 30_000_000, 0.9, 0.6),)),
        },
        "SLOW RANKS",
        "Ranks 3, 17",
        "what those ranks do in backward and the others do not",
    ),
    "bursts of several": (
        {"kind": "bursts", "turn": "bursts", "ranks": (3, 17)},
        "SOME RANKS PAUSE",
        "Ranks 3, 17",
        "what those ranks alone do now and then",
    ),
    "bursts of a loader": (
        {
            "kind": "bursts",
            "turn": "bursts",
            "name": "dataloader/fetch.iter",
            "evidence": replace(FIGURES, steps=12),
        },
        "ONE RANK PAUSES",
        "Rank 17 on node2 kept the others",
        "its loader",
    ),
    "split": (
        {"kind": "split", "ranks": tuple(range(0, 64, 2))},
        "TWO KINDS OF RANKS",
        "Ranks 0, 2, 4, 6, 8, 10, 12, 14",
        "what those ranks have and the others have not",
    ),
    "once": (
        {
            "kind": "once",
            "turn": "once",
            "severity": "info",
            "evidence": replace(FIGURES, steps=1, step_numbers=(1040,)),
        },
        "ONE RANK WAS LATE ONCE",
        "Rank 17 on node2 kept the others waiting once, in step 1,040, for 38.2 ms; the usual",
        "what rank 17 did in step 1040: dftrace view --steps 1040:1041",
    ),
    "pauses": (
        {
            **NOBODY,
            "kind": "pauses",
            "turn": "rotating",
            "evidence": replace(FIGURES, steps=31, ranks_hit=14, step_numbers=(7, 19)),
        },
        "PAUSES",
        "In 31 of 498 steps all waited for one that paused, 14 ranks by turns: 17 % of the time.",
        "what stops a rank in steps 7, 19 and 29 more (dftrace view --steps 7:8 shows the first)",
    ),
    "data": (
        {
            **NOBODY,
            "kind": "data",
            "turn": "rotating",
            "evidence": replace(FIGURES, correlation=0.93),
        },
        "UNEVEN DATA",
        "17 % of the time all wait for the one with most to do, now this rank and now that: its",
        "by length",
    ),
    "jitter": (
        {
            **NOBODY,
            "kind": "jitter",
            "turn": "rotating",
            "evidence": replace(FIGURES, ranks_of_host=4, cpus=2),
        },
        "JITTER",
        "17 % of the time all wait for the slowest, now this rank and now that: 4 ranks share 2",
        "cores for each rank",
    ),
    "jitter, mostly of one": (
        {
            **NOBODY,
            "kind": "jitter",
            "turn": "rotating",
            "last_share": 0.81,
            "evidence": replace(FIGURES, mostly=1),
        },
        "JITTER",
        "17 % of the time all wait for the slowest, rank 1 in 81 % of the steps.",
        "and what rank 1 does beside the others",
    ),
    "bubble": (
        {**NOBODY, "kind": "bubble", "evidence": replace(FIGURES, stages=4, passes=8)},
        "PIPELINE BUBBLE",
        "17 % of the time all ranks wait while the pipeline fills and drains: 4 stages with 8",
        "more micro-batches a step: twice as many leave 16 % of it idle, four times as many 9 %",
    ),
    "link": (
        {"kind": "link", "ranks": (3, 11), "evidence": LINK},
        "SLOW LINK",
        "Send of group pp of ranks 3, 11 takes 12 ms, of others alike 1 ms.",
        "the network card and the cable between",
    ),
    "memory": (
        {
            "kind": "memory",
            "severity": "info",
            "cost": 0.0,
            "evidence": Evidence(1, peak_bytes=31 * 10**9, usual_bytes=22 * 10**9),
        },
        "MEMORY UNEVEN",
        "Rank 17 on node2 holds 31 GB, the others 22 GB.",
        "what rank 17 holds",
    ),
}  # fmt: skip


def told(name: str) -> Finding:
    changed, *_ = FOUND[name]
    finding = replace(ONE, **changed)
    what, following = sentences_of(finding, PLACES, 498)
    return replace(finding, what=what, next=following)


def verdict_of(*findings: Finding, **more: Any) -> RanksVerdict:
    row = CollectiveRow(
        "all_reduce", "dp", "", tuple(range(64)), 1, True, 1494, 1 << 20,
        Quantiles(MS, 2 * MS), Quantiles(36 * MS, 40 * MS), 0.17, (RankShare(17, 0.9),),
        (RankShare(17, 0.95),), 36 * MS, 12.0, 23.0,
    )  # fmt: skip
    verdict = RanksVerdict(
        findings[0].kind if findings else "none",
        RanksSeen(64, 64),
        StepsSeen(500, 498, 210 * MS),
        ClocksSeen(8, 300_000),
        findings,
        RankShare(9, 0.008),
        (row,),
        unseen=("memory (system_counters_s)", "the GPU (times are the host's)"),
    )
    return replace(verdict, **more)


def test_every_kind_is_tried() -> None:
    assert {FOUND[name][0].get("kind", "worker") for name in FOUND} == {*KINDS}


@pytest.mark.parametrize("name", FOUND)
def test_a_finding_has_a_title_a_sentence_and_what_to_try(name: str) -> None:
    _, title, what, following = FOUND[name]
    finding = told(name)
    assert title_of(finding) == title
    assert finding.what.startswith(what), finding.what
    assert following in finding.next, finding.next
    others = [told(other) for other in FOUND if other != name]
    more = {"notes": tuple("abcde"), "abstained": (Abstention("the GPU", "it is not seen"),)}
    for verdict in (verdict_of(finding), verdict_of(finding, *others, **more)):
        lines = verdict_lines(verdict)
        assert len(lines) <= MOST_LINES
        assert lines[:3] == [f"{title}  ({finding.severity}, high confidence)", finding.what, ""]
        assert sum(line.startswith("  unseen") for line in lines) == 1
        checked(orjson.dumps(verdict).decode(), "ranks")


def test_what_brings_nothing_is_not_once_as_fast() -> None:
    cheap = replace(told("once"), cost=0.003, without=1.003)
    assert "  costs     0.3 % of the time" in verdict_lines(verdict_of(cheap))


def test_the_words_are_those_of_the_guide() -> None:
    clocks = "clocks of 8 hosts agree within 300 us"
    assert verdict_lines(verdict_of(told("since"))) == [
        "SLOW SINCE STEP 1,204  (critical, high confidence)",
        told("since").what,
        "",
        "  its own   backward 35.9 ms longer than the others' (94 % of it)",
        "  costs     17 % of the time; without it the run would be 1.21 times as fast",
        "  since     step 1,204 (before: like the others)",
        "  others    wait 36.4 ms a step in all_reduce of group dp",
        f"  do next   {told('since').next}",
        f"  judged    498 steps of 64 ranks, 1,494 collectives; {clocks}",
        "  unseen    memory (system_counters_s); the GPU (times are the host's)",
    ]


def test_silence_has_its_reason_and_nobody_late_its_cost() -> None:
    nobody = verdict_lines(verdict_of())
    assert nobody[:2] == ["NOBODY IS LATE", "The slowest of 64, rank 9, costs 0.8 %."]
    assert "  waits     17 % of the steps, in all_reduce of group dp" in nobody
    silent = verdict_of(verdict="abstained", abstained=(Abstention("run", "one rank"),))
    assert verdict_lines(silent)[0] == "NO VERDICT"
    assert "  because   one rank" in verdict_lines(silent)
    checked(orjson.dumps(silent).decode(), "ranks")


CAUSES: dict[CauseKind, Cause] = {
    "none": Cause("none", ranks=(17,)),
    "worker": Cause("worker", 0.9, ranks=(17,), since=40),
    "node": Cause("node", 0.9, ranks=(16, 17), hosts=("node2",)),
    "stage": Cause("stage", 0.7, stages=(1,)),
    "stage or worker": Cause("stage or worker", 0.7, ranks=(1,), stages=(1,)),
    "split": Cause("split", 1.0, ranks=(16, 17), without=1.9),
    "data": Cause("data", 0.81, correlation=0.99),
    "pauses": Cause("pauses", 0.6, correlation=-0.03),
    "garbage collection": Cause("garbage collection", 0.6),
    "jitter": Cause("jitter", 0.6),
    "bubble": Cause("bubble", 0.2),
    "communication": Cause("communication", 0.8, kinds=("comm/send forward",)),
    "several": Cause("several", 0.4),
    "abstained": Cause("abstained"),
}
SAYS = {
    "none": "Ranks work one after the other: shared out their work would take as long; did rank 17 "
    "as little as the others, the run would be 1.21 times as fast.",
    "worker": "90 % of that goes when rank 17 does as much as the others since step 40.",
    "data": "81 % of that goes when each operation of a rank takes its mean (forward and backward "
    "of one micro-batch go together, at 0.99).",
    "pauses": "60 % of that goes when each operation of a rank takes its mean.",
    "split": "All of that goes when ranks 16, 17 do as much as the others. Did they as little as the "
    "others do now, and saw communication end as soon, the run would be 1.9 times as fast.",
    "jitter": "60 % of that goes when each operation of a rank takes its mean, and communication what",
    "bubble": "Even so all ranks wait 20 % of a step while the pipeline fills and drains: 2 stages",
    "communication": "80 % of that goes when communication takes what it usually does.",
    "several": "No single cause makes half of that.",
}


@pytest.mark.parametrize("kind", get_args(CauseKind))
def test_what_a_job_would_be_with_even_work_is_told(kind: CauseKind) -> None:
    nothing = kind == "abstained"
    found = WhatIf(
        None if nothing else 1.01 if kind == "none" else 1.26,
        CAUSES[kind],
        Bubble(2, 4, 0.2) if kind in {"bubble", "stage"} else None,
        None if nothing else Shares(0.1, 0.2, 0.05, 0.81, 0.02, 0.83),
        "host",
        StepsJudged(498, 100, 4, False, 0, 400),
        64,
        120_000,
        210 * MS,
        208 * MS,
        0.03,
        165 * MS,
        by_rank={rank: Figures(1.2, 0.9, 1.21 if rank == 17 else 1.0) for rank in range(64)},
        without=(Without((("rank", "17"),), (17,), 1.21, 36 * MS),),
        waste_gpu_hours=12.5,
        notes=tuple("abcd"),
        unseen=("the GPU (times are the host's)",),
        abstained=tuple(Unjudged(reason, 0.2, ("a", "b")) for reason in REASONS[:4])
        if nothing
        else (),
    )
    told_of = whatif_words.in_words(found, LIMITS["cost"])
    lines = whatif_words.verdict_lines(told_of)
    assert len(lines) <= MOST_LINES
    assert told_of.severity == (None if kind in {"none", "abstained"} else "critical")
    assert SAYS.get(kind, "") in told_of.what
    assert "{" not in "".join(lines)
    if kind == "stage":
        assert "  bubble    20 % of a step with even work all wait while the pipeline" in "".join(
            lines
        )
    if kind == "communication":
        assert told_of.next.startswith("the links of comm/send")
    if nothing:
        assert lines[0] == "NO VERDICT"
        because = "one rank has a trace that can be judged, and nothing is there to compare it with"
        assert f"  because   {because}" in lines
    else:
        assert "; the model misses 3.0% of it" in "".join(lines).replace(" %", "%")
        assert (
            "  without   rank 17: the run would be 1.21 times as fast, 36 ms a step less" in lines
        )
        alone = whatif_words.verdict_lines(replace(told_of, without=()))
        assert "  without   rank 17 1.21 times as fast" in alone
    checked(json.dumps(asdict(told_of)), "whatif")


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_for_silence_is_a_sentence(reason: Any) -> None:
    found = WhatIf(abstained=(Unjudged(reason, 0.03, ("node1",)),))
    (told_of,) = whatif_words.in_words(found, LIMITS["cost"]).abstained
    assert told_of.why
    assert "{" not in told_of.why
