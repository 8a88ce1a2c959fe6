"""The trace: everything that was logged stands on its timeline, as the reader of traces tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Traced
from PIL import Image

from trackers import six_kinds

STATED = (
    "each value",
    "as instants",
    "as they are",
    "as it is, and quantiles",
    "PNG",
    "as it is",
    "GLB",
)


@pytest.fixture
def found(traced: Traced, tmp_path: Path) -> dict[str, Any]:
    from dftrace_ai.loggers import make_loggers

    given = tmp_path / "given"
    given.mkdir()
    config = {
        "loggers": list(six_kinds.VARIABLES),
        "tracked_variables": six_kinds.VARIABLES,
        "bins": six_kinds.BINS,
        "log_dir": str(tmp_path / "runs"),
        "system_metrics_s": None,
        "status_line": False,
        "limit_s": 120,
    }
    with traced() as recording:
        loggers = make_loggers({"trace": {"config": config}})
        six_kinds.log(loggers, given)
        loggers.end_log()
    events = recording.trace.events
    counters: dict[str, Any] = {}
    for event in events:
        if event.ph == "C" and list(event.args) == ["value"]:
            counters.setdefault(event.name, []).append(event.args["value"])
    instants = {event.name: event.args for event in events if event.ph == "i"}
    return {"counters": counters, "instants": instants}


def test_one_of_everything_is_read_back(found: dict[str, Any]) -> None:
    counters, instants = found["counters"], found["instants"]
    expected = six_kinds.expected()
    odd = expected["metrics"].pop("odd")
    del expected["metrics"]["epoch/odd/last"]

    assert counters == {
        name: [value for _, value in pairs] for name, pairs in expected["metrics"].items()
    }
    assert {f"odd is {value}" for _, value in odd} <= set(instants)
    assert instants["hparams"]["hparams"] == expected["params"]
    histogram = instants["acts"]
    assert {key: histogram[key] for key in expected["histogram"]} == expected["histogram"]
    picture = instants["views/render"]
    assert picture["step"] == six_kinds.STEP
    assert np.array(Image.open(picture["file"])).tolist() == expected["image"]["pixels"]
    for kind, name in (("video", "clip"), ("mesh", "shape")):
        data = Path(instants[name]["file"]).read_bytes()
        assert {"step": instants[name]["step"], "sha": six_kinds.sha(data)} == expected[kind]
    text = instants["notes/said"]
    assert {"step": text["step"], "text": text["text"]} == expected["text"]
    alert = {"text": "have a look", "severity": "warning"}
    assert alert.items() <= instants["alert: loss is high"].items()
    # Files stay where they are.
    assert {"weights.bin", "tree"} <= set(instants)
