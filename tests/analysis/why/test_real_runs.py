"""Trainings on handwritten digits, traced by the package itself, each made slow in one way.

A few, slow enough for any machine; `make why-table` runs all of `real_runs.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.why.real_runs import Plan
from analysis.why.verdicts import label
from conftest import LEAN, RunScript

from dftrace_ai.analysis.why import why

# The sleeps are many times longer than the rest of a step, on a busy machine, too.
PLANTED = {
    "items inline": ("input-bound/inline", Plan(epochs=1, item_ms=6)),
    "too few workers": ("input-bound/workers", Plan(epochs=1, workers=1, item_ms=6)),
    "collate": ("input-bound/collate", Plan(epochs=1, workers=1, collate_ms=80)),
    "collate inline": ("input-bound/collate", Plan(epochs=1, collate_ms=80)),
    "slow items": ("input-bound/slow-item", Plan(workers=1, rare_ms=500, rare=160)),
    "checkpoints": ("checkpoint-bound/", Plan(epochs=2, save_every=10, save_ms=300)),
    "a logger": ("other-heavy/", Plan(epochs=1, log_ms=60, log_told=True)),
}
PROGRAM = """
    import os, sys, time
    from dataclasses import replace
    from pathlib import Path

    sys.path.insert(0, {tests!r})
    from analysis.why.real_runs import Plan, run

    del os.environ["DFTRACE_LOG_FILE"]  # each run has a folder of its own
    plans = {plans!r}
    # Six items are to take more than what all steps wait for a processor, on a machine as busy as this one.
    began = time.monotonic()
    run({{"clean": Plan(epochs=1, workers=1)}}, Path("clean"))
    step_ms = 1000 * (time.monotonic() - began) / 24
    rare_ms = min(max(plans["slow items"].rare_ms, 20 * step_ms), 3000)
    plans["slow items"] = replace(plans["slow items"], rare_ms=rare_ms)
    run(plans, Path("out"))
"""


def test_what_was_planted_into_a_real_training_is_named(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    plans = {name: plan for name, (_, plan) in PLANTED.items()}
    program = PROGRAM.format(tests=str(Path(__file__).parents[2]), plans=plans)
    done = run_script(program, env={**LEAN, "OMP_NUM_THREADS": "1"})
    verdicts = {name: why([done.folder / name]) for name in PLANTED}
    for name, (wanted, plan) in PLANTED.items():
        verdict = verdicts[name]
        assert wanted in map(label, verdict.findings), name
        # What the loader does lies in processes of its own, but for those that load inline.
        assert verdict.steps is not None
        assert (verdict.steps.found_by, verdict.steps.count) == ("loader blocks", 24 * plan.epochs)
    assert verdicts["too few workers"].findings[0].evidence["workers"] == 1
    (logger,) = [f for f in verdicts["a logger"].findings if f.kind == "other-heavy"]
    assert [(span["cat"], span["name"]) for span in logger.evidence["spans"]] == [
        ("other", "other.log")
    ]
    assert "other.log" in logger.because
    (slow,) = [f for f in verdicts["slow items"].findings if f.cause == "slow-item"]
    assert {item["args"]["index"] % 160 for item in slow.evidence["longest"]} == {77}
    assert "index=" in slow.because
