"""Records of parts, merged, are the record of the whole."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from awkward_tensors import TENSORS, N, assert_alike, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.record import (
    FIELDS,
    NEUTRAL,
    Record,
    final_values,
    merge,
    merge_all,
    with_quantisation,
)

EIGHT = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]


def test_numbers_have_the_names_and_the_order_of_the_native_module() -> None:
    (header,) = (Path(__file__).resolve().parents[3] / "native/include").rglob("tensor/record.hpp")
    struct = header.read_text().partition("struct Record {")[2].partition("};")[0]
    assert tuple(re.findall(r"^ *double (\w+);", struct, re.MULTILINE)) == FIELDS
    assert type(collect(torch.ones(2))) is Record


numbers = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1.0, 1e4, 10_000.5, math.nan, math.inf, -math.inf]),
)


@settings(max_examples=150)
@given(st.lists(st.lists(numbers, max_size=40), max_size=8))
def test_any_split(parts: list[list[float]]) -> None:
    tensors = [torch.tensor(part, dtype=torch.float32) for part in parts]
    records = [collect(tensor, scale=1.0, format=Format.E4M3) or NEUTRAL for tensor in tensors]
    whole = collect(torch.cat([*tensors, torch.empty(0)]), scale=1.0, format=Format.E4M3)
    assert_alike(merge_all(records), whole or NEUTRAL, 10)
    if whole:
        rows = torch.tensor(records, dtype=torch.float64)
        assert_alike(plain.merged_rows(rows).tolist(), whole, 10)


@pytest.mark.parametrize("kind", TENSORS)
def test_micro_batches_of_several_ranks(kind: str) -> None:
    """Parts of unequal size, merged over the batches of each rank and then over the ranks."""
    tensor = TENSORS[kind]()
    whole = collect(tensor)
    assert whole is not None
    shards = torch.tensor_split(tensor, [17, 400, max(400, len(tensor) // 3)])
    ranks = [
        merge_all(collect(part) or NEUTRAL for part in torch.tensor_split(shard, 5))
        for shard in shards
    ]
    merged = merge_all(ranks)
    assert_alike(merged, whole, 10)
    found, wanted = final_values(merged, EIGHT), final_values(whole, EIGHT)
    for stat in set(EIGHT) - {"mean", "std"}:
        assert found[stat] == pytest.approx(wanted[stat], rel=1e-6, nan_ok=True), stat


def test_nothing_changes_a_record_that_is_merged_with_it() -> None:
    record = collect(normal(N), scale=2.0, format=Format.E5M2)
    assert record is not None
    assert merge(record, NEUTRAL) == record == merge(NEUTRAL, record)
    assert repr(merge_all([])) == repr(NEUTRAL)
    neutral_row = torch.tensor([NEUTRAL, record, NEUTRAL], dtype=torch.float64)
    assert tuple(plain.merged_rows(neutral_row).tolist()) == pytest.approx(record, rel=1e-12)


def test_what_is_no_record_is_refused() -> None:
    record = NEUTRAL
    for wrong in (record[:-1], [*record], (*record[:-1], "0.5")):
        with pytest.raises(TypeError):
            merge(record, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            with_quantisation(wrong, record)  # type: ignore[arg-type]


def test_the_scales_of_the_parts_are_kept_apart() -> None:
    x = torch.ones(3)
    records = [collect(x, scale=scale, format=Format.E4M3) for scale in (4.0, 0.5, 2.0)]
    without = collect(x) or NEUTRAL
    merged = merge_all([*(record or NEUTRAL for record in records), without])
    rows = torch.tensor([without, without], dtype=torch.float64)
    assert plain.merged_rows(rows)[-2:].isnan().all()
    assert merged[15:] == (0.5, 4.0)
    assert final_values(merged, ["scale_inv_min", "scale_inv_max"]) == {
        "scale_inv_min": 0.25,
        "scale_inv_max": 2.0,
    }


def test_zeros_that_one_part_did_not_look_for_are_not_known_of_the_whole() -> None:
    counted, not_counted = collect(torch.zeros(2)), collect(torch.zeros(2), zeros=False)
    assert counted is not None
    assert not_counted is not None
    for merged in (merge(counted, not_counted), merge(not_counted, counted)):
        assert math.isnan(merged[6])
        assert math.isnan(merged[10])
