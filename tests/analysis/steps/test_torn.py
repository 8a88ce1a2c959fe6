"""Traces of ranks that are cut: what is judged is what no track was lost of, and nobody is told to
annotate what lies in the part that is missing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from safety.commands import invoke

MS = 1_000_000
TRACK = 1 << 30
# Steps of a turn of the recorder, and how many turns there are.
STEPS, TURNS = 30, 3
OTHERS_MS, LATE_MS = 4, 20


def told(command: str, *words: object) -> str:
    """What a command prints, in one line."""
    done = invoke(command, *words)
    assert done.status == 0, done.err
    return " ".join(done.out.split())


def lines_of(rank: int, own_ms: int = 0, world: int = 2) -> tuple[TraceLines, list[int]]:
    """A rank as `auto` records it: a turn's steps, then its collectives; and the ends of turns."""
    trace = TraceLines(200 + rank, rank=rank, world_size=world, cpus=2)
    ranks = [*range(world)]
    group = f'{{"name":"0","description":"default_pg","ranks":{ranks}}}'
    trace.custom("process_group", group)
    ends = []
    for turn in range(TURNS):
        calls = []
        for step in range(turn * STEPS, (turn + 1) * STEPS):
            at = 1000 * MS + step * 25 * MS
            own = own_ms or (LATE_MS if rank == 1 else OTHERS_MS)
            if own_ms:
                # Of two ranks each has a processor.
                trace.counter("cpu %", at, process=100.0, system=100.0)
            trace.span("forward", "compute", at, own * MS, step=step)
            trace.span("backward", "compute", at + own * MS, (23 - own) * MS, step=step)
            trace.span("step", "compute", at + 23 * MS, MS, step=step)
            trace.span("step", "pipeline", at, 24 * MS, tid=TRACK, step=step, microbatches=1)
            calls.append((step, at + (own + 1) * MS, at + 22 * MS))
        for step, begin, end in calls:
            told = {"group": "0", "step": step, "seq": step, "nth": step, "bytes": 4096}
            trace.span("all_reduce", "comm", begin, end - begin, tid=TRACK + 1, **told)
        ends.append(len(trace.lines))
    trace.footer()
    return trace, ends


def torn(folder: Path, share: dict[int, float], *, whole_lines: bool) -> Path:
    """Both ranks, each with so much of its last turn but one, in steps and then collectives."""
    folder.mkdir()
    for rank in (0, 1):
        trace, ends = lines_of(rank)
        lines = [f"{line}\n".encode() for line in trace.lines]
        if rank in share:
            kept = ends[0] + int(share[rank] * (ends[1] - ends[0]))
            cut = gzip.compress(b"".join(lines[:kept]))
            rest = gzip.compress(b"".join(lines[kept:]))
            text = cut if whole_lines else cut + rest[:30]
        else:
            text = gzip.compress(b"".join(lines))
        (folder / f"t-host-{200 + rank}.pfw.gz").write_bytes(text)
    return folder


# Steps are four fifths of a turn's lines.
@pytest.mark.parametrize(("cut", "share"), [({0}, 0.05), ({1}, 0.4), ({0, 1}, 0.9)])
def test_nobody_is_told_to_annotate_what_was_torn_off(
    tmp_path: Path, cut: set[int], share: float
) -> None:
    folder = torn(tmp_path / "cut", dict.fromkeys(cut, share), whole_lines=False)
    for command in ("why", "ranks", "whatif"):
        said = told(command, folder)
        for advice in ("Annotate", "annotated: communication", "ai.comm", "dftrace run records"):
            assert advice not in said
        assert "torn" in said
        assert "ONE SLOW RANK" in said


@pytest.mark.parametrize(("share", "lost"), [(0.3, 11), (0.7, 26), (0.9, 15)])
def test_steps_whose_collectives_are_missing_are_told_and_not_judged(
    tmp_path: Path, share: float, lost: int
) -> None:
    folder = torn(tmp_path / "cut", {1: share}, whole_lines=False)
    said = told("why", folder)
    assert f"torn before the collectives of the last {lost} steps of rank 1" in said
    # Of the next turn those are whole whose collectives are there.
    whole = STEPS + (STEPS - lost if share > 0.8 else 0)
    assert f" of {whole}, by step spans, shown of rank 1" in said
    counted = invoke("sql", folder, "--csv", "select count(*) n from steps where rank = 1")
    assert counted.out.split() == ["n", str(whole)]
    notes = json.loads(invoke("why", "--json", folder).out)["notes"]
    assert any(
        "torn: the file ends" in note and note.endswith(" of the run's 2.25 s") for note in notes
    )


def test_a_file_that_ends_with_a_whole_block_says_that_it_has_no_end(tmp_path: Path) -> None:
    folder = torn(tmp_path / "cut", {1: 0.0}, whole_lines=True)
    for command in ("why", "ranks", "whatif"):
        out = told(command, folder)
        assert "t-host-201.pfw.gz: no closing line" in out
        assert "up to 0.749 of the run's 2.25 s" in out
    # Of one that may still be written the words of the spool tell.
    (folder / "t-host-201.spool-at").write_text("/nowhere/that/is", "utf-8")
    assert "t-host-201.pfw.gz: no closing line" not in told("why", "--no-recover", folder)


@pytest.mark.parametrize("count", [4, 60])
def test_of_what_has_no_step_left_it_is_said(tmp_path: Path, count: int) -> None:
    """Of the header alone, and of steps without any of their collectives."""
    for rank in (0, 1):
        text = "\n".join([*lines_of(rank)[0].lines[:count], '{"na']).encode()
        (tmp_path / f"t-host-{200 + rank}.pfw").write_bytes(text)
    out = told("why", tmp_path)
    assert "no steps were found that can be judged: the traces are not whole" in out
    for command in ("ranks", "whatif"):
        assert "are not whole, and have no step that can be judged" in invoke(command, tmp_path).err


def test_info_says_that_a_file_is_torn(tmp_path: Path) -> None:
    folder = torn(tmp_path / "cut", {1: 0.5}, whole_lines=False)
    assert "t-host-201.pfw.gz: torn: its last block or line is cut" in invoke("info", folder).err


def of_several(folder: Path, own_ms: list[int], kept: int) -> Path:
    """Ranks that each work so long, and of rank 1 so many lines."""
    folder.mkdir(exist_ok=True)
    for rank, ms in enumerate(own_ms):
        text = lines_of(rank, ms, len(own_ms))[0].text
        if rank == 1:
            text = b"\n".join(text.splitlines()[:kept]) + b'\n{"na'
        (folder / f"t-host-{200 + rank}.pfw").write_bytes(text)
    return folder


# Of which no step is left, and steps without their collectives.
@pytest.mark.parametrize("kept", [6, 60])
def test_waiting_that_may_be_for_a_torn_rank_is_no_finding(tmp_path: Path, kept: int) -> None:
    folder = of_several(tmp_path, [OTHERS_MS, LATE_MS], kept)
    said = told("why", folder)
    assert "NO VERDICT" in said
    assert "whom ranks wait for: rank 1, whose trace is torn, may be late" in said
    assert "overlap" not in said
    # What it has used is not others'.
    assert "other programs" not in said
    assert "times as fast" not in said


def test_what_is_won_without_a_late_rank_is_unsure_where_another_is_torn(tmp_path: Path) -> None:
    folder = of_several(tmp_path, [4, 20, 12, 4], 60)
    why, ranks, whatif = (told(command, folder) for command in ("why", "ranks", "whatif"))
    for said in (why, ranks, whatif):
        assert "ONE SLOW RANK" in said
        assert "rank 2" in said.lower()
    assert "times as fast, without it; but rank 1, whose trace is torn, may be late" in why
    assert "without it the run would be at most " in ranks
    assert "1 of 4 ranks have no trace that can be judged: 1; were they as slow" in whatif


def test_few_steps_of_a_torn_rank_tell_of_no_others(tmp_path: Path) -> None:
    """Nor how long it was there before its second step."""
    lines = lines_of(1)[0].lines
    first = lines_of(1)[1][0]
    steps = [at for at, line in enumerate(lines[:first]) if '"cat":"pipeline"' in line][:12]
    calls = [at for at, line in enumerate(lines[:first]) if '"cat":"comm"' in line][:12]
    folder = of_several(tmp_path, [OTHERS_MS, LATE_MS], 0)
    kept = [*lines[: steps[-1] + 1], *(lines[at] for at in calls), '{"na']
    (folder / "t-host-201.pfw").write_text("\n".join(kept))
    verdict = json.loads(invoke("why", "--json", folder).out)
    assert (verdict["verdict"], verdict["rank"]) == ("abstained", 0)
    assert verdict["abstained"][-1]["why"] == "rank 1, whose trace is torn, may be late"
