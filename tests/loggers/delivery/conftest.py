"""What the programs that need torch have left behind."""

from __future__ import annotations

import pytest

from .cases import Left, run_all
from .with_torch import CASES


@pytest.fixture(scope="session")
def left_with_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """What each of them has left, by its name."""
    return run_all(CASES, tmp_path_factory.mktemp("with-torch"))
