"""Fixtures of the fault matrix, and the table that is printed at its end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from stress.account import Place
from stress.nursery import Nursery
from stress.pressure.program import (  # noqa: F401 - fixtures
    disk,
    pressed,
    pressed_environment,
    shim,
    shim_library,
    simulated_disk,
    spools,
    tmpfs,
    traces,
)
from stress.table import Row, as_text, write_into

ROWS = pytest.StashKey[list[Row]]()
SEED = int(os.environ.get("STRESS_SEED", "20"))
# The page whose table is written again, when all has held; `make fault-table` names it.
PAGE = os.environ.get("FAULT_TABLE")


@pytest.fixture(scope="session")
def one_nursery() -> Iterator[Nursery]:
    """The process, which lives as long as the tests."""
    process = Nursery()
    yield process
    process.close()


@pytest.fixture
def nursery(one_nursery: Nursery) -> Iterator[Nursery]:
    """The process that starts the victims, of whom none outlives its test, which may have failed."""
    yield one_nursery
    one_nursery.clear()


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A directory in memory where there is one, which is gone afterwards."""
    shared = Path("/dev/shm")
    folder = Path(
        tempfile.mkdtemp(prefix="stress-", dir=shared if os.access(shared, os.W_OK) else None)
    )
    yield folder
    shutil.rmtree(folder)


NewPlace = Callable[[], Place]


@pytest.fixture
def new_place(tmp_path: Path, memory: Path) -> NewPlace:
    """Gives each victim a place of its own: traces on the disk, spools and accounts in memory."""
    count = 0

    def make() -> Place:
        nonlocal count
        count += 1
        place = Place(tmp_path / f"victim{count}")
        place.out.mkdir(parents=True)
        for name in ("spools", "diaries"):
            (place.folder / name).symlink_to(tempfile.mkdtemp(prefix=f"{name}-", dir=memory))
        return place

    return make


FaultRow = Callable[[str], AbstractContextManager[Row]]


@pytest.fixture
def fault_row(pytestconfig: pytest.Config) -> FaultRow:
    """`with fault_row(NAME) as row:` and a verdict for each victim; at the end the row must hold."""

    @contextmanager
    def begin(fault: str) -> Iterator[Row]:
        row = Row(fault)
        pytestconfig.stash.setdefault(ROWS, []).append(row)
        try:
            yield row
        except BaseException as error:
            row.wrong.append(repr(error))
            raise
        row.hold()

    return begin


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table; write it into the page, if one is named."""
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section(f"what became of the spans, seed {SEED}")
    for line in as_text(rows):
        terminalreporter.write_line(line)
    if PAGE and terminalreporter.stats.keys().isdisjoint({"failed", "error"}):
        write_into(Path(PAGE), rows)
