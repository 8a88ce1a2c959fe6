"""The part `data`: the wait for each batch, the start of workers, and what loads the items."""

from __future__ import annotations

import functools
from multiprocessing.sharedctypes import RawValue
from typing import TYPE_CHECKING, Any

from torch.utils.data import _utils, dataloader

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.asking import asked
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.integrations.torch.depth import leave_hooked
from dftrace_ai.integrations.torch.workers import WorkerLoop, record_fetchers
from dftrace_ai.integrations.wrapping.listening import needed, once_imported
from dftrace_ai.run.emitting import RecordedCall

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install"]

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"

# On an iterator: whether its loader is one of those that are looked at.
MEANT = "_dftrace_meant"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what every `DataLoader` does, in this process and in its workers.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: torch lacks what is needed.
    """
    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    several = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
    if base is None or several is None:
        raise NotInThisVersion("torch.utils.data.dataloader._BaseDataLoaderIter")
    with Swaps() as swaps:
        if options.loaders:
            swaps.swap(base, "__init__", functools.partial(_noting, options))
        swaps.swap(base, "__next__", functools.partial(_waiting, options))
        swaps.swap(several, "__init__", functools.partial(_starting, options))
        record_fetchers(swaps, options)
        _record_workers(options, swaps, _utils.worker)
        swaps.then(once_imported("data", STATEFUL, functools.partial(_record_stateful, options)))
    return swaps.restore


def _record_workers(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    folders = options.folders if options.wants("io") else None
    loop = WorkerLoop(folders=folders, home=home.__name__, gate=options.gate)
    swaps.swap(home, "_worker_loop", lambda _: loop)


def _record_stateful(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    """Record torchdata's own iterator with workers, which is none of torch's, and its workers."""
    several = needed(home, "_StatefulMultiProcessingDataLoaderIter")
    swaps.swap(several, "__init__", functools.partial(_starting, options))
    _record_workers(options, swaps, home)


def _noting(options: AutoOptions, original: Any) -> Any:
    @functools.wraps(original)
    def recorded(self: Any, loader: Any) -> None:
        setattr(self, MEANT, loader in options.loaders)
        original(self, loader)

    return recorded


def _waiting(options: AutoOptions, original: Any) -> Any:
    node, chosen = beside(ai.dataloader.fetch, "iter"), options.loaders or None
    recorded = RecordedCall(
        "fetch", original, node, options.gate, options.training, leave_hooked, chosen
    )

    @functools.wraps(original)
    def waiting(self: Any) -> Any:
        return recorded(self)

    return waiting


def _starting(options: AutoOptions, original: Any) -> Any:
    gate = options.gate
    node = beside(ai.dataloader, "workers.start", of_the_step=False)

    @functools.wraps(original)
    def recorded(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        if gate.live and gate.shared is None:
            # Workers that outlast a step, or `auto` itself, are told so.
            gate.shared = asked(RawValue, "b", gate.recording)
        with node if gate.recording and loader in options.loaders else NOTHING:
            original(self, loader, *args, **kwargs)

    return recorded
