"""Values as people, variables and files give them.

A run has what `load_config` makes of them, and the schema takes what the settings take.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import WITHOUT_COLLECTIONS, clean_environment
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import dftrace_ai
from dftrace_ai.config import Config, load_config
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.errors import ConfigError
from dftrace_ai.run.core_settings import absolute


class Text(str):
    """A text of a kind of its own."""

    __slots__ = ()


@pytest.fixture(autouse=True)
def _no_run() -> Iterator[None]:
    dftrace_ai.finalize()
    logger = logging.getLogger("dftrace_ai")
    level = logger.level
    yield
    dftrace_ai.finalize()
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        *(("rank", value, 5) for value in (5.0, "5", " 5\n", "+5", "5.00", "0_5", Decimal(5))),
        *(("rank", value, 5) for value in (np.int64(5), np.float32(5.0))),
        ("rank", "9" * 30, int("9" * 30)),
        *(("finalize_timeout_s", value, 5.0) for value in (5, "5", "5.", " 5e0 ", np.float32(5))),
        *(("ids", value, False) for value in (0, 0.0, "0", "F", "No", "OFF", "false")),
        *(("ids", value, True) for value in (1, "t", "Y", "on", np.int64(1))),
        ("compression", Text("ZSTD"), "zstd"),
        ("data_dir", Text("data"), "data"),
        ("data_dir", "a\udcff", "a\udcff"),  # a directory whose name is no text
        *(("file_mode", value, "0640") for value in ("0640", "640", "0o640", 0o640)),
        *(("log_file", value, Path("out/trace")) for value in (Text("out/"), "out/trace.pfw.gz")),
        *(("log_file", f"out/v1.5{end}", Path("out/v1.5")) for end in ("", ".pfw", ".pfw.zst")),
        ("log_file", "~/run", Path.home() / "run"),
        ("auto_parts", ["forward", "data"], "forward,data"),
        ("layout", {"dp": "3", "pp": 1}, "dp=3,pp=1"),
    ],
)
def test_what_is_taken(name: str, value: Any, taken: object) -> None:
    found = getattr(Config(**{name: value}), name)
    assert (type(found), found) == (type(taken), taken)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "rank",
            (True, "5.", ".0", "1e1", "0x5", "٣", "", 5.5, "5.5", 1e300, b"x", [5], 1j, object()),
        ),
        ("rank", (float("nan"), float("inf"), "nan", "1" * 4400, -1, Decimal("5.5"))),
        ("finalize_timeout_s", (False, "٣.٤", "nan", "inf", float("nan"), 10**400, "1,5", None)),
        ("ids", (2, -1, 0.5, "", " on", "none", None, [], "ON\u0130")),
        ("compression", (None, 1, b"gzip", "")),
        ("data_dir", (1, Path("data"))),
        ("log_file", (None, 5, b"out", "", " ", "..", "a\0b", "~nobody-of-that-name/t")),
        ("file_mode", ("0755", "0400", "1640", "rw", 640, True, None, "", "-600")),
        ("auto_parts", ([1], {"forward"}, None)),
        ("dump_signal", ("SIGKILL", "SIGNONE", "0", 12)),
    ],
)
def test_what_is_not_taken(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}: .* is not accepted; accepted: "):
            Config(**{name: value})


def test_help_shows_the_keywords() -> None:
    assert {name: one.default for name, one in inspect.signature(Config).parameters.items()} == {
        name: row.default for name, row in SETTINGS.items()
    }


NUMBERS: list[Any] = [0, 1, 3, -1, 0.5, 4096, 2**30, float("nan"), 10**400]
WORDS = (
    "1 no ON none zstd GZIP drop debug 0640 usr1 10:20 :5 dp=0,pp=1 out/ ~/t .. / a\udcff".split()
)
TEXTS = st.one_of(st.sampled_from(WORDS), st.sampled_from(NUMBERS).map(str), st.text())
VALUES = st.one_of(
    TEXTS, TEXTS.map(Path), st.sampled_from([*NUMBERS, None, True, ["a"], {"dp": 0}])
)
VARIABLES = [one for row in SETTINGS.values() for one in (row.variable, row.alias) if one]
OTHERS = ("DFTRACE_CONFIG", "DFTRACE_RANKS")


@given(
    environ=st.dictionaries(st.sampled_from([*VARIABLES, *OTHERS]), TEXTS, max_size=4),
    overrides=st.dictionaries(st.sampled_from([*SETTINGS]), VALUES, max_size=4),
)
def test_a_run_has_what_is_loaded_or_raises_the_same(
    environ: dict[str, str], overrides: dict[str, Any]
) -> None:
    """A run that is turned off makes no files; its settings are those of any other."""
    variables = {name: text for name, text in environ.items() if "\0" not in text}
    variables = {n: t.encode("utf-8", "replace").decode() for n, t in variables.items()}
    overrides = {**overrides, "enabled": False}

    def run() -> dict[str, Any]:
        try:
            return dict(dftrace_ai.initialize(**overrides)._config_in_force())
        finally:
            dftrace_ai.finalize()

    def loaded() -> dict[str, Any]:
        found = dict(load_config(environ=variables, **overrides))
        places = ("log_file", "spool_dir")
        return found | {name: absolute(found[name]) for name in places if found[name]}

    def outcome(make: Any) -> Any:
        try:
            return make()
        except ConfigError as error:
            return str(error)

    around = {n: t for n, t in clean_environment().items() if n not in WITHOUT_COLLECTIONS}
    with mock.patch.dict(os.environ, {**around, **variables}, clear=True):
        assert outcome(run) == outcome(loaded)


SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.json"

SCHEMA_WORDS = (
    "true t yes y on 1 false f no n off 0 none null all -data a,b warn usr1 SIGUSR2 SIGKILL sigint "
    "DEBUG 640 0640 0o640 0777 0700 0600 10:20 :5 5: : :0 3 12 5.0 1.5 zstd gzip epoch_us drop "
    "forward dp=0,pp=1 dp=0,dp=1 dp=x out/trace out/ a.pfw.gz .pfw.gz ~/t .. / True"
).split()
SCHEMA_WORDS += [
    " ",
    "",
    "dp = 01",
    " gzip ",
    *(word for field in SETTINGS.values() for word in field.words),
]
ENDS = [end for field in SETTINGS.values() for end in (field.least, field.most) if end is not None]
BOUNDS = [end + one for end in sorted(set(ENDS)) for one in (-1, -0.001, 0, 0.001, 1)]
BOUNDS += [0, 2, 0.5, 1.5, 3.0, -1, 100, 0o640, 0o777]
ODD: list[Any] = [
    *(None, True, False, [], ["forward", "backward"], ["a"], [1], [["a"]], {}),
    *({"dp": 0, "pp": 1}, {"dp": "x"}, {"dp": -1}, {"a b": 1}, {"dp": 1.5}, {"dp": "3"}),
]


def test_the_schema_takes_what_the_settings_take() -> None:
    schema = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    choose, taken = random.Random(29), 0
    written = [f"{number:.6f}" if isinstance(number, float) else f"{number}" for number in BOUNDS]
    for _ in range(2_000):
        given = {}
        for name in choose.sample(sorted(SETTINGS), choose.choice([1, 1, 2, 3])):
            field = SETTINGS[name]
            if choose.random() < 0.5:
                given[name] = choose.choice(choose.choice([SCHEMA_WORDS, BOUNDS, ODD, written]))
            else:
                given[name] = choose.choice(
                    [*field.words, "x" if field.kind is Path else field.default]
                )
        try:
            Config(**given)
            fault = ""
        except ConfigError as error:
            fault = str(error)
        taken += not fault
        # An order between two values cannot be said.
        if "does not exist in a world_size" not in fault:
            assert schema.is_valid(given) == (not fault), (given, fault)
    assert taken > 400
