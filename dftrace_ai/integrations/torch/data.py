"""The part `data`: the wait for each batch, the start of workers, and what loads the items."""

from __future__ import annotations

import functools
import os
import time
from importlib import import_module
from multiprocessing.sharedctypes import RawValue
from typing import TYPE_CHECKING, Any

from torch.utils.data import _utils, dataloader

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.files import record_files
from dftrace_ai.integrations.nodes import NOTHING, asked, beside, leave_hooked
from dftrace_ai.integrations.options import AutoOptions
from dftrace_ai.integrations.steps import rest
from dftrace_ai.integrations.swapping import (
    Swaps,
    needed,
    once_imported,
    original_of,
)
from dftrace_ai.run.beginning import join_run_of_parent
from dftrace_ai.run.emitting import Gated, RecordedCall
from dftrace_ai.run.ending import told_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from dftrace_ai.run.emitting import Gate

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"

# A pass that takes so long to begin is told of: who has a sampler or a data set that prepares it.
SLOW_NS = 10_000_000

# On an iterator: whether its loader is one of those that are looked at.
MEANT = "_dftrace_meant"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what every `DataLoader` does, in this process and in its workers."""
    base = needed(dataloader, "_BaseDataLoaderIter")
    single = needed(dataloader, "_SingleProcessDataLoaderIter")
    several = needed(dataloader, "_MultiProcessingDataLoaderIter")
    with Swaps() as swaps:
        if options.loaders:
            swaps.swap(base, "__init__", functools.partial(_noting, options))
        swaps.swap(base, "__next__", functools.partial(_waiting, options))
        swaps.swap(single, "__init__", functools.partial(_beginning, options))
        swaps.swap(several, "__init__", functools.partial(_starting, options))
        swaps.swap(several, "_shutdown_workers", _shutting_down)
        record_fetchers(swaps, options)
        _record_workers(options, swaps, _utils.worker)
        swaps.then(once_imported("data", STATEFUL, functools.partial(_record_stateful, options)))
    return swaps.restore


def _record_workers(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    folders = options.folders if options.wants("io") else None
    loop = WorkerLoop(folders=folders, home=home.__name__, gate=options.gate)
    swaps.swap(home, "_worker_loop", lambda _: loop)


def _record_stateful(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    """Record torchdata's own iterators, which are none of torch's, and their workers."""
    several = needed(home, "_StatefulMultiProcessingDataLoaderIter")
    if (single := getattr(home, "_StatefulSingleProcessDataLoaderIter", None)) is not None:
        swaps.swap(single, "__init__", functools.partial(_beginning, options))
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


def _beginning(options: AutoOptions, original: Any) -> Any:
    gate = options.gate
    node = beside(ai.dataloader, "start", of_the_step=False)

    @functools.wraps(original)
    def recorded(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        meant = gate.recording and loader in options.loaders
        span, since_ns = node._begin() if meant else None, time.monotonic_ns()
        error: type[BaseException] | None = None
        try:
            original(self, loader, *args, **kwargs)
        except BaseException as raised:
            error = type(raised)
            raise
        finally:
            if span is not None:
                lasted = time.monotonic_ns() - since_ns >= SLOW_NS
                span.end(error) if lasted else span.end_unless_empty()

    return recorded


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


def _shutting_down(original: Any) -> Any:
    @functools.wraps(original)
    def recorded(self: Any) -> None:
        asked(_note_whom_it_terminates, self)
        original(self)

    return recorded


def _note_whom_it_terminates(iterator: Any) -> None:
    # A loader asks its workers to end, and terminates those that are busy for seconds more.
    for worker in iterator._workers:
        terminate = worker.terminate

        def told(pid: int = worker.pid, terminate: Callable[[], None] = terminate) -> None:
            told_to_end.add(pid)
            terminate()

        worker.terminate = told


PREFIX = "DFTRACE_"
OF_TORCH = "torch.utils.data._utils.worker"
# On a fetcher that records already.
DONE = "_dftrace_records"


class WorkerLoop:
    """Takes the place of torch's function that workers run.

    `folders`: in which files are recorded, None where none are; `environment`: of who pickled it.
    """

    # A forked worker is patched already. For a spawned one it is pickled: what unpickles it imports
    # this module, joins the run and patches. A fork server that is older than the run has none of
    # its variables; they come along.
    def __init__(
        self,
        shared: Any = None,
        folders: tuple[str, ...] | None = None,
        environment: Mapping[str, str] | None = None,
        home: str = OF_TORCH,
        *,
        gate: Gate | None = None,
    ) -> None:
        self._home = home
        self._shared = shared
        self._gate = gate
        self._folders = folders
        self._environment = environment

    def __reduce__(self) -> tuple[Any, ...]:
        ours = {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}
        shared = self._shared if self._gate is None else self._gate.shared
        return WorkerLoop, (shared, self._folders, ours, self._home)

    def __call__(self, *args: Any) -> Any:
        """Run a worker."""
        rest()
        if self._environment is not None:
            os.environ.update(self._environment)
            join_run_of_parent()
            options = AutoOptions(folders=self._folders or ())
            options.gate.live = options.gate.recording = True
            options.gate.shared = self._shared
            # Where the worker has an `auto` of its own, that knows no step of ours.
            kinds: Any = dataloader._DatasetKind
            kinds.create_fetcher = staticmethod(original_of(kinds.create_fetcher))
            record_fetchers(Swaps(), options)
            if self._folders is not None:
                record_files(options)
        return original_of(import_module(self._home)._worker_loop)(*args)


def record_fetchers(swaps: Swaps, options: AutoOptions) -> None:
    """Have all fetchers that are made from now on record items and collating."""
    # What they hold is replaced, and nothing of the user's: loader, data set and functions are his.
    kinds = needed(dataloader, "_DatasetKind")

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def create_fetcher(*args: Any, **kwargs: Any) -> Any:
            fetcher = original(*args, **kwargs)
            if options.gate.live:
                asked(_record, fetcher, options)
            return fetcher

        return create_fetcher

    swaps.swap(kinds, "create_fetcher", make, static=True)


def _record(fetcher: Any, options: AutoOptions) -> None:
    if getattr(fetcher, DONE, False):
        return
    setattr(fetcher, DONE, True)
    if hasattr(fetcher, "dataset_iter"):
        recorded = _RecordedIterator(fetcher.dataset_iter, options)
        # A data set that is its own iterator is asked for its state once, by who looks whether.
        if fetcher.dataset is fetcher.dataset_iter:
            fetcher.dataset = recorded
        fetcher.dataset_iter = recorded
    elif getattr(fetcher.dataset, "__getitems__", None) and fetcher.auto_collation:
        fetcher.dataset = _RecordedBatches(fetcher.dataset, options)
    else:
        item = beside(ai.data.item, of_the_step=False)
        fetcher.dataset = Gated(fetcher.dataset, item, options.gate)
    if fetcher.auto_collation:
        collate = beside(ai.data.preprocess, "collate", of_the_step=False)
        fetcher.collate_fn = Gated(fetcher.collate_fn, collate, options.gate)


class _StandIn:
    """What a fetcher holds for something of the program's, also to who asks what it can or is."""

    # Loaders that keep their place ask their data sets and iterators whether they have a state.

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._original.__class__


class _RecordedBatches(_StandIn):
    """A data set, in a fetcher, that gives all items of a batch at once."""

    def __init__(self, dataset: Any, options: AutoOptions) -> None:
        super().__init__(dataset)
        node = beside(ai.data.item, "batch", of_the_step=False)
        self.__getitems__ = Gated(dataset.__getitems__, node, options.gate)


class _RecordedIterator(_StandIn):
    """The iterator of a data set, in a fetcher, whose items are recorded."""

    def __init__(self, iterator: Iterator[Any], options: AutoOptions) -> None:
        super().__init__(iterator)
        self._gate = options.gate
        self._node = beside(ai.data.item, of_the_step=False)

    def __iter__(self) -> _RecordedIterator:
        return self

    def __next__(self) -> Any:
        span = self._node._begin() if self._is_on() else None
        try:
            item = next(self._original)
        except StopIteration:
            if span is not None:
                span.end_unless_empty()
            raise
        except BaseException as error:
            if span is not None:
                span.end(type(error))
            raise
        if span is not None:
            span.end()
        return item

    def _is_on(self) -> bool:
        gate = self._gate
        return gate.live and (gate.recording if gate.shared is None else bool(gate.shared.value))
