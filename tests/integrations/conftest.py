"""Instrumentation that is taken out again, whatever a test does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import WITHOUT_COLLECTIONS

import dftrace_ai
from dftrace_ai.integrations.auto import Auto


@pytest.fixture
def auto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Auto]:
    """`dftrace_ai.auto`, which is off before and after."""
    for name, value in WITHOUT_COLLECTIONS.items():
        monkeypatch.setenv(name, value)
    dftrace_ai.auto.remove()
    yield dftrace_ai.auto
    dftrace_ai.auto.remove()
