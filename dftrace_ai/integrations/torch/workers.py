"""What loads the items of a batch and collates them, here and in a loader's workers."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.asking import asked
from dftrace_ai.integrations.files import record_files
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.options import AutoOptions
from dftrace_ai.integrations.steps.training import rest
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps, original_of
from dftrace_ai.run.beginning import join_run_of_parent
from dftrace_ai.run.emitting import Gated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dftrace_ai.integrations.steps.gate import Gate

__all__ = ["WorkerLoop", "record_fetchers"]

PREFIX = "DFTRACE_"
OF_TORCH = "torch.utils.data._utils.worker"
# On a fetcher that records already.
DONE = "_dftrace_records"


class WorkerLoop:
    """Takes the place of torch's function that workers run.

    A forked worker is patched already. For a spawned one it is pickled: what unpickles it imports
    this module, joins the run and patches. A fork server that is older than the run has none of its
    variables; they come along.

    `folders`: in which files are recorded; None where none are; `environment`: variables of the
    process that has pickled it; None where it was not.
    """

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
    """Have all fetchers that are made from now on record items and collating.

    What they hold is replaced, and nothing of the user's: loader, data set and functions are his.

    Raises NotInThisVersion: torch lacks what is needed.
    """
    kinds = getattr(dataloader, "_DatasetKind", None)
    if kinds is None:
        raise NotInThisVersion("torch.utils.data.dataloader._DatasetKind")

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
    """What a fetcher holds for something of the program's, also to who asks what it can or is.

    Loaders that keep their place ask their data sets and iterators whether they have a state.
    """

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
