"""The page on frames: its table of types, and its list of views."""

from __future__ import annotations

import re

import pytest

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.views import VIEWS
from docs.conftest import RunExample
from docs.pages import DOCS, between, plain, section, table

PAGE = DOCS / "guide" / "frames.md"


def test_the_types_are_those_that_each_library_has(run_example: RunExample) -> None:
    pytest.importorskip("pandas")
    run = Run(run_example("training.py").folder / "out")
    rows = {
        plain(row[0]): [plain(cell) for cell in row[1:]] for row in table(between(PAGE, "types"))
    }
    assert set(rows) == {kind for view in VIEWS.values() for kind in view.values()}
    for view, columns in VIEWS.items():
        frame = run.frame(view)
        types = (
            frame.to_pandas().dtypes,
            frame.to_pandas("pyarrow").dtypes,
            frame.to_polars().dtypes,
            frame.to_arrow().schema.types,
        )
        for name, kind, *found in zip(columns, columns.values(), *types):
            assert [re.sub(r"<\w+: ", "<", str(one)) for one in found] == rows[kind], (view, name)


def test_every_view_is_listed() -> None:
    rows = table(section(PAGE, "Which frames, and their columns"))
    assert [re.search(r"`(\w+)`", row[0])[1] for row in rows][: len(VIEWS)] == list(VIEWS)
