"""The table of a job in any width; ranks, ages, rates and open spans in words."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dftrace_ai.cli.live_view.page import page
from dftrace_ai.live import RankStatus, Snapshot, judge
from dftrace_ai.live.wording import age_text, path_text, ranges_text, rate_text
from live.made import NOW, NS, dead, hidden, process, snapshot_of, spans, thread

TRAIN = ("pipeline.train", "pipeline.epoch.block", "dataloader.fetch.block")


def drawn(
    snapshot: Snapshot, width: int = 120, rows: int | None = None, *, coloured: bool = False
) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    for part in page(snapshot, width, rows, coloured=coloured):
        console.print(part)
    return [line.rstrip() for line in console.export_text().splitlines()]


def training(rank: int, **other: object) -> RankStatus:
    shares = {"compute": 3.0, "comm": 1.0, "dataloader": 0.5, "pipeline": 0.01}
    inside = thread(*TRAIN, "compute.forward", for_s=0.0123, tid=1000 + rank, self_s=shares)
    return process(rank, threads=[inside], **other)


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_a_row_says_where_a_rank_is_and_how_its_time_goes() -> None:
    head, columns, _, row = drawn(snapshot_of(training(3, step=412, epoch=7)), 140)
    assert head.startswith("training, run 3f2a9c01  1 process  node1  for 10 min  ")
    assert columns.split() == ("rank open spans for last 5 s step events/s epoch pid".split())
    assert " ".join(row.split()) == (
        "3 train > epoch > fetch > compute.forward 12.3 ms "
        "60% compute 20% comm 10% dataloader 412 100 7 1003"
    )
    # The last seconds of a dead one are not those before now.
    row = drawn(snapshot_of(training(3, step=412, epoch=7, state="dead")), 140)[-1]
    assert "412" in row
    assert "%" not in row


def test_time_in_no_category_is_told_as_such() -> None:
    spent = {"compute": 1.5, "dataloader": 0.1}
    body = thread(*TRAIN, for_s=0.2, tid=1003, self_s=spent)
    row = drawn(snapshot_of(process(3, threads=[body])), 160, coloured=True)[-1]
    assert " ".join(row.split()).startswith(
        "3 train > epoch > fetch 0.2 s ███······· 68% not annotated 30% compute 2% dataloader 12"
    )


def test_a_wide_screen_has_bars() -> None:
    snapshot = snapshot_of(training(3))
    assert "█" * 9 + "·" in drawn(snapshot, 160, coloured=True)[-1]
    assert "█" not in drawn(snapshot, 160)[-1]


@pytest.mark.parametrize("width", [200, 160, 120, 100, 80, 60, 40])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    ranks = [training(rank, host=f"node{rank % 2}") for rank in range(6)]
    odd = process(6, *TRAIN, "data.a_name_of_considerable_length_that_no_screen_has_room_for")
    lines = drawn(
        snapshot_of(*ranks, odd, dead(7, "data.item", for_s=99.0), hidden=[hidden(8)]), width
    )
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 3 + 8 + 1
    inner = "compute.forward" if width > 40 else "compute.f"
    assert all(inner in line for line in lines[3:9])


def test_those_that_differ_come_first_where_not_all_have_room() -> None:
    ranks = [process(rank, *TRAIN, "comm.all_reduce", for_s=30.0) for rank in range(100)]
    ranks[70] = process(70, *TRAIN, "dataloader.fetch.iter", for_s=30.0)
    ranks[80] = dead(80, "comm.all_reduce", for_s=9.0)
    lines = drawn(snapshot_of(*ranks), 120, rows=20)
    assert len(lines) == 20
    assert [line.split()[0] for line in lines[3:7]] == ["70", "80", "0", "1"]
    assert "elsewhere" in lines[3]
    assert "9.0 s ago" in lines[4]
    assert "dead" in lines[4]
    assert lines[-1] == "84 more, for which there is no room; those that differ come first"
    assert [line.split()[0] for line in drawn(snapshot_of(*ranks))[3:]] == list(
        map(str, range(100))
    )


def test_a_screen_of_a_few_lines_still_shows_a_rank() -> None:
    ranks = [process(rank, "comm.all_reduce", for_s=30.0) for rank in range(9)]
    lines = drawn(snapshot_of(*ranks), 80, rows=3)
    assert any(line.split()[:2] == ["0", "comm.all_reduce"] for line in lines)


def test_ranks_without_spans_and_without_records() -> None:
    idle = process(0, threads=[thread(tid=1000, last_ns=NOW - NS, self_s={})])
    blank = process(1, threads=[], step=None, epoch=None, events_per_s=None)
    lines = drawn(snapshot_of(idle, blank))
    assert [" ".join(line.split())[:12] for line in lines[3:]] == ["0 in no span", "1 in no span"]


def test_names_cannot_steer_the_terminal() -> None:
    evil = process(
        0,
        "data.\x1b[2J\r\n\x9b31m",
        host="a\x1bb",
        prefix="/o/\x1b]0;x\x07",
        write_error="\x1b[1m",
    )
    snapshot = snapshot_of(
        evil, process(1, host="b"), hidden=[hidden(2, "\x1b")], problems=["\x1b"]
    )
    for width in (60, 200):
        lines = drawn(snapshot, width)
        assert len(lines) == 3 + 2 + 2
        assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([3, 1, 2], "1-3"), ([0, 1, 5, 7, 8], "0-1, 5, 7-8"), ([2, 2], "2")],
)
def test_numbers_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges_text(numbers) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 ms"),
        (0.0034, "3.4 ms"),
        (0.0999, "0.1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (599.4, "599 s"),
        (1234.0, "21 min"),
        (3600.0, "1:00 h"),
        (7500.0, "2:05 h"),
        (200_000.0, "2.3 days"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "0"),
        (0.44, "0.4"),
        (99.4, "99.4"),
        (99.6, "100"),
        (9999.0, "9999"),
        (12_345.0, "12.3k"),
        (1_234_567.0, "1.2M"),
    ],
)
def test_rates_have_five_characters(rate: float, text: str) -> None:
    assert rate_text(rate) == text
    assert len(text) <= 5


def test_a_path_loses_its_outer_spans_first() -> None:
    path = spans("pipeline.train", "pipeline.epoch.block", "comm.all_reduce")
    assert path_text(path) == "train > epoch > comm.all_reduce"
    assert path_text(path, 30) == "… > epoch > comm.all_reduce"
    assert path_text(path, 20) == "… > comm.all_reduce"
    assert path_text(path, 15) == "comm.all_reduce"
    assert path_text(path, 10) == "comm.all_…"
    assert path_text([]) == ""


def test_a_label_says_nothing_twice() -> None:
    labels = [span.label for span in spans("data.io.open", "compute", "data.data.io.read")]
    assert labels == ["data.io.open", "compute", "data.io.read"]


def words(*processes: RankStatus) -> list[list[str]]:
    marks = judge(snapshot_of(*processes))
    return [[mark.word for mark in marks[one.identity]] for one in processes]


def test_a_healthy_job_has_no_remarks() -> None:
    places = ("compute.forward", "compute.backward", "comm.all_reduce", "dataloader.fetch.iter")
    ranks = [
        process(rank, "pipeline.train", places[rank % 4], for_s=0.02, step=100 + rank % 2)
        for rank in range(16)
    ]
    assert words(*ranks) == [[]] * 16


def test_a_rank_that_is_not_where_most_are() -> None:
    ranks = [process(rank, "comm.all_reduce", for_s=30) for rank in range(7)]
    odd = process(7, "dataloader.fetch.iter", for_s=30)
    assert words(*ranks, odd) == [[]] * 7 + [["elsewhere"]]
    # For a moment it may be: the others are about to follow.
    assert words(*ranks, process(7, "compute.forward", for_s=0.1)) == [[]] * 8


def test_of_two_ranks_the_one_that_waits_is_not_the_one_to_look_at() -> None:
    assert words(process(0, "comm.all_reduce"), process(1, "data.item")) == [[], ["elsewhere"]]
    assert words(process(0, "compute.forward"), process(1, "data.item")) == [[], []]


def test_who_waits_in_a_backward_pass_is_not_the_one_to_look_at() -> None:
    backward, item = process(0, "compute.backward"), process(1, "data.preprocess")
    assert words(backward, item) == [[], ["elsewhere"]]
    assert words(process(0, "comm.all_reduce"), process(1, "compute.backward")) == [
        [],
        ["elsewhere"],
    ]
    both = [process(0, "comm.all_reduce"), process(1, "compute.backward")]
    assert words(*both, process(2, "data.preprocess")) == [[], [], ["elsewhere"]]
    brief = process(0, "compute.backward", for_s=0.5)
    assert words(brief, process(1, "data.preprocess", for_s=0.5)) == [[], []]


def test_a_rank_without_an_open_span_is_elsewhere_too() -> None:
    idle = process(2, threads=[thread(tid=1002, last_ns=NOW - 40 * NS)])
    others = [process(rank, "comm.all_reduce", for_s=30) for rank in (0, 1)]
    assert words(*others, idle) == [[], [], ["elsewhere"]]


def test_steps_behind_the_median() -> None:
    steps = [100, 100, 99, 98, 100]
    ranks = [process(r, "compute.forward", for_s=0.01, step=s) for r, s in enumerate(steps)]
    assert words(*ranks) == [[], [], [], ["behind"], []]


def test_steps_begin_again_with_each_epoch() -> None:
    # The last step of an epoch and the first of the next one are a step apart.
    at = [(1, 0), (1, 0), (0, 99), (1, 0)]
    ranks = [
        process(r, "compute.forward", for_s=0.01, epoch=e, step=s) for r, (e, s) in enumerate(at)
    ]
    assert words(*ranks) == [[]] * 4
    ranks[2] = process(2, "compute.forward", for_s=0.01, epoch=0, step=99)
    ranks[:2] = [process(r, "compute.forward", for_s=0.01, epoch=1, step=7) for r in (0, 1)]
    assert words(*ranks[:3]) == [[], [], ["behind"]]


def test_rates_far_from_the_usual_one() -> None:
    rates = [100.0, 101.0, 99.0, 100.5, 60.0, 180.0]
    ranks = [
        process(r, "compute.forward", for_s=0.01, events_per_s=rate) for r, rate in enumerate(rates)
    ]
    assert words(*ranks) == [[], [], [], [], ["slow"], ["busy"]]
    # Three ranks do not tell what is usual, and a few per cent are not unusual.
    assert words(*ranks[2:5]) == [[]] * 3
    assert words(*ranks[:4]) == [[]] * 4


def test_dead_ones_and_losses_are_told_of_workers_too() -> None:
    worker = process(0, "data.item", pid=5, worker=True, state="dead", dropped=3)
    full = process(1, "compute.forward", for_s=0.01, write_error="No space left on device")
    assert words(worker, full) == [["dead", "drops"], ["unwritable"]]


def test_workers_are_not_held_against_ranks() -> None:
    ranks = [process(rank, "comm.all_reduce") for rank in range(3)]
    workers = [process(rank, "data.item", pid=50 + rank, worker=True, step=1) for rank in range(3)]
    assert words(*ranks, *workers) == [[]] * 6


def test_jobs_are_judged_by_themselves() -> None:
    ranks = [process(rank, "comm.all_reduce") for rank in range(3)]
    other = process(0, "data.item", pid=77, run="00" * 16)
    assert words(*ranks, other) == [[]] * 4
