"""The configuration page, and that for users of dftracer, say what the model says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dftrace_ai
import dftrace_ai.compat.dftracer as compat
from dftrace_ai.config import Config, load_config
from dftrace_ai.config.rows import Setting, accepted_values
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.errors import ConfigError
from dftrace_ai.run.ranks import find_rank
from docs.pages import DOCS, between, blocks, plain, section, table

PAGE = DOCS / "configuration.md"


def default_of(row: Setting) -> str:
    value = row.default
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_table_is_that_of_the_settings() -> None:
    written = [[plain(cell) for cell in row] for row in table(between(PAGE, "fields"))]
    assert written == [
        [name, default_of(row), accepted_values(row), row.variable, row.alias]
        for name, row in SETTINGS.items()
    ]


def test_the_descriptions_are_those_of_the_settings() -> None:
    written = dict(re.findall(r"^- `(\w+)`: (.*)$", between(PAGE, "fields"), re.M))
    assert written == {name: row.about for name, row in SETTINGS.items()}


def test_the_aliases_are_read_as_described() -> None:
    rows = [[plain(cell) for cell in row] for row in table(section(PAGE, "The environment"))]
    assert [(alias, field) for alias, field, _ in rows] == [
        (row.alias, name) for name, row in SETTINGS.items() if row.alias
    ]
    given = {"DFTRACER_TRACE_COMPRESSION": "0", "DFTRACER_INC_METADATA": "0"}
    config = load_config(environ=given)
    assert (config.compression, config.args) == ("none", False)
    assert load_config(environ={**given, "DFTRACE_ARGS": "1"}).args is True


def test_the_yaml_block_is_accepted(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "yaml")
    file = tmp_path / "trace.yaml"
    file.write_text(block.text, encoding="utf-8")
    config = load_config(file, environ={})
    assert config.compression == "zstd"
    assert config.system_counters_s == 1.0
    assert config.rank is None


def test_the_errors_are_worded_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks(PAGE, "text")
    monkeypatch.chdir(tmp_path)
    Path("trace.yaml").write_text("compression: zstd\nrank: 1\nwrold_size: 2\n", encoding="utf-8")
    lines = []
    for environ in ({"DFTRACE_SPOOL_BYTES": "1G"}, {"DFTRACE_CONFIG": "trace.yaml"}):
        with pytest.raises(ConfigError) as raised:
            load_config(environ=environ)
        lines.append(str(raised.value))
    assert lines == shown.text.splitlines()


def test_the_launchers_are_found_in_the_order_of_the_table() -> None:
    rows = [[plain(cell) for cell in row] for row in table(section(PAGE, "Ranks"))]
    environ: dict[str, str] = {}
    # From the last to the first, each wins over those that were there before.
    for number, (_, rank, size, local) in enumerate(reversed(rows)):
        environ |= {rank: str(number), size: "64", local: "3"}
        found = find_rank(environ)
        assert (found.rank, found.world_size, found.local_rank) == (number, 64, 3)


DFTRACER_PAGE = DOCS / "guide" / "from-dftracer.md"
ALIASES = {row.alias for row in SETTINGS.values() if row.alias}


def test_each_variable_is_read_or_not_as_its_row_says() -> None:
    rows = {plain(row[0]): row[1] for row in table(between(DFTRACER_PAGE, "variables"))}
    assert {name for name, text in rows.items() if text.startswith("read")} == ALIASES
    for name in set(rows) - ALIASES:
        assert rows[name].startswith("no effect")
        assert load_config(environ={name: "1"}) == Config()


def test_without_any_variable_a_run_is_on() -> None:
    assert load_config(environ={}).enabled
    assert not load_config(environ={"DFTRACER_ENABLE": "0"}).enabled


def test_both_names_are_of_one_class() -> None:
    assert compat.dft_fn is dftrace_ai.dft_fn
    assert compat.dftracer is dftrace_ai.dftracer
