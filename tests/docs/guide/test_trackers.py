"""The guide to trackers: it has each interface, and says what the tests of each have found."""

from __future__ import annotations

import ast

import pytest

from dftrace_ai.loggers.registry import INTERFACES, logint_class
from docs.pages import DOCS, between, plain, table

PAGE = DOCS / "guide" / "trackers.md"
TESTS = DOCS.parent / "tests" / "loggers" / "trackers"


def rows(mark: str) -> dict[str, list[str]]:
    return {plain(row[0]): [plain(cell) for cell in row[1:]] for row in table(between(PAGE, mark))}


def stated(name: str) -> list[str]:
    """What the tests of an interface say that they hold."""
    file = TESTS / ("test_trace.py" if name == "trace" else f"readers/{name}.py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STATED":
            return list(ast.literal_eval(node.value))
    pytest.fail(f"{file} has no STATED")


@pytest.mark.parametrize("mark", ["where", "kept"])
def test_each_interface_has_its_row(mark: str) -> None:
    assert list(rows(mark)) == list(INTERFACES)


@pytest.mark.parametrize("name", INTERFACES)
def test_what_is_kept_is_what_its_tests_hold(name: str) -> None:
    assert rows("kept")[name] == stated(name)


@pytest.mark.parametrize("name", set(INTERFACES) - {"local", "trace"})
def test_the_extra_is_that_of_the_interface(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dftrace_ai.loggers import registry

    monkeypatch.setattr(registry, "find_spec", lambda package: package)
    kind = logint_class(name)

    assert rows("where")[name][0] == (kind.extra or name)
