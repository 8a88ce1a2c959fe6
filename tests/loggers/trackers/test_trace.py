"""The trace: everything that was logged stands on its timeline, as the reader of traces tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunScript, Traced, read_all, trace_files
from PIL import Image

from trackers.programs import shuffled_steps, six_kinds

STATED = (
    "each value",
    "as instants",
    "as they are",
    "as it is, and quantiles",
    "PNG",
    "as it is",
    "GLB",
)

# As ranks are started: one fails, one is killed, and one goes on from before with a trace of its own.
STEPS = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import shuffled_steps
from dftrace_ai import tracing
from dftrace_ai.loggers import make_loggers

FOLDER, ENDING, RANK = sys.argv[2], sys.argv[3], int(os.environ["RANK"])
config = {
    "loggers": ["metric"], "log_dir": FOLDER + "/runs", "run_name": "steps", "ranks": "all",
    "system_metrics_s": None, "status_line": False, "limit_s": 120,
}
logged = shuffled_steps.again() if ENDING == "again" else shuffled_steps.of(RANK)
with tracing(log_file=FOLDER + "/" + ENDING) as run:
    with make_loggers({"trace": {"config": config}, "local": {"config": config}}) as loggers:
        for step, value in logged:
            loggers.log_iter({"loss": value}, step=step)
        if ENDING == "killed":
            loggers.flush()
            run.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if ENDING == "failed":
            raise RuntimeError("a training that fails")
"""


def test_shuffled_steps_of_two_ranks_and_a_restart_keep_every_value(
    run_script: RunScript, tmp_path: Path
) -> None:
    from dftrace_ai.spools.recovery import adopt_dead

    here = str(Path(__file__).parent / "programs")
    for rank, ending, status in ((0, "failed", 1), (1, "killed", -9), (0, "again", 0)):
        env = {"RANK": str(rank), "WORLD_SIZE": "2"}
        run_script(STEPS, env=env, args=[here, str(tmp_path), ending], status=status)
    adopt_dead(tmp_path)

    found: dict[str, list[tuple[int, float]]] = {}
    for trace in read_all(trace_files(tmp_path)):
        values = [e.args["value"] for e in trace.events if (e.ph, e.name) == ("C", "loss")]
        found[trace.path.name.partition("-")[0]] = values
    asked = {
        "failed": shuffled_steps.of(0),
        "killed": shuffled_steps.of(1),
        "again": shuffled_steps.again(),
    }
    # In the order in which they were logged: a track has a time, and no step.
    assert found == {ending: [value for _, value in pairs] for ending, pairs in asked.items()}


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
