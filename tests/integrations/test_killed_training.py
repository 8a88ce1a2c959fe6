"""A training that is killed: what it has done of its last step and epoch is told by who completes its trace."""

from __future__ import annotations

from collections import Counter

from conftest import RunScript

from dftrace_ai.spools.recovery import adopt_dead

KILLED = """
    import os, signal, sys
    import torch
    from torch.utils.data import DataLoader
    import dftrace_ai

    def learn(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def epochs():
        for epoch in range(3):
            for number, x in enumerate(DataLoader(torch.ones(16, 2), batch_size=4)):
                learn(x)
                if (epoch, number) == (2, 1):
                    die()

    def loose():
        for _ in range(5):
            learn(torch.ones(4, 2))
        die()

    def accumulating():
        for number, x in enumerate(DataLoader(torch.ones(24, 2), batch_size=4)):
            model(x).square().mean().backward()
            if number == 3:
                die()
            if number % 2:
                optimizer.step()

    def between():
        for _ in range(2):
            for x in DataLoader(torch.ones(16, 2), batch_size=4):
                learn(x)
        die()

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out = os.path.dirname(os.environ["DFTRACE_LOG_FILE"])
    ways = {
        "exit": lambda: os._exit(3),
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    }
    for train in (epochs, loose, accumulating, between):
        for way, die in ways.items():
            child = os.fork()
            if child == 0:
                dftrace_ai.auto(log_file=f"{out}/{train.__name__}-{way}")
                train()
            os.waitpid(child, 0)
"""

# Steps, epochs that are over, epochs that were on.
DONE = {
    "epochs": (10, 2, 1),
    "loose": (5, 0, 0),
    "accumulating": (1, 0, 1),
    "between": (8, 2, 0),
}


def test_the_last_step_and_epoch_of_a_training_that_is_killed(run_script: RunScript) -> None:
    outcome = run_script(KILLED)
    adopt_dead(outcome.folder)
    traces = outcome.traces(perfetto=True)
    assert len(traces) == 12
    for trace in traces:
        program = trace.path.name.partition("-")[0]
        progress = Counter((e.name, e.ph) for e in trace.events if e.cat == "pipeline")
        steps = [e for e in trace.spans if (e.cat, e.name) == ("pipeline", "step")]
        found = progress["step", "X"], progress["epoch", "X"], progress["epoch", "B"]
        assert (trace.path.name, found) == (trace.path.name, DONE[program])
        assert [e.args["step"] for e in steps] == list(range(len(steps)))
        assert all(one.end_ns <= other.ts_ns for one, other in zip(steps, steps[1:]))
        work = [e for e in trace.spans if (e.cat, e.name) == ("compute", "step")]
        assert all(
            s.ts_ns <= e.ts_ns and e.end_ns <= s.end_ns for s, e in zip(steps, work, strict=True)
        )
        assert {e.args["microbatches"] for e in steps} == {2 if program == "accumulating" else 1}
        last = {"epochs": 2, "accumulating": 0}.get(program)
        (on,) = [e.args["epoch"] for e in trace.events if e.ph == "B"] or [None]
        assert on == last
