"""Instrumentation that is taken out again, whatever a test does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dftrace_ai
from dftrace_ai.integrations.auto import Auto


@pytest.fixture
def auto() -> Iterator[Auto]:
    """`dftrace_ai.auto`, which is off before and after."""
    dftrace_ai.auto.remove()
    yield dftrace_ai.auto
    dftrace_ai.auto.remove()
