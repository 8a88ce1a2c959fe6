"""What is set aside is what was given, in a file that nobody sees, or in memory where there is none."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dftrace_ai.analysis.reading import set_aside
from dftrace_ai.analysis.reading.set_aside import ColumnAside, SetAside


@pytest.fixture(autouse=True)
def few_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "AT_HAND_BYTES", 1_000)


def _columns() -> list[np.ndarray]:
    each = [np.arange(count, dtype=kind) for count in (0, 1, 300) for kind in (np.uint8, np.int64)]
    return [*each, np.broadcast_to(np.int64(-7), 500), np.linspace(0, 1, 99)]


def _held(aside: SetAside) -> list[ColumnAside]:
    return [ColumnAside.of(values, aside) for values in _columns()]


def _is_given(held: list[ColumnAside]) -> bool:
    return all(
        one.values.dtype == values.dtype and np.array_equal(one.values, values)
        for one, values in zip(held, _columns(), strict=True)
    )


def _descriptors() -> set[str]:
    """Return what files without a name the process has open."""
    names = set()
    for number in os.listdir("/proc/self/fd"):
        # Threads of others close theirs meanwhile.
        with suppress(FileNotFoundError):
            names.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in names if "dftrace-columns-" in name}


def test_columns_come_back_from_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _descriptors()
    held = _held(SetAside())
    assert _is_given(held)
    assert len(_descriptors() - before) == 1
    assert not [*tmp_path.iterdir()]
    copied = pickle.loads(pickle.dumps(held))
    del held
    gc.collect()
    assert _descriptors() == before
    assert _is_given(copied)


def test_where_no_file_can_be_they_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert _is_given(_held(SetAside()))


def test_where_a_file_cannot_grow_what_comes_behind_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    aside = SetAside()
    held = _held(aside)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, hard))
    try:
        again = _held(aside)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _is_given(held)
    assert _is_given(again)
    assert _is_given(_held(aside))
