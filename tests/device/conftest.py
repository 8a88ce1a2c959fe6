"""The stand-in in the place of torch's accelerator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from device.stand_in import StandIn
from dftrace_ai.device.companions import use_clock


@pytest.fixture
def gpu() -> Iterator[StandIn]:
    """An accelerator that spans with ``device=True`` are recorded on."""
    clock = StandIn()
    use_clock(clock)
    yield clock
    use_clock(None)
