"""When a feature is due."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_configs import LOG, example, one_section, section_of

from dftrace_ai.inspect.config import LayerInfo, Schedule, layer_plan
from dftrace_ai.inspect.errors import InspectValueError

LAYER = LayerInfo("model.fc1", "Linear")


def schedule_of(keys: dict[str, Any]) -> Schedule:
    (observe,) = layer_plan(section_of(one_section(LogTensorStats={**LOG, **keys})), LAYER).observe
    return observe.schedule


DUE: list[tuple[Any, ...]] = [
    ({}, 4, [0, 1, 2, 3]),
    ({"freq": None}, 4, [0, 1, 2, 3]),
    ({"freq": 3.0, "start_step": 2.0, "end_step": None}, 10, [3, 6, 9]),
    ({"freq": 1, "start_step": 2, "end_step": 5}, 9, [2, 3, 4, 5]),
    ({"freq": 10, "start_step": 5, "end_step": 30}, 50, [10, 20, 30]),
    ({"freq": 4, "start_step": 3}, 13, [4, 8, 12]),
    ({"end_step": 2}, 9, [0, 1, 2]),
    ({"end_step": None, "freq": 4}, 9, [0, 4, 8]),
    ({"end_step": -1, "freq": 4}, 9, [0, 4, 8]),
    ({"start_step": None, "end_step": 1}, 9, [0, 1]),
    ({"start_step": 3, "end_step": 3}, 9, [3]),
    ({"freq": 2, "start_end_list": [[6, 10], [15, 20]]}, 30, [6, 8, 16, 18]),
    ({"freq": 5, "start_end_list": [[4, 6], [18, -1]]}, 31, [5, 20, 25, 30]),
    ({"freq": 5, "start_end_list": [[18, None]]}, 31, [20, 25, 30]),
    ({"start_end_list": [[1, 3]], "start_step": 0, "end_step": 50}, 60, [1, 2]),
    ({"start_end_list": [], "end_step": 1}, 60, [0, 1]),
    ({"start_end_list": None, "end_step": 1}, 60, [0, 1]),
    ({"start_end_list": [[5, 8], [0, 2], [6, 9]]}, 60, [0, 1, 5, 6, 7, 8]),
    ({"start_end_list": [[2, 2], [4, 5]]}, 60, [4]),
    ({"freq": 100, "start_step": 1, "end_step": 99}, 300, []),
]


@pytest.mark.parametrize(("keys", "stop", "due"), DUE)
def test_the_iterations_that_are_due(keys: dict[str, Any], stop: int, due: list[int]) -> None:
    schedule = schedule_of(keys)
    assert [n for n in range(stop) if schedule.due(n)] == due
    following = [schedule.next_due(-1)]
    while following[-1] is not None and following[-1] < stop:
        following.append(schedule.next_due(following[-1]))
    assert [n for n in following if n is not None and n < stop] == due
    assert schedule.count(stop) == len(due)


BAD_VALUES: list[tuple[Any, ...]] = [
    ("freq", 0, "a whole number, 1 or more"),
    ("freq", -2, "a whole number, 1 or more"),
    ("freq", 1.5, "a whole number, 1 or more"),
    ("freq", True, "true is not accepted; accepted: a whole number, 1 or more"),
    ("freq", "2", "a whole number, 1 or more"),
    ("start_step", "x", "an iteration"),
    ("start_step", -2, "an iteration"),
    ("end_step", 2.5, "an iteration"),
    ("end_step", -7, "an iteration"),
    ("start_end_list", 3, "a list of pairs"),
    ("start_end_list", [3, 4], "3 is no pair"),
    ("start_end_list", [[3]], "is no pair"),
    ("start_end_list", [[1, 2, 3]], "is no pair"),
    ("start_end_list", [[4, 3]], "start <= end"),
    ("start_end_list", [[0, "x"]], "start <= end"),
    ("start_end_list", [[0, -2]], "start <= end"),
    ("start_end_list", [[-1, 2]], "start <= end"),
    ("start_end_list", [[None, 2]], "start <= end"),
]


@pytest.mark.parametrize(("key", "value", "words"), BAD_VALUES)
def test_a_bad_value_is_told_with_what_is_accepted(key: str, value: Any, words: str) -> None:
    with pytest.raises(InspectValueError) as raised:
        schedule_of({key: value})
    assert isinstance(raised.value, ValueError)
    assert str(raised.value).startswith(f"one.transformer_engine.LogTensorStats.{key}: ")
    assert words in str(raised.value)


def test_what_is_said_once_holds_for_every_item() -> None:
    section = section_of(example("LogFp8TensorStats"))
    activation, gradient = layer_plan(section, LAYER).observe
    assert (activation.tensor, activation.stats) == ("activation", ("underflows%", "overflows%"))
    assert activation.schedule == Schedule(freq=1, start_step=0, end_step=80)
    assert gradient.schedule == Schedule(freq=5, start_step=0, end_step=80)


def test_items_have_schedules_of_their_own() -> None:
    observed = {
        one.tensor: one.schedule
        for one in layer_plan(section_of(example("LogTensorStats")), LAYER).observe
    }
    assert observed["activation"].first(3) == [10, 20, 30]
    assert observed["activation"].next_due(99) == 100
    assert observed["activation"].next_due(100) is None
    assert observed["gradient"].next_due(18) == 80
    assert observed["gradient"].next_due(98) is None
    assert observed["weight"].next_due(10**9) == 10**9 + 1


STEPS = st.integers(0, 40)
PAIRS = st.lists(
    st.tuples(STEPS, st.one_of(st.just(-1), st.none(), STEPS)).map(
        lambda pair: pair if pair[1] in (-1, None) or pair[0] <= pair[1] else pair[::-1]
    ),
    max_size=4,
)


def plainly_due(it: int, freq: int, start: int, end: int | None, pairs: list[Any]) -> bool:
    """The rule as the documentation words it."""
    if pairs:
        inside = any(a <= it and (b in (-1, None) or it < b) for a, b in pairs)
    else:
        inside = start <= it and (end in (-1, None) or it <= end)
    return it % freq == 0 and inside


@given(
    freq=st.integers(1, 12),
    start=STEPS,
    end=st.one_of(st.just(-1), st.none(), STEPS),
    pairs=PAIRS,
    after=st.integers(-1, 60),
)
def test_the_next_due_iteration_is_the_one_a_search_finds(
    freq: int, start: int, end: int | None, pairs: list[Any], after: int
) -> None:
    schedule = schedule_of(
        {"freq": freq, "start_step": start, "end_step": end, "start_end_list": pairs}
    )
    due = [n for n in range(90) if plainly_due(n, freq, start, end, pairs)]
    assert [n for n in range(90) if schedule.due(n)] == due
    # Windows end by 41, so that what is not due by 90 never is.
    assert schedule.next_due(after) == next((n for n in due if n > after), None)
    assert schedule.count(77) == sum(n < 77 for n in due)
