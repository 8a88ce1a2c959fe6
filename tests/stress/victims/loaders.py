"""Trainings whose batches come from the workers of a DataLoader."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import Any

from torch.utils.data import DataLoader, Dataset

import dftrace_ai
from stress.account import Place
from stress.victims.work import Maker, begin

_makers: dict[int, Maker] = {}


def maker_here(place: Place) -> Maker:
    """The maker of this process."""
    pid = os.getpid()
    if pid not in _makers:
        _makers[pid] = Maker(place)
    return _makers[pid]


class Items(Dataset[int]):
    """Items that take a few spans to make; no tensors, whose memory a killed process leaves."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        maker = maker_here(self.place)
        if not maker.full:
            maker.step()
        return index


def keep_torch_from_raising() -> None:
    """Take its handler for the death of workers away, which raises wherever the program is."""
    while True:
        with contextlib.suppress(RuntimeError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return


def train(place: Place, persistent: bool, settings: dict[str, Any]) -> None:
    """Train until killed or told to stop; the death of a worker is survived."""
    begin(place, **settings)
    maker = Maker(place)
    batches: DataLoader[int] = DataLoader(
        Items(place),
        batch_size=2,
        num_workers=2,
        persistent_workers=persistent,
        collate_fn=list,
    )
    stop = place.folder / "stop"

    def epoch() -> None:
        for batch in batches:
            if stop.exists() or maker.full:
                break
            maker.step()
            assert len(batch) == 2

    try:
        while not stop.exists():
            maker.span(epoch)
    except (RuntimeError, OSError, EOFError):
        pass
    keep_torch_from_raising()
    maker.until(stop.exists)
    dftrace_ai.finalize()
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(0)  # torch takes long to end in order, and no spans any more
