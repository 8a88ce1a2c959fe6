"""Another thread is importing torch, such as that of a tracker, while values are logged."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from dftrace_ai.loggers.config import EntryConfig
from dftrace_ai.loggers.records import Point
from dftrace_ai.loggers.registry import routine_class
from dftrace_ai.run.loaded_torch import loaded_torch

VALUES = {
    "metric": 0.5,
    "hist": np.arange(5.0),
    "image": np.zeros((4, 4, 3)),
    "video": np.zeros((2, 4, 4, 3)),
    "mesh": {"vertices": np.zeros((3, 3))},
}


@pytest.fixture
def part_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec("torch", None)
    spec._initializing = True
    part = types.ModuleType("torch")
    part.__spec__ = spec
    monkeypatch.setitem(sys.modules, "torch", part)


@pytest.mark.parametrize("key", VALUES)
def test_every_routine_takes_its_values(part_of_torch: None, key: str) -> None:
    logger = routine_class(key)(EntryConfig())

    assert list(logger.records("name", logger.take(VALUES[key]), Point(0)))


def test_it_is_there_when_it_is_whole(part_of_torch: None) -> None:
    assert loaded_torch() is None
    sys.modules["torch"].__spec__._initializing = False
    assert loaded_torch() is sys.modules["torch"]
