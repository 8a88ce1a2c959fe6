"""What the names of a loop's spans mean."""

from __future__ import annotations

import pytest

from dftrace_ai.trace_format.names_and_phases import loop_part, own_category, without_loop_part


@pytest.mark.parametrize(
    ("name", "part", "category", "loop"),
    [
        ("fetch.iter", "wait", "c", "fetch.iter"),
        ("fetch.block", "body", None, "fetch"),
        ("scan.yield", "body", None, "scan"),
        ("dataloader.fetch.block", "body", None, "dataloader.fetch"),
        ("forward", None, "c", "forward"),
        ("block", None, "c", "block"),
        (".block", None, "c", ".block"),
        ("item.blocks", None, "c", "item.blocks"),
        ("", None, "c", ""),
    ],
)
def test_names(name: str, part: str | None, category: str | None, loop: str) -> None:
    assert loop_part(name) == part
    assert own_category(name, "c") == category
    assert without_loop_part(name) == loop
