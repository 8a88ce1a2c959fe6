"""`dftrace why` understands a training that has traced itself."""

from __future__ import annotations

import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import measure, read_job
from dftrace_ai.analysis.why import why
from dftrace_ai.integrations.auto import Auto


def test_steps_and_their_parts_are_found(traced: Traced, auto: Auto) -> None:
    data = TensorDataset(torch.randn(160, 4))
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with traced(perfetto=False) as run:
        auto()
        for _ in range(2):
            model.train()
            for number, (x,) in enumerate(DataLoader(data, batch_size=4)):
                (model(x).square().mean() / 2).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                for (x,) in DataLoader(data, batch_size=16):
                    model(x)
        auto.remove()
    traces = open_traces([str(run.folder)])
    steps = measure(read_job(traces).ranks[0].process)
    assert steps is not None
    assert (steps.found_by, len(steps), len(steps.evaluation[0])) == ("step spans", 40, 2)
    for part in ("wait", "forward", "backward", "optimizer"):
        assert (steps.parts[part] > 0).all(), part
    marks = [s for s in run.trace.spans if (s.cat, s.name) == ("pipeline", "step")]
    begun = steps.start_ns[0]
    first = marks[0].ts_ns
    assert (steps.start_ns - begun).tolist() == [s.ts_ns - first for s in marks]
    assert (steps.end_ns - begun).tolist() == [s.end_ns - first for s in marks]
    verdict = why([run.folder])
    assert verdict.steps.found_by == "step spans"
