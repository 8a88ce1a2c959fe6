"""A run takes by plain code what the model would take, and says of the rest what the model says."""

from __future__ import annotations

import ast
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import generate_config_fields
import pytest
from conftest import clean_environment
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import dftrace_ai
from dftrace_ai.config import Config, load_config
from dftrace_ai.config.fields import FIELDS
from dftrace_ai.config.plain import gathered
from dftrace_ai.config.sources import ALIASES, variable_of
from dftrace_ai.errors import ConfigError
from dftrace_ai.run.settings import absolute

NAMES = sorted(Config.model_fields)


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


BOUNDS = {end for field in FIELDS.values() for end in (field.least, field.most) if end is not None}
NUMBERS: list[Any] = [end + one for end in sorted(BOUNDS) for one in (-1, -0.001, 0, 0.001, 1)]
NUMBERS += [int(one) for one in NUMBERS if float(one).is_integer()]
NUMBERS += [float("nan"), float("inf"), -0.0, 2**53 + 1, 2**63, 2**70, 10**400, -1, 1e308, 5e-324]

WRITTEN = [str(one) for one in NUMBERS]
WRITTEN += "007 1_000 +5 -1 5. .5 5.0 1e3 0x10 ٣ ٣.٤ 1,5 1.5 0.1 0.0000000000000001".split()
WRITTEN += ["12345678901234567890", "123456789012345.123456789012345", "9" * 30, "1" * 4400]

WORDS = {word for field in FIELDS.values() for word in field.words}
WORDS |= set("true t yes y on 1 false f no n off 0 none null all -data a,b".split())
WORDS |= set(
    "warn usr1 SIGUSR2 SIGKILL sigint 640 0640 0o640 0777 0700 ٠ 10:20 20:10 :5 5: :".split()
)
WORDS |= {"dp=0,pp=1", "dp=0,dp=1", "dp = 01", "dp=x", "out/trace", "out/", "a.pfw.gz", ".pfw"}
WORDS |= {
    "a.pfw.pfw",
    "~/t",
    "~nobody-of-that-name/t",
    "..",
    "/",
    " ",
    "",
    "ON\u0130",
    "\u212a",
    "ﬀ",
}
WORDS |= {"a\udcff", "a\ud800", "a\0b"}
CASED = (str, str.upper, str.title, lambda word: f" {word}\n")


def numbers() -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats())


def written_numbers() -> st.SearchStrategy[str]:
    return st.one_of(numbers().map(lambda one: str(one)[:4000]), st.sampled_from(WRITTEN))


def words() -> st.SearchStrategy[str]:
    how = st.sampled_from(CASED)
    return st.builds(lambda word, how: how(word), st.sampled_from(sorted(WORDS)), how)


def texts() -> st.SearchStrategy[str]:
    return st.one_of(words(), written_numbers(), st.text())


def values() -> st.SearchStrategy[Any]:
    given = st.one_of(
        st.none(), st.booleans(), numbers(), texts(), texts().map(Path), texts().map(Text)
    )
    rare = [b"gzip", ["a", "b"], ("a",), [1], {}, {"dp": 0}, {"dp": "x"}, object(), Path, 1j, True]
    return st.one_of(given, given, st.sampled_from(rare))


def accepted(name: str) -> st.SearchStrategy[Any]:
    """Values that the model takes for a field, as people give them."""
    field = FIELDS[name]
    if field.kind is bool:
        return st.sampled_from([True, False, "1", "no", "ON"])
    if field.words:
        return st.sampled_from([*field.words, *(word.upper() for word in field.words)])
    if field.kind in (int, float):
        least, most = max(int(field.least or 1), 1), int(field.most or 10**6)
        kept = (
            st.one_of(st.none(), st.integers(least, most))
            if field.optional
            else st.integers(least, most)
        )
        return st.one_of(kept, st.integers(least, most).map(str))
    if field.kind is Path:
        return st.sampled_from(["out/trace", "~/trace", Path("/tmp/trace"), "spur/ä"])
    own = {"file_mode": "0640", "dump_signal": "usr2", "layout": "dp=0, pp=1", "auto_steps": "10:"}
    return st.just(own.get(name, "data"))


CONFIGS = st.dictionaries(st.sampled_from(NAMES), values(), max_size=4)
VARIABLES = st.sampled_from([*map(variable_of, NAMES), *ALIASES, "DFTRACE_RANKS", "DFTRACE_RUN"])
ENVIRONMENTS = st.dictionaries(VARIABLES, texts(), max_size=4)


def outcome(make: Any) -> Any:
    """What comes of it: what was raised, or type and value of each field, and what was given."""
    try:
        made = make()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return {
        name: (type(value), repr(value)) for name in NAMES for value in [getattr(made, name)]
    }, set(made.given if hasattr(made, "given") else made.model_fields_set)


@given(environ=ENVIRONMENTS, overrides=CONFIGS)
@example(environ={}, overrides={"rank": 8, "world_size": 8})
@example(environ={"DFTRACE_COMPRESSION_LEVEL": "13"}, overrides={})
@example(environ={"DFTRACE_COMPRESSION_LEVEL": "13"}, overrides={"compression": "ZSTD"})
@example(environ={}, overrides={"flight_seconds": 1})
@example(environ={}, overrides={"max_files": 1})
@example(environ={"DFTRACE_RANK": "none"}, overrides={"file_mode": 0o640})
def test_what_plain_code_takes_the_model_takes_as_well(
    environ: dict[str, str], overrides: dict[str, Any]
) -> None:
    plain = gathered(environ, overrides)
    if plain is not None:
        assert outcome(lambda: plain) == outcome(lambda: load_config(environ=environ, **overrides))


def test_each_field_takes_odd_values_as_the_model_does_or_leaves_them_to_it() -> None:
    said = [how(word) for word in sorted(WORDS) for how in CASED]
    odd = [None, True, False, *NUMBERS, *WRITTEN, *said, *map(Path, said), *map(Text, said)]
    taken = 0
    for name in NAMES:
        # What does not go without another setting.
        also = {"flight_seconds": {"flight_recorder": True}, "max_files": {"max_file_bytes": 10**6}}
        for value in odd:
            overrides = {**also.get(name, {}), name: value}
            plain = gathered({}, overrides)
            if plain is not None:
                taken += 1
                model = outcome(lambda overrides=overrides: load_config(environ={}, **overrides))
                assert outcome(lambda plain=plain: plain) == model
    assert taken > 1000


@given(data=st.data())
def test_what_people_give_does_not_need_the_model(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
    overrides = {name: data.draw(accepted(name)) for name in names}
    accepted_by_model = outcome(lambda: load_config(environ={}, **overrides))
    # Each by itself is accepted; those that do not agree are not.
    assert "is not accepted" not in str(accepted_by_model)
    assert (gathered({}, overrides) is None) == (accepted_by_model[0] is ConfigError)
    given_as_text = {
        variable_of(name): "none" if value is None else str(value)
        for name, value in overrides.items()
    }
    assert (gathered(given_as_text, {}) is None) == (gathered({}, overrides) is None)


@given(environ=ENVIRONMENTS, overrides=CONFIGS)
def test_a_run_has_what_the_model_says_or_raises_what_it_raises(
    environ: dict[str, str], overrides: dict[str, Any]
) -> None:
    """A run that is turned off makes no files; its settings are those of any other."""
    variables = {n: t for n, t in environ.items() if n != "DFTRACE_RUN" and "\0" not in t}
    variables = {n: t.encode("utf-8", "replace").decode() for n, t in variables.items()}
    overrides = {**overrides, "enabled": False}

    def run() -> Any:
        try:
            return dftrace_ai.initialize(**overrides)._config_in_force()
        finally:
            dftrace_ai.finalize()

    def model() -> Any:
        config = load_config(environ=variables, **overrides)
        places = {"log_file": config.log_file, "spool_dir": config.spool_dir}
        return config.model_copy(
            update={name: absolute(place) for name, place in places.items() if place}
        )

    with mock.patch.dict(os.environ, {**clean_environment(), **variables}, clear=True):
        assert outcome(run) == outcome(model)


def test_a_variable_that_is_misspelt_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    from dftrace_ai.config import sources
    from dftrace_ai.wording import ToldOnce

    caplog.set_level(logging.WARNING, "dftrace_ai")
    with (
        mock.patch.object(sources, "_told", ToldOnce()),
        mock.patch.dict(os.environ, {"DFTRACE_LOGFILE": "x", "DFTRACE_RANK": "x"}),
        pytest.raises(ConfigError, match="DFTRACE_RANK"),
    ):
        dftrace_ai.initialize()
    assert len(caplog.messages) == 1
    assert "did you mean DFTRACE_LOG_FILE?" in caplog.text


def test_the_table_is_what_the_model_gives() -> None:
    written = ast.unparse(ast.parse(generate_config_fields.TARGET.read_text(encoding="utf-8")))
    assert written == ast.unparse(ast.parse(generate_config_fields.generated())), (
        "run: python schemas/generate_config_fields.py"
    )


def test_a_rule_that_plain_code_does_not_know_is_refused() -> None:
    class Odd(BaseModel):
        number: int = Field(default=1, multiple_of=2)

    class Endless(BaseModel):
        number: float = Field(default=1.0, ge=0)

    class Several(BaseModel):
        number: list[int] = []

    for model in (Odd, Endless, Several):
        with pytest.raises(TypeError, match="number"):
            generate_config_fields.generated(model)


def test_validators_of_the_model_are_those_that_plain_code_was_written_for() -> None:
    """They are not in the table: who adds one has to teach `config.plain` what it does."""
    found = Config.__pydantic_decorators__
    assert set(found.field_validators) == {"_bool_is_no_number"}
    assert set(found.model_validators) == {"_fields_agree"}
