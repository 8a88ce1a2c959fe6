"""torch DataLoader workers: persistent or not, forked or spawned, killed in the middle."""

from __future__ import annotations

import pytest
from conftest import RunScript

pytest.importorskip("torch")

SCRIPT = """
import json, multiprocessing, os, signal, sys
import torch
from torch.utils.data import DataLoader, Dataset
import dftrace_ai
from dftrace_ai import ai

class Numbers(Dataset):
    @ai.data.item.init
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    @ai.data.item
    def __getitem__(self, i):
        with ai.data.preprocess(step=i):
            return torch.tensor(float(i))

@ai.data.preprocess.derive(name="collate")
def collate(batch):
    return torch.stack(batch)

def loader(n, **options):
    return DataLoader(Numbers(n), batch_size=4, num_workers=2, collate_fn=collate, **options)
"""


def test_forked_workers_persistent_and_not(run_script: RunScript) -> None:
    done = run_script(
        SCRIPT
        + """
dftrace_ai.initialize()
for persistent in (False, True):
    batches = loader(16, persistent_workers=persistent)
    for epoch in ai.pipeline.epoch.iter(range(2)):
        for batch in ai.dataloader.fetch.iter(batches):
            with ai.compute.forward:
                batch.sum()
    del batches
dftrace_ai.finalize()
"""
    )
    parent, workers = done.split()
    assert parent.names == {
        "item.init": 2,
        "epoch.iter": 4,
        "epoch.block": 4,
        "fetch.iter": 16,
        "fetch.block": 16,
        "forward": 16,
    }
    assert len(workers) == 2 * 2 + 2
    steps = sorted(e.user["step"] for t in workers for e in t.named("preprocess"))
    assert steps == sorted(list(range(16)) * 4)
    assert sum(t.names["item"] for t in workers) == 64
    assert sum(t.names["preprocess.collate"] for t in workers) == 16
    for t in workers:
        assert {tuple(map(str, t.tree(e))) for e in t.named("item")} == {("['preprocess', []]",)}


def test_a_worker_killed_in_the_middle(run_script: RunScript) -> None:
    """Batch 10 kills the worker that has made the even ones: all it had ended is there."""
    done = run_script(
        SCRIPT
        + """
class Fatal(Numbers):
    @ai.data.item
    def __getitem__(self, i):
        with ai.data.preprocess(step=i):
            if i == 40:
                os.kill(os.getpid(), signal.SIGKILL)
            return torch.tensor(float(i))

dftrace_ai.initialize()
batches = DataLoader(Fatal(400), batch_size=4, num_workers=2)
seen = 0
try:
    for batch in ai.dataloader.fetch.iter(batches):
        # torch's own handler would raise at any place of this script
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        seen += 1
except (RuntimeError, OSError, EOFError):
    print(json.dumps(["killed", seen]))
dftrace_ai.finalize()
"""
    )
    parent, workers = done.split()
    said, seen = done.said[0]
    assert said == "killed"
    assert parent.names["fetch.block"] == seen
    steps = {t.path: [e.user["step"] for e in t.named("preprocess")] for t in workers}
    killed = [t for t in workers if 40 in steps[t.path]]
    assert len(workers) == 2
    assert len(killed) == 1
    even = [i for i in range(40) if i // 4 % 2 == 0]
    assert steps[killed[0].path] == [*even, 40]
    assert killed[0].footer["ended"] == "died"
    assert killed[0].tree()[-1] == ["item", [["preprocess", []]]]
    assert [(e.name, e.level) for e in killed[0].of("B")] == [("item", 1), ("preprocess", 2)]
    (other,) = (t for t in workers if t is not killed[0])
    odd = [i for i in range(400) if i // 4 % 2 == 1]
    assert steps[other.path] == odd[: len(steps[other.path])]


def test_spawned_workers(run_script: RunScript) -> None:
    done = run_script(
        SCRIPT
        + """
if __name__ == "__main__":
    with dftrace_ai.tracing():
        for batch in ai.dataloader.fetch.iter(loader(8, multiprocessing_context="spawn")):
            pass
"""
    )
    parent, workers = done.split()
    assert parent.names["fetch.block"] == 2
    assert sum(t.names["item"] for t in workers) == 8
