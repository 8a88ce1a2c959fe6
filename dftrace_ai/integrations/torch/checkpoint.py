"""The part `checkpoint`: what saves and loads a model, where it does not load data."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.checkpoints import Call, begin_checkpoint, in_checkpoint, recorded
from dftrace_ai.integrations.nodes import beside, depth
from dftrace_ai.integrations.swapping import Swaps, needed, once_imported
from dftrace_ai.integrations.torch.inside import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.checkpoints import Begun
    from dftrace_ai.integrations.options import AutoOptions

SHARDED = "torch.distributed.checkpoint"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what is saved and loaded; what the program imports later is recorded from then on."""
    with Swaps() as swaps:
        for name, node, place in (
            ("save", beside(ai.checkpoint.capture), 1),
            ("load", beside(ai.checkpoint.restart), 0),
        ):
            make = functools.partial(_unless_waiting, options, node, place, "f", False)
            is_one = getattr(torch, name, None) is getattr(torch.serialization, name, None)
            if is_one:  # the one that pickle looks up, as for a function that loads samples
                swaps.swap(torch.serialization, name, make)
                make = functools.partial(_as_in_its_home, name)
            swaps.swap(torch, name, make)
        for module, install_in in (
            (SHARDED, _sharded),
            ("safetensors.torch", _safetensors),
            ("safetensors", _opened),
        ):
            once = functools.partial(install_in, options)
            swaps.then(once_imported("checkpoint", module, once))
    return swaps.restore


def _unless_waiting(
    options: AutoOptions, node: ProfilerNode, place: int, word: str, whole: bool, original: Any
) -> Any:
    def place_of(call: Call) -> Any:
        return call.given(place, word)

    record = recorded(options, node, place_of, original, whole=whole)

    @functools.wraps(original)
    def unless_waiting(*args: Any, **kwargs: Any) -> Any:
        # Samples that a data set loads are no checkpoints.
        return (original if depth.waiting else record)(*args, **kwargs)

    return unless_waiting


def _as_in_its_home(name: str, original: object) -> Any:
    return getattr(torch.serialization, name)


def _sharded(options: AutoOptions, swaps: Swaps, package: ModuleType) -> None:
    capture, restart = ai.checkpoint.capture, ai.checkpoint.restart
    saver = needed(package, "state_dict_saver")
    loader = needed(package, "state_dict_loader")
    make = functools.partial(recorded, options, whole=True)
    for home, name, made in (
        (saver, "save", functools.partial(make, beside(capture), _place)),
        (loader, "load", functools.partial(make, beside(restart), _place)),
        # What the training waits for, of which nothing is written yet, and what goes on beside it.
        (saver, "async_save", functools.partial(make, beside(capture, "staging"), lambda _: None)),
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


def _place(call: Call) -> Any:
    # Readers and writers have it as `path`.
    storage = call.kwargs.get("storage_writer") or call.kwargs.get("storage_reader")
    return call.kwargs.get("checkpoint_id") or getattr(storage, "path", None)


def _of_checkpoint(original: Any) -> Any:
    """Return a function that writes files of a checkpoint, in threads of its own."""

    @functools.wraps(original)
    def writes(*args: Any, **kwargs: Any) -> Any:
        with in_checkpoint():
            return original(*args, **kwargs)

    return writes


def _safetensors(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    for name, node, place in (
        ("save_file", ai.checkpoint.capture, 1),
        ("save_model", ai.checkpoint.capture, 1),
        ("load_file", ai.checkpoint.restart, 0),
        ("load_model", ai.checkpoint.restart, 1),
    ):
        make = functools.partial(_unless_waiting, options, beside(node), place, "filename", True)
        swaps.swap(home, name, make)


READING = ("get_tensor", "get_tensors")


def _opened(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    """Record what is read by `safe_open`, tensor by tensor."""
    # The class keeps its identity and has other methods meanwhile: who has imported it before by
    # its name is recorded, too.
    kind, reads = needed(home, "safe_open"), _Reads(options)
    swaps.swap(kind, "__enter__", reads.entering)
    swaps.swap(kind, "__exit__", reads.leaving)
    for name in READING:
        if hasattr(kind, name):  # some came later
            swaps.swap(kind, name, reads.reading)
    if hasattr(kind, "get_slice"):
        swaps.swap(kind, "get_slice", functools.partial(reads.slicing, swaps))


class _Reads:
    """What is read of files that are open."""

    def __init__(self, options: AutoOptions) -> None:
        self._options = options
        self._node = beside(ai.checkpoint.restart)
        self._part = beside(self._node, "part")
        # Of those that a block holds open, by identity: they take no attributes.
        self._open: dict[int, _Block] = {}
        # Tensors of which parts are read, by identity, too; who takes over one's is noted anew.
        self._slices: dict[int, _Block] = {}
        self._known: set[type] = set()

    def entering(self, original: Any) -> Any:
        @functools.wraps(original)
        def enter(handle: Any) -> Any:
            result = original(handle)
            self._open[id(handle)] = _Block(self._begin(self._node))
            return result

        return enter

    def leaving(self, original: Any) -> Any:
        @functools.wraps(original)
        def leave(handle: Any, *raised: Any) -> Any:
            block = self._open.pop(id(handle), None)
            self._slices = {key: of for key, of in self._slices.items() if of is not block}
            try:
                return original(handle, *raised)
            finally:
                if block is not None:
                    block.end(raised[0] if raised else None)

        return leave

    def reading(self, original: Any) -> Any:
        @functools.wraps(original)
        def read(handle: Any, *args: Any, **kwargs: Any) -> Any:
            return self._read(self._open.get(id(handle)), original, handle, *args, **kwargs)

        return read

    def slicing(self, swaps: Swaps, original: Any) -> Any:
        @functools.wraps(original)
        def get_slice(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(handle, *args, **kwargs)
            if self._options.gate.live:
                if type(result) not in self._known:  # a class that has no name in the package
                    self._known.add(type(result))
                    swaps.swap(type(result), "__getitem__", self._taking)
                block = self._open.get(id(handle))
                if block is None:
                    self._slices.pop(id(result), None)
                else:
                    self._slices[id(result)] = block
            return result

        return get_slice

    def _taking(self, original: Any) -> Any:
        @functools.wraps(original)
        def take(piece: Any, place: Any) -> Any:
            return self._read(self._slices.get(id(piece)), original, piece, place)

        return take

    def _read(self, block: _Block | None, original: Any, *args: Any, **kwargs: Any) -> Any:
        if block is not None:
            result = original(*args, **kwargs)
            block.take(result)
            return result
        # Of no block: each is a part of a restart that nobody tells.
        block = _Block(self._begin(self._part))
        error: type[BaseException] | None = None
        try:
            result = original(*args, **kwargs)
            block.take(result)
        except BaseException as raised:
            error = type(raised)
            raise
        finally:
            block.end(error)
        return result

    def _begin(self, node: Any) -> Begun | None:
        # Samples that a data set loads are no checkpoints.
        return None if depth.waiting else begin_checkpoint(self._options, node, self._part)


class _Block:
    """A file while it is read."""

    def __init__(self, begun: Begun | None) -> None:
        self._begun = begun
        self._size: int | None = 0

    def take(self, read: Any) -> None:
        """Count what has been read: a tensor, or several by their names."""
        size = bytes_of(list(read.values()) if type(read) is dict else read)
        # Of one that does not tell its size, all that is read has none that is known.
        self._size = None if self._size is None or size is None else self._size + size

    def end(self, error: type[BaseException] | None) -> None:
        if self._begun is not None:
            self._begun.end(self._size or None, error)
