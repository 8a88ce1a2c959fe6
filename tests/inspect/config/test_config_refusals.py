"""What a config may not say, with its place and what is accepted there; what is odd; all of it at once."""

from __future__ import annotations

from typing import Any

import pytest
from inspect_configs import LOG, one_section

from dftrace_ai.inspect.config import examine, load
from dftrace_ai.inspect.errors import InspectError

WEIGHT = {"gemms": "fprop", "tensors": "weight"}
SCALED = {"PerTensorScaling": WEIGHT}
ROUNDED = {**WEIGHT, "quant_format": "E4M3"}
NAMESPACE = "one.transformer_engine"

Refused = tuple[dict[str, Any], str, type[Exception], tuple[str, ...]]


def of(
    config: dict[str, Any], where: str, *words: str, kind: type[Exception] = ValueError
) -> Refused:
    return config, where, kind, words


def section(
    more: dict[str, Any], where: str, *words: str, without: str = "", **how: Any
) -> Refused:
    """A section with other keys beside its own, or without one of those."""
    body = {key: value for key, value in one_section()["one"].items() if key != without}
    return of({"one": body | more}, where, *words, **how)


def key(
    name: str, keys: Any, where: str, *words: str, kind: type[Exception] = ValueError
) -> Refused:
    """A feature, enabled, with these keys."""
    return of(one_section(**{name: keys}), f"{NAMESPACE}.{name}{where}", *words, kind=kind)


REFUSED: list[Refused] = [
    # Sections, namespaces and the names of features.
    of({"one": []}, "one", "a mapping of keys"),
    of({"one": None}, "one", "a mapping of keys", "null"),
    of({1: {"enabled": True}}, "1", "text"),
    section({}, "one.enabled", "is missing", without="enabled", kind=AssertionError),
    section({}, "one.layers", "is missing", without="layers", kind=AssertionError),
    section({"enabled": "yes"}, "one.enabled", "'yes'", "true or false"),
    section({"torch": ["FakeQuant"]}, "one.torch", "features are needed"),
    section(
        {"transformer_engin": {}},
        "one.transformer_engin",
        *("'transformer_engine'?", "torch", "dftrace_ai", "LogTensorStats"),
        kind=AssertionError,
    ),
    section({"FakeQuant": {}}, "one.FakeQuant", "under transformer_engine", kind=AssertionError),
    section(
        {"transformer_engine": {"LogTensorStats": {"tensors": ["weight"], "stats": ["min"]}}},
        f"{NAMESPACE}.LogTensorStats.enabled",
        "is missing",
        kind=AssertionError,
    ),
    section(
        {"transformer_engine": {"LogTensorStats": None}},
        f"{NAMESPACE}.LogTensorStats",
        "a mapping of keys",
    ),
    key(
        *("FakeQuan", {}, "", "'FakeQuant'?"),
        *("LogTensorStats", "DisableFp8Layer", "PerTensorScaling"),
        kind=AssertionError,
    ),
    of(
        one_section(DisableFp8Layer={}, DisableQuantizationLayer={}),
        f"{NAMESPACE}.DisableQuantizationLayer",
        "DisableFp8Layer is given twice",
    ),
    # Keys.
    key("LogTensorStats", {**LOG, "frequ": 2}, ".frequ", "'freq'?", "start_end_list"),
    key("LogTensorStats", {**LOG, "gemms": ["fprop"]}, ".gemms", "accepted: enabled", "tensors"),
    key(
        "LogTensorStats",
        {"tensors_struct": [{"tensor": "weight", "stat": ["min"]}]},
        *(".tensors_struct[0].stat", "'stats'?", "tensor"),
    ),
    key(
        "DisableFp8Gemm",
        {"gemms": "fprop", "tensors": ["weight"]},
        *(".tensors", "gemms and gemms_struct"),
    ),
    key(
        "DisableFp8Gemm",
        {"gemms_struct": [{"gemm": "fprop", "margin": 1}]},
        *(".gemms_struct[0].margin", "accepted: gemm"),
    ),
    key("DisableFp8Layer", {"gemms": ["fprop"]}, ".gemms", "unknown key"),
    key(
        "LogTensorStats",
        {"tensors_struct": [{"tensor": "weight", "enabled": True}]},
        *(".tensors_struct[0].enabled", "an item has no 'enabled'"),
        kind=AssertionError,
    ),
    key(
        "PerTensorScaling",
        {
            "gemms_struct": [
                {"gemm": "fprop", "tensors_struct": [{"tensor": "weight", "enabled": True}]}
            ]
        },
        *(".gemms_struct[0].tensors_struct[0].enabled", "an item has no 'enabled'"),
        kind=AssertionError,
    ),
    # GEMMs and tensors.
    key("PerTensorScaling", {"tensors": ["weight"]}, "", "gemms or gemms_struct is needed"),
    key("DisableFp8Gemm", {}, "", "gemms or gemms_struct is needed"),
    key("LogTensorStats", {"stats": ["min"]}, "", "tensors or tensors_struct is needed"),
    key(
        "PerTensorScaling",
        {"gemms_struct": [{"gemm": "fprop", "tensors": "weight"}, {"gemm": "dgrad"}]},
        *(" (dgrad)", "tensors or tensors_struct is needed"),
    ),
    of(
        one_section(base={"stats": ["min"]}),
        *("one.LogTensorStats", "tensors or tensors_struct is needed"),
    ),
    key(
        "DisableFp8Gemm",
        {"gemms": ["fprop", "forward"]},
        *(".gemms", "'forward'", "fprop, dgrad and wgrad"),
        kind=AssertionError,
    ),
    key(
        "DisableFp8Gemm",
        {"gemms_struct": [{"gemm": "x"}]},
        *(".gemms_struct[0].gemm", "'x'", "fprop, dgrad and wgrad"),
        kind=AssertionError,
    ),
    key("DisableFp8Gemm", {"gemms_struct": [{}]}, ".gemms_struct[0].gemm", "is missing"),
    key(
        "LogTensorStats",
        {"tensors_struct": {"tensor": "weight"}},
        *(".tensors_struct", "a list of mappings"),
    ),
    key(
        "LogTensorStats",
        {**LOG, "tensors": ["weights"]},
        *(".tensors", "'weights'", "activation, weight, gradient, output, dgrad and wgrad"),
        kind=AssertionError,
    ),
    # Statistics, formats and margins.
    key(
        "LogTensorStats",
        {**LOG, "stats": ["mean", "median"]},
        *(".stats", "'median'"),
        "min, max, mean, std, l1_norm, l2_norm, cur_amax and dynamic_range",
    ),
    of(
        one_section(base={"tensors": "x", "stats": ["median"]}),
        *("one.LogTensorStats.stats", "'median'", "cur_amax"),
    ),
    key(
        "LogFp8TensorStats",
        {"tensors": "weight", "stats": ["mean"]},
        *(".stats", "'mean'", "underflows%, overflows%", "fp8_delayed_scaling_", "_columnwise"),
    ),
    key(
        "LogNvfp4TensorStats",
        {"tensors": "weight", "stats": ["overflows%"]},
        *(".stats", "'overflows%'", "underflows% and mse"),
    ),
    key(
        "LogTensorStats",
        {**LOG, "stats": [{"max_blockwise_dynamic_range": {"size": 4}}]},
        *(".stats", "'size'", "block_size: 32"),
    ),
    key(
        "LogTensorStats",
        {**LOG, "stats": [{"max_blockwise_dynamic_range": {"dims": 3}}]},
        *(".stats", "1 or 2 as dims"),
    ),
    of(
        one_section(base={"tensors": "x", "stats": [{"max_blockwise_dynamic_range": {}}]}),
        *("one.LogTensorStats.stats", "no statistic of LogTensorStats"),
    ),
    key("LogTensorStats", {"tensors": "weight"}, "", "stats is needed for weight"),
    key("LogFp8TensorStats", {"tensors": "weight", "stats": []}, "", "stats is needed for weight"),
    key(
        "LogTensorStats",
        {"tensors_struct": [{"tensor": "weight", "stats": "min"}, {"tensor": "gradient"}]},
        *("", "stats is needed for gradient"),
    ),
    key("FakeQuant", WEIGHT, "", "quant_format is needed for weight in fprop", "FP8E5M2"),
    key(
        "FakeQuant",
        {**WEIGHT, "quant_format": "FP8"},
        *(".quant_format", "'FP8'", "FP8E4M3", "FP8E5M2"),
    ),
    key(
        "FakeQuant",
        {**WEIGHT, "quant_format": "MXFP4E2M1"},
        *(".quant_format", "'MXFP4E2M1'", "MXFP8E4M3"),
    ),
    key("PerTensorScaling", {**WEIGHT, "margin": 1.5}, ".margin", "1.5", "a whole number"),
    # Features that exclude each other.
    *(
        of(one_section(**{name: keys}, **SCALED), f"{NAMESPACE}.PerTensorScaling", *words)
        for name, keys, *words in (
            ("FakeQuant", ROUNDED, "weight in fprop is given to FakeQuant, too"),
            (
                *("FakeQuant", {**ROUNDED, "tensors": "activation"}),
                *("needs fprop in FP8", "FakeQuant takes fprop out of it"),
            ),
            ("FakeQuant", {**ROUNDED, "tensors": "output"}, "FakeQuant takes fprop out of it"),
            (
                *("DisableFp8Gemm", {"gemms": "fprop"}),
                *("needs fprop in FP8", "DisableFp8Gemm takes fprop out of it"),
            ),
            (
                *("DisableFp8Layer", {}),
                *("needs fprop in FP8", "DisableFp8Layer takes fprop out of it"),
            ),
        )
    ),
]


@pytest.mark.parametrize(("config", "where", "kind", "words"), REFUSED)
def test_a_refusal_names_the_place_and_what_is_accepted(
    config: dict[str, Any], where: str, kind: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as raised:
        load(config)
    assert isinstance(raised.value, InspectError)
    assert str(raised.value).startswith(f"{where}: ")
    for word in words:
        assert word in str(raised.value)
    read, problems = examine(config)
    (error,) = (problem for problem in problems if problem.severity == "error")
    assert (error.where, error.kind) == (where, kind)
    assert read
    assert not read.sections


@pytest.mark.parametrize(
    "features",
    [
        {"FakeQuant": ROUNDED, "PerTensorScaling": {"gemms": "dgrad", "tensors": "weight"}},
        {"DisableFp8Gemm": {"gemms": "dgrad"}, "PerTensorScaling": WEIGHT},
        {"DisableFp8Gemm": {"gemms": "fprop"}, "FakeQuant": ROUNDED},
        {"DisableFp8Layer": {}, "FakeQuant": ROUNDED},
        {"DisableFp8Layer": {}, "DisableFp8Gemm": {"gemms": "fprop"}},
        {"DisableFp8Layer": {}, "LogFp8TensorStats": {"tensors": "weight", "stats": "mse"}},
        {"FakeQuant": ROUNDED, "LogTensorStats": LOG},
        {"PerTensorScaling": WEIGHT, "LogTensorStats": LOG, "base": {**LOG, "freq": 1}},
        {"DisableFp8Layer": {"enabled": False}, "PerTensorScaling": WEIGHT},
        # Nothing is scaled here, so that nothing is in the way.
        {"DisableFp8Layer": {}, "PerTensorScaling": {"gemms": "dgrad", "tensors": "activation"}},
    ],
)
def test_features_that_go_together(features: dict[str, Any]) -> None:
    assert load(one_section(**features)).sections


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
