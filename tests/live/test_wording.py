"""Ranks, ages, rates and open spans in words."""

from __future__ import annotations

import pytest

from dftrace_ai.live.wording import age_text, path_text, ranges_text, rate_text
from live.made import spans


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
