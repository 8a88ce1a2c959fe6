"""`dftrace why` understands a training that has traced itself."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import measure, read_job
from dftrace_ai.analysis.steps.roles import role_of
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


class Pieces(Dataset[torch.Tensor]):
    """Items that read a file in pieces."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.path, "r+b", 0) as file:
            while file.read(2):
                pass
            os.fsync(file.fileno())
        return torch.zeros(4)


def test_what_items_do_with_files_is_their_reading(
    traced: Traced, auto: Auto, tmp_path: Path
) -> None:
    """By which `dftrace why` tells a slow disk from slow items."""
    path = tmp_path / "item"
    path.write_bytes(b"four")
    with traced(perfetto=False, data_dir=str(tmp_path)) as run:
        auto(io=True)
        assert len(list(DataLoader(Pieces(path), batch_size=2))) == 2
        auto.remove()
    items = {s.id for s in run.trace.spans if s.name == "item"}
    files = [s for s in run.trace.spans if ".io." in s.name]
    assert len(files) == 4 * 6
    assert {s.args["p_idx"] for s in files} == items
    assert {role_of(s.cat, s.name) for s in files} == {"io"}
