"""`dftrace why` understands a training that has traced itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from dftrace_ai.analysis.steps.roles import role_of
from dftrace_ai.analysis.why import Verdict, why
from dftrace_ai.integrations.auto import Auto


class SlowOrder(Sampler[int]):
    """An order of items that takes its time at each beginning."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.05)
        return iter(range(32))

    def __len__(self) -> int:
        return 32


class SlowBatches:
    """Batches that are put together before the first of a pass is asked for."""

    def __iter__(self) -> Iterator[list[int]]:
        time.sleep(0.05)
        return iter([[*range(first, first + 4)] for first in range(0, 32, 4)])

    def __len__(self) -> int:
        return 8


class SlowShards(IterableDataset[tuple[torch.Tensor]]):
    """Items of a file that is opened at each beginning."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        time.sleep(0.05)
        return iter([(one,) for one in torch.randn(32, 4)])


def start_slowly(_: int) -> None:
    time.sleep(0.3)


def test_what_lies_around_loops_is_named(traced: Traced, auto: Auto) -> None:
    """Beginnings of passes, time between epochs, evaluations by hand."""
    data = TensorDataset(torch.randn(32, 4))
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def trained(
        passes: int,
        sampler: Sampler[int] | None = None,
        between: Callable[[], None] = lambda: None,
        loaders: Callable[[int], DataLoader[Any]] | None = None,
    ) -> Verdict:
        plain = DataLoader(data, batch_size=4, sampler=sampler)
        with traced(perfetto=False) as run:
            auto()
            for number in range(passes):
                model.train()
                for (x,) in loaders(number) if loaders else plain:
                    model(x).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                between()
            if loaders:
                loaders(0)._iterator = None  # whose workers stay until then
            auto.remove()
        return why([run.folder])

    def evaluate() -> None:
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model(torch.randn(4, 4))
                time.sleep(0.005)

    verdict = trained(8, sampler=SlowOrder())
    assert (verdict.verdict, verdict.findings[0].cause) == ("input-bound", "start-up")
    assert verdict.findings[0].severity == "critical"
    assert "the beginnings of passes over the loader, 8 times" in verdict.findings[0].what
    assert "No workers were started." in verdict.findings[0].because

    for slow in (
        DataLoader(data, batch_sampler=SlowBatches()),
        DataLoader(SlowShards(), batch_size=4),
    ):
        verdict = trained(8, loaders=lambda _, slow=slow: slow)
        assert (verdict.verdict, verdict.findings[0].cause) == ("input-bound", "start-up")
        assert "No workers were started." in verdict.findings[0].because

    verdict = trained(8, between=lambda: time.sleep(0.05))
    assert (verdict.verdict, verdict.findings[0].cause) == ("between-steps", "loops")
    # Of seven; where one is much longer, on a busy machine, fewer are nearly all of it.
    assert 4 <= verdict.findings[0].evidence["times"] <= 7

    verdict = trained(8, between=evaluate)
    assert (verdict.verdict, verdict.findings[0].severity) == ("evaluation-heavy", "critical")
    assert (verdict.findings[0].evidence["times"], verdict.findings[0].confidence) == (8, "medium")

    # Of these eight passes three start workers: the one that keeps them does so once.
    works: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "fork"}
    works["worker_init_fn"] = start_slowly
    kept = DataLoader(data, batch_size=4, persistent_workers=True, **works)
    anew = DataLoader(data, batch_size=4, **works)
    inline = DataLoader(data, batch_size=4)
    turns = [kept, inline, anew, kept, inline, anew, kept, inline]
    verdict = trained(8, loaders=lambda number: turns[number])
    (told,) = [one for one in verdict.findings if one.cause == "start-up"]
    assert (told.evidence["workers_started"], told.evidence["passes"]) == (3, 8)
    assert "goes to starting the loader's workers, 3 times." in told.what
    assert "Workers were started for 3 of 8 passes." in told.because


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
