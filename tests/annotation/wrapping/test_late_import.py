"""Waiting for a module: called once, behind its import, which finds the module as it always is."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dftrace_ai.run.late_import import when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `late` with a module `part`, which fails as long as `late.broken` is set."""
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "__init__.py").write_text("broken = False\n")
    (folder / "part.py").write_text(
        "import late\nif late.broken:\n    raise RuntimeError('broken')\nready = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield folder
    assert sys.meta_path == before
    for name in ("late", "late.part"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_it_is_called_behind_the_import_and_once() -> None:
    seen = []
    when_imported("late.part", lambda: seen.append(sys.modules["late.part"].ready))
    importlib.import_module("late")
    assert not seen
    part = importlib.import_module("late.part")
    assert seen == [True]
    assert part.__spec__.loader is part.__loader__
    assert "exec_module" not in vars(part.__loader__)
    importlib.reload(part)
    assert seen == [True]
    when_imported("late.part", lambda: seen.append(False))  # it is there
    assert seen == [True, False]


@pytest.mark.usefixtures("package")
def test_who_only_asks_whether_it_is_there_changes_nothing() -> None:
    seen = []
    when_imported("late.part", lambda: seen.append(1))
    assert importlib.util.find_spec("late.part") is not None
    assert importlib.util.find_spec("late.none") is None
    assert not seen
    importlib.import_module("late.part")
    assert seen == [1]


@pytest.mark.usefixtures("package")
def test_an_import_that_fails_is_waited_for_again() -> None:
    seen = []
    when_imported("late.part", lambda: seen.append(1))
    late = importlib.import_module("late")
    late.broken = True
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("late.part")
    assert not seen
    late.broken = False
    importlib.import_module("late.part")
    assert seen == [1]


@pytest.mark.usefixtures("package")
def test_waiting_can_be_given_up() -> None:
    seen = []
    give_up = when_imported("late.part", lambda: seen.append(1))
    give_up()
    give_up()
    importlib.import_module("late.part")
    assert not seen


AT_ONCE = """
import sys
import late
from dftrace_ai.run.late_import import when_imported

late.give_ups = [
    when_imported("late.part", lambda number=number: late.seen.append((number, sys.modules["late.part"].ready)))
    for number in range(3)
]
late.give_ups[1]()
"""


def test_a_module_that_is_being_imported_is_waited_for(package: Path) -> None:
    """As what a framework imports first has us look for it, when it is half there."""
    part = package / "part.py"
    part.write_text(AT_ONCE + part.read_text())
    late = importlib.import_module("late")
    late.seen, late.broken = [], True
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("late.part")
    assert late.seen == []
    late.broken = False
    made = importlib.import_module("late.part")
    assert late.seen == [(0, True), (2, True)]
    assert type(made.__spec__) is importlib.machinery.ModuleSpec
    assert "_dftrace_waiting" not in vars(made.__spec__)
    late.give_ups[0]()
    importlib.reload(made)
    assert late.seen[2:] == [(0, True), (1, True), (2, True)]  # it asks anew, and it is there


class AsksAll:
    """A finder of somebody else's, which also looks what the others say."""

    def __init__(self) -> None:
        self.asks = False

    def find_spec(self, name: str, *_: object) -> object:
        if name != "late.part" or self.asks:
            return None
        self.asks = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.asks = False


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("where", [0, 1, 2])
def test_several_wait_for_the_same_module(where: int) -> None:
    seen = []
    give_up = when_imported("late.part", lambda: seen.append(0))
    when_imported("late.part", lambda: seen.append(1))
    when_imported("late.part", lambda: seen.append(2))
    other = AsksAll()
    sys.meta_path.insert(where, other)
    give_up()
    part = importlib.import_module("late.part")
    sys.meta_path.remove(other)
    assert sorted(seen) == [1, 2]
    assert "exec_module" not in vars(part.__loader__)


class Kept:
    """A loader that takes no attribute."""

    __slots__ = ("loader",)

    def __init__(self, loader: object) -> None:
        self.loader = loader

    def create_module(self, spec: object) -> object:
        return self.loader.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: object) -> None:
        self.loader.exec_module(module)  # type: ignore[attr-defined]


class Incomparable:
    """A finder that raises where it is compared, and brings modules by such a loader."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("finders are not compared")

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "late.part":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        assert spec is not None
        spec.loader = Kept(spec.loader)  # type: ignore[assignment]
        return spec


@pytest.mark.usefixtures("package")
def test_finders_and_loaders_of_the_programs_own() -> None:
    seen = []
    when_imported("late.part", lambda: seen.append(1))
    first, behind = Incomparable(), Incomparable()
    first.find_spec = lambda *_: None  # type: ignore[method-assign]
    ours = sys.meta_path[0]
    sys.meta_path[:1] = [first, ours, behind]
    part = importlib.import_module("late.part")
    sys.meta_path[:] = [one for one in sys.meta_path if type(one) is not Incomparable]
    assert type(part.__spec__.loader) is Kept
    assert seen == [1]
