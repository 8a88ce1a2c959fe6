"""Two runs of one program, in the second of which one function sleeps longer."""

from __future__ import annotations

from conftest import RunScript

from dftrace_ai.analysis.diff import diff

# The sleeps are many times longer than the rest of a step, on a busy machine, too.
PROGRAM = """
    import os, time
    from pathlib import Path

    import dftrace_ai
    from dftrace_ai import ai

    del os.environ["DFTRACE_LOG_FILE"]  # each run has a folder of its own

    def train(name, forward_s):
        with dftrace_ai.tracing(log_file=Path("out") / name / "t"):
            for step in ai.dataloader.fetch.iter(range(40)):
                ai.update(step=step)
                with ai.compute.forward:
                    time.sleep(forward_s)
                with ai.compute.backward:
                    time.sleep(0.002)

    train("before", 0.002)
    train("after", 0.050)
"""


def test_a_function_that_became_slower_is_named(run_script: RunScript) -> None:
    done = run_script(PROGRAM)
    found = diff(done.folder / "before", done.folder / "after")
    kinds = {(row.cat, row.name): row.change.kind for row in found.names}
    assert kinds["compute", "forward"] == "slower"
    places = {row.path: row.change.kind for row in found.tree}
    assert places["dataloader.fetch.block", "compute.forward"] == "slower"
    assert found.verdict == "slower"
    assert found.before.steps == found.after.steps == 40
