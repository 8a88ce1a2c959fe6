"""The page on the config of tensor inspection says what the reader does."""

from __future__ import annotations

import re

import pytest
import yaml

from dftrace_ai.inspect.config import LayerInfo, layer_plan, load, names
from dftrace_ai.inspect.config.grammar.models import FEATURE_MODELS, Layers
from dftrace_ai.inspect.numerics.statistics import FP8_PREFIXES, PLAIN_FP8_STATS, TENSOR_STATS
from docs.pages import DOCS, Block, blocks, plain, section, table

PAGE = DOCS / "guide" / "inspect-config.md"


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("block", blocks(PAGE, "yaml"), ids=str)
def test_the_configs_are_accepted(block: Block) -> None:
    config = load(yaml.safe_load(block.text))
    assert config.sections
    assert config.warnings == ()


def test_the_struct_does_what_the_page_says() -> None:
    (_, block) = blocks(PAGE, "yaml")
    (read,) = load(yaml.safe_load(block.text)).sections.values()
    plan = layer_plan(read, LayerInfo("model.fc1"))
    assert {key: (how.format, how.margin) for key, how in plan.modify.items()} == {
        ("fprop", "activation"): ("E4M3", 0),
        ("fprop", "weight"): ("E4M3", 0),
        ("dgrad", "gradient"): ("E5M2", 1),
    }


def test_the_statistics_are_all_explained() -> None:
    page = (DOCS / "guide" / "inspect.md").read_text()
    rows = page.partition("| statistic | |\n")[2].partition("\n\n")[0].splitlines()
    listed = [name for row in rows for name in named(row.split("|")[1])]
    assert sorted(listed) == sorted([*TENSOR_STATS, *PLAIN_FP8_STATS])


def test_the_keys_of_a_selection_are_all_there() -> None:
    rows = table(section(PAGE, "Layers"))
    assert [plain(row[0]) for row in rows] == list(Layers.model_fields)


def test_the_features_are_all_there_with_their_other_names() -> None:
    listed = {plain(row[0]): named(row[2]) for row in table(section(PAGE, "Features"))}
    assert listed == {
        name: [alias for alias, known in names.FEATURE_ALIASES.items() if known == name]
        for name in names.FEATURES
    }


def test_the_keys_of_the_features_are_all_there() -> None:
    logging = list(names.LOG_FEATURES)
    described: dict[str, set[str]] = {name: {"enabled"} for name in FEATURE_MODELS}
    for keys, of, accepted in table(section(PAGE, "Keys")):
        features = [*named(of), *(logging if "the Log features" in of else [])]
        for feature in features:
            described[feature] |= set(named(keys))
        values = named(accepted)
        if "gemms" in keys:
            assert values == list(names.GEMMS)
        elif "tensors" in keys:
            assert values == list(names.TENSORS)
        elif "quant_format" in keys:
            assert values == list(names.FORMATS)
        elif "stats" in keys:
            assert values == [
                *(s for s in names.known_stats(*features) if not s.startswith("fp8_")),
                *(FP8_PREFIXES if features == ["LogFp8TensorStats"] else ()),
            ]
    assert described == {name: set(model.model_fields) for name, model in FEATURE_MODELS.items()}
