"""Runs of each tracker, without a network, read back by the tracker's own reader."""

from __future__ import annotations

import pytest

from trackers.tracker_runs import TrackerRuns, python_with


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrackerRuns:
    """What was logged to the tracker of this file, by `NAME`, `READER`, `OPTIONS` and `STEPS` in it."""
    module = request.module
    python = python_with(module.PACKAGE)
    if python is None:
        pytest.skip(f"{module.PACKAGE} is not installed: `make .venv-trackers/made`")
    folder = tmp_path_factory.mktemp(module.NAME)
    return TrackerRuns.made(module, python, folder)
