"""The JSON Schema of a config says what the reader says, as far as a schema can."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from inspect_configs import EXAMPLES, LOG, example, one_section
from jsonschema import Draft202012Validator
from random_configs import random_configs
from test_config_layers import BAD_LAYERS, SELECTED
from test_config_refusals import REFUSED
from test_config_schedule import BAD_VALUES, DUE

from dftrace_ai.inspect.config import load
from dftrace_ai.inspect.errors import InspectError

SCHEMA = Path(__file__).parents[3] / "schemas" / "inspect.schema.json"


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    read = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(read)
    return Draft202012Validator(read, format_checker=Draft202012Validator.FORMAT_CHECKER)


def scheduled(keys: Any) -> dict[str, Any]:
    return one_section(LogTensorStats={**LOG, **keys})


def test_what_the_reader_takes_is_valid(schema: Draft202012Validator) -> None:
    taken = [example(name) for name in EXAMPLES]
    taken += [one_section(layers) for layers, *_ in SELECTED]
    taken += [scheduled(keys) for keys, *_ in DUE]
    for config in taken:
        schema.validate(config)


def test_what_the_reader_refuses_is_not_valid(schema: Draft202012Validator) -> None:
    # JSON has text as keys only.
    refused = [config for config, *_ in REFUSED if 1 not in config]
    refused += [one_section(layers) for layers, *_ in BAD_LAYERS]
    refused += [scheduled({key: value}) for key, value, *_ in BAD_VALUES]
    # An order between two values cannot be said.
    unsaid = [one_section({"layer_numbers": ["3-1"]}), scheduled({"start_end_list": [[4, 3]]})]
    assert [config for config in refused if schema.is_valid(config)] == unsaid


def test_the_schema_takes_what_the_reader_takes(schema: Draft202012Validator) -> None:
    taken = 0
    for config in random_configs(29, 700):
        try:
            load(copy.deepcopy(config))
            fault = ""
        except InspectError as error:
            fault = str(error)
        taken += not fault
        # That one name is another one in other letters cannot be said.
        if "given twice" not in fault:
            assert schema.is_valid(config) == (not fault), (config, fault)
    assert taken > 140
