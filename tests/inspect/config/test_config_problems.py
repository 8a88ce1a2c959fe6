"""What is odd and no error, and all that is wrong told at once."""

from __future__ import annotations

from typing import Any

import pytest
from inspect_configs import LOG, one_section

from dftrace_ai.inspect.config import examine, load
from dftrace_ai.inspect.errors import InspectError


def test_what_is_disabled_is_not_looked_at() -> None:
    nonsense = {"layers": 3, "FakeQuan": {}, "transformer_engine": []}
    config = load({"off": {"enabled": False, **nonsense}, **one_section(LogTensorStats=LOG)})
    assert (list(config.sections), config.disabled) == (["one"], ("off",))
    disabled = one_section(LogTensorStats={"enabled": False, "stats": "nonsense"})
    assert load(disabled).sections["one"].features == {}


@pytest.mark.parametrize("config", [{}, {"off": {"enabled": False}}])
def test_no_enabled_section_is_odd_and_no_error(config: dict[str, Any]) -> None:
    found = load(config)
    assert not found.sections
    assert [warning.text for warning in found.warnings] == ["no section is enabled"]
    assert found.given


def test_all_problems_are_found_at_once_and_the_good_section_is_read() -> None:
    config = {
        "good": one_section(LogTensorStats=LOG)["one"],
        "bad": {
            "enabled": True,
            "layers": {"layer_numbers": ["x"], "exact_layer_names": 4},
            "Nonsense": {},
            "transformer_engine": {
                "FakeQuant": {"enabled": True, "gemms": ["a", "b"], "margin": "x", "bits": 8},
                "LogTensorStats": {"enabled": True, "stats": ["x"], "tensors": ["y"], "freq": 0},
                "DisableFp8Layer": {},
            },
        },
        "worse": {"enabled": True, "layer_type": "fc1"},
    }
    read, problems = examine(config)
    assert read
    assert list(read.sections) == ["good"]
    assert sorted((problem.where, problem.kind.__name__) for problem in problems) == [
        ("bad.Nonsense", "AssertionError"),
        ("bad.layers.exact_layer_names", "ValueError"),
        ("bad.layers.layer_numbers", "ValueError"),
        ("bad.transformer_engine.DisableFp8Layer.enabled", "AssertionError"),
        ("bad.transformer_engine.FakeQuant.bits", "ValueError"),
        ("bad.transformer_engine.FakeQuant.gemms", "AssertionError"),
        ("bad.transformer_engine.FakeQuant.margin", "ValueError"),
        ("bad.transformer_engine.LogTensorStats.freq", "ValueError"),
        ("bad.transformer_engine.LogTensorStats.stats", "ValueError"),
        ("bad.transformer_engine.LogTensorStats.tensors", "AssertionError"),
        ("worse.layer_type", "AssertionError"),
        ("worse.layers", "AssertionError"),
    ]
    (gemms,) = (problem.text for problem in problems if problem.where.endswith("gemms"))
    assert "'a'" in gemms
    assert "'b'" in gemms
    with pytest.raises(InspectError, match="and 11 more"):
        load(config)


def test_every_entry_of_a_list_is_told() -> None:
    config = one_section(
        {"layer_numbers": [1, "2-", "5-3", "all of them"]},
        LogTensorStats={**LOG, "start_end_list": [[1, 2], [1, 2, 3], [5, 2], "x"]},
    )
    _, problems = examine(config)
    numbers, pairs = (problem.text for problem in problems)
    for wrong in ("'2-'", "'5-3'", "'all of them'"):
        assert wrong in numbers
    for wrong in ("[1, 2, 3]", "[5, 2]", "'x'"):
        assert wrong in pairs


@pytest.mark.parametrize(
    ("feature", "keys", "kind"),
    [
        ("LogTensorStats", {"tensors": []}, "tensors"),
        ("LogTensorStats", {"tensors_struct": []}, "tensors"),
        ("DisableFp8Gemm", {"gemms": []}, "gemms"),
        ("FakeQuant", {"gemms": ["fprop"], "tensors": [], "quant_format": "E4M3"}, "tensors"),
    ],
)
def test_a_list_without_names_is_odd(feature: str, keys: dict[str, Any], kind: str) -> None:
    (warning,) = load(one_section(**{feature: {"enabled": True, **keys}})).warnings
    assert f"one.transformer_engine.{feature}" in warning.where
    assert warning.text == f"without effect: {kind} is empty"


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"start_end_list": [[5, 9], [0, 6]]}, "not in order"),
        ({"start_end_list": [[0, -1], [9, 12]]}, "overlaps"),
        ({"start_step": 5, "end_step": 4}, "never"),
        ({"freq": 10, "start_step": 1, "end_step": 9}, "never"),
    ],
)
def test_odd_windows_are_told(keys: dict[str, Any], word: str) -> None:
    (warning,) = load(one_section(LogTensorStats={**LOG, **keys})).warnings
    assert word in warning.text
    assert warning.where == "one.transformer_engine.LogTensorStats"


def test_windows_that_touch_are_in_order() -> None:
    keys = {**LOG, "start_end_list": [[0, 5], [5, 9], [12, -1]]}
    assert load(one_section(LogTensorStats=keys)).warnings == ()
