"""Checkpoints of `torch.distributed.checkpoint` and of safetensors: each call one span."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.torch.depth import depth
from dftrace_ai.integrations.wrapping.checkpoints import in_checkpoint, recorded
from dftrace_ai.integrations.wrapping.listening import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

__all__ = ["record_sharded"]

PART = "checkpoint"
SHARDED = "torch.distributed.checkpoint"
SAFETENSORS = "safetensors.torch"


def record_sharded(options: AutoOptions) -> Callable[[], None]:
    """Record what these save and load, once the program has imported them."""
    removals = [
        once_imported(PART, SHARDED, functools.partial(_sharded, options)),
        once_imported(PART, SAFETENSORS, functools.partial(_safetensors, options)),
    ]

    def remove() -> None:
        for one in removals:
            one()

    return remove


def _sharded(options: AutoOptions, swaps: Swaps, package: ModuleType) -> None:
    capture, restart = ai.checkpoint.capture, ai.checkpoint.restart
    saver = needed(package, "state_dict_saver")
    loader = needed(package, "state_dict_loader")
    make = functools.partial(recorded, options, whole=True)
    for home, name, made in (
        (saver, "save", functools.partial(make, beside(capture), _place)),
        (loader, "load", functools.partial(make, beside(restart), _place)),
        # What the training waits for, and what goes on beside it.
        (saver, "async_save", functools.partial(make, beside(capture, "staging"), _nowhere)),
    ):
        swaps.swap(home, name, made)
        swaps.put(package, name, getattr(home, name))
    threads = sys.modules.get(f"{SHARDED}._async_thread_executor")
    if hasattr(threads, "save_wrapper"):
        background = functools.partial(make, beside(capture, "background"), _place)
        swaps.swap(threads, "save_wrapper", background)
    files = sys.modules.get(f"{SHARDED}.filesystem")
    if hasattr(files, "_write_files_from_queue"):
        swaps.swap(files, "_write_files_from_queue", _of_checkpoint)


def _place(_: Any, __: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    # Readers and writers have it as `path`.
    storage = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    return kwargs.get("checkpoint_id") or getattr(storage, "path", None)


def _nowhere(_: Any, __: tuple[Any, ...], ___: Mapping[str, Any]) -> None:
    """Nothing has been written yet."""


def _of_checkpoint(original: Any) -> Any:
    """Return a function that writes files of a checkpoint, in threads of its own."""

    @functools.wraps(original)
    def writes(*args: Any, **kwargs: Any) -> Any:
        with in_checkpoint():
            return original(*args, **kwargs)

    return writes


def _safetensors(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    for name, node, place, word in (
        ("save_file", ai.checkpoint.capture, 1, "filename"),
        ("save_model", ai.checkpoint.capture, 1, "filename"),
        ("load_file", ai.checkpoint.restart, 0, "filename"),
        ("load_model", ai.checkpoint.restart, 1, "filename"),
    ):
        make = functools.partial(_unless_waiting, options, beside(node), place, word)
        swaps.swap(home, name, make)


def _unless_waiting(options: AutoOptions, node: Any, place: int, word: str, original: Any) -> Any:
    def place_of(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(word, args[place] if len(args) > place else None)

    record = recorded(options, node, place_of, original, whole=True)

    @functools.wraps(original)
    def unless_waiting(*args: Any, **kwargs: Any) -> Any:
        # Samples that a data set loads are no checkpoints.
        return (original if depth.waiting else record)(*args, **kwargs)

    return unless_waiting
