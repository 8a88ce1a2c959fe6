"""The page for users of dftracer: its variables and names are what the code has."""

from __future__ import annotations

import dftrace_ai
import dftrace_ai.compat.dftracer as compat
from dftrace_ai.config import Config, load_config
from dftrace_ai.config.model import SETTINGS
from docs.pages import DOCS, between, plain, table

PAGE = DOCS / "guide" / "from-dftracer.md"
ALIASES = {row.alias for row in SETTINGS.values() if row.alias}


def test_each_variable_is_read_or_not_as_its_row_says() -> None:
    rows = {plain(row[0]): row[1] for row in table(between(PAGE, "variables"))}
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
