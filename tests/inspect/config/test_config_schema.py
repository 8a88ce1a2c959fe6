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


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_form_is_valid(schema: Draft202012Validator, name: str) -> None:
    schema.validate(example(name))


@pytest.mark.parametrize("layers", [case[0] for case in SELECTED], ids=str)
def test_selections_are_valid(schema: Draft202012Validator, layers: Any) -> None:
    schema.validate(one_section(layers))


@pytest.mark.parametrize("keys", [case[0] for case in DUE], ids=str)
def test_schedules_are_valid(schema: Draft202012Validator, keys: Any) -> None:
    schema.validate(one_section(LogTensorStats={**LOG, **keys}))


@pytest.mark.parametrize("config", [case[0] for case in REFUSED if 1 not in case[0]])
def test_what_is_refused_is_not_valid(schema: Draft202012Validator, config: Any) -> None:
    # JSON has text as keys only.
    assert not schema.is_valid(config)


@pytest.mark.parametrize("layers", [case[0] for case in BAD_LAYERS], ids=str)
def test_bad_selections_are_not_valid(schema: Draft202012Validator, layers: Any) -> None:
    # An order between two values cannot be said.
    assert schema.is_valid(one_section(layers)) == (layers == {"layer_numbers": ["3-1"]})


@pytest.mark.parametrize(("key", "value"), [case[:2] for case in BAD_VALUES], ids=str)
def test_bad_schedules_are_not_valid(schema: Draft202012Validator, key: str, value: Any) -> None:
    found = schema.is_valid(one_section(LogTensorStats={**LOG, key: value}))
    assert found == ((key, value) == ("start_end_list", [[4, 3]]))


def test_the_schema_takes_what_the_reader_takes(schema: Draft202012Validator) -> None:
    taken = 0
    for config in random_configs(29, 2_000):
        try:
            load(copy.deepcopy(config))
            fault = ""
        except InspectError as error:
            fault = str(error)
        taken += not fault
        # That one name is another one in other letters cannot be said.
        if "given twice" not in fault:
            assert schema.is_valid(config) == (not fault), (config, fault)
    assert taken > 400
