"""A watch for NaN and infinities: where the first one appeared, in a log line and in the trace."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from dftrace_ai.inspect.errors import InspectTypeError, described
from dftrace_ai.inspect.naming import layers_of
from dftrace_ai.inspect.nonfinite.marks import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.output.log_files import tell_on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.inspect.attaching.swap import Station
    from dftrace_ai.inspect.numerics.record import Record

__all__ = ["LayerWatch", "Watch", "begin", "end", "stepped", "watch_nonfinite"]

WATCHED = ("output", "gradient")
CAUSES = ("activation", "weight")
PENDING_MOST = 4096
"""After so many looks at tensors of another device their counts are fetched."""


class _Pending(NamedTuple):
    place: Place
    counts: Tensor


class _Elsewhere:
    """Counts of tensors on other devices, which are fetched without waiting for the device."""

    def __init__(self) -> None:
        self._waiting: list[_Pending] = []
        self._under_way: list[tuple[list[_Pending], Tensor, Any]] = []

    def add(self, place: Place, tensor: Tensor) -> None:
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        nan = tensor.isnan().sum()
        bad = tensor.numel() - tensor.isfinite().sum()
        total = torch.full_like(nan, tensor.numel())
        self._waiting.append(_Pending(place, torch.stack((nan, bad - nan, total))))
        if len(self._waiting) >= PENDING_MOST:
            self.fetch()

    def fetch(self) -> None:
        """Begin to fetch what was counted."""
        by_device: dict[torch.device, list[_Pending]] = {}
        for one in self._waiting:
            by_device.setdefault(one.counts.device, []).append(one)
        self._waiting = []
        for found in by_device.values():
            there = torch.stack([one.counts for one in found])
            pinned = there.is_cuda
            here = torch.empty(there.shape, dtype=there.dtype, device="cpu", pin_memory=pinned)
            here.copy_(there, non_blocking=True)
            arrived = None
            if there.is_cuda:
                make: Callable[[], Any] = torch.cuda.Event
                arrived = make()
                arrived.record(torch.cuda.current_stream(there.device))
            self._under_way.append((found, here, arrived))

    def arrived(self, *, wait: bool = False) -> list[tuple[Place, Counts]]:
        """Return the counts that have come, in the order in which they were counted."""
        told: list[tuple[Place, Counts]] = []
        while self._under_way:
            found, here, event = self._under_way[0]
            if event is not None and wait:
                event.synchronize()
            if event is not None and not event.query():
                break
            self._under_way.pop(0)
            told += [
                (one.place, Counts(*row)) for one, row in zip(found, here.tolist(), strict=True)
            ]
        return told


class LayerWatch:
    """The watch over one layer.

    Args:
        name: of the layer.
        watch: to which it belongs.
    """

    def __init__(self, name: str, watch: Watch) -> None:
        self.name = name
        self._watch = watch
        self._made_of: dict[str, weakref.ref[Tensor]] = {}

    def wants(self, tensor_name: str) -> bool:
        """Tell whether a tensor is looked at."""
        return tensor_name in WATCHED or tensor_name in CAUSES

    def look(
        self, tensor_name: str, tensor: Tensor, record: Record | None, micro_batch: int
    ) -> None:
        """Look at a tensor.

        Args:
            tensor_name: which one.
            tensor: the tensor.
            record: of the tensor where it was made anyway.
            micro_batch: which forward of the layer in the step.
        """
        if tensor_name in CAUSES:
            self._made_of[tensor_name] = weakref.ref(tensor)
        elif tensor_name == "output":
            self._look(tensor_name, tensor, record, micro_batch, self._causes)
        else:
            self._look(tensor_name, tensor, record, micro_batch)

    def follow(self, output: Tensor, causes: Mapping[str, Tensor], micro_batch: int | None) -> None:
        """Look at what a layer gave, and later at its gradient; nothing else is done in it.

        Args:
            output: of the layer.
            causes: what it was made of.
            micro_batch: which forward of the layer in the step; None where a checkpoint is
                computed again.
        """
        if micro_batch is not None:
            self._look("output", output, None, micro_batch, lambda: _counts_of(causes))
        if output.requires_grad:
            hook: Callable[..., Any] = output.register_hook
            hook(partial(self._look_back, micro_batch or 0))

    def _look_back(self, micro_batch: int, gradient: Tensor) -> None:
        self._look("gradient", gradient, None, micro_batch)

    def _look(
        self,
        tensor_name: str,
        tensor: Tensor,
        record: Record | None,
        micro_batch: int,
        causes: Callable[[], dict[str, Counts]] | None = None,
    ) -> None:
        if not tensor.is_floating_point() or tensor.is_meta:
            return
        try:
            if record is None:
                if not tensor.is_cpu:
                    self._watch.elsewhere.add(
                        Place.now(self.name, tensor_name, micro_batch), tensor.detach()
                    )
                    return
                record = collect(tensor, zeros=False)
            if record is not None:
                MARKS.seen(self.name, tensor_name, record, micro_batch, causes)
        except Exception as error:  # noqa: BLE001 - a watch must not end the training
            self._watch.failed(self.name, tensor_name, error)

    def _causes(self) -> dict[str, Counts]:
        made_of = {name: reference() for name, reference in self._made_of.items()}
        return _counts_of({name: one for name, one in made_of.items() if one is not None})


def _counts_of(tensors: Mapping[str, Tensor]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for name, tensor in tensors.items():
        seen = tensor.is_floating_point() and not tensor.is_meta
        record = collect(tensor, zeros=False) if seen else None
        if record is not None:
            found[name] = Counts.of(record)
    return found


class Watch:
    """The watch over a model, until `stop` is called.

    Args:
        model: the model.
        name: as for `attach`.
    """

    def __init__(self, model: nn.Module, name: str | None = None) -> None:
        from dftrace_ai.inspect.attaching.attention import FAST_PATH
        from dftrace_ai.inspect.attaching.swap import station_at

        self.elsewhere = _Elsewhere()
        self._failed: set[tuple[str, str]] = set()
        self._stations: list[Station] = []
        self._release: Callable[[], None] | None = FAST_PATH.release
        FAST_PATH.hold()
        _watches.append(self)
        try:
            for layer in layers_of(model, name):
                station = station_at(layer.module, layer.kind)
                live = station.layer(layer.part, layer.name)
                live.watch = LayerWatch(live.name, self)
                station.set_busy(live, busy=True)
                if station not in self._stations:
                    self._stations.append(station)
        except BaseException:
            self.stop()
            raise

    def __repr__(self) -> str:
        layers = [live for station in self._stations for live in station.layers.values()]
        watched = sum(live.watch is not None for live in layers)
        state = "stopped" if self._release is None else f"on {watched} layers"
        return f"<watch for non-finite values, {state}>"

    def stepped(self) -> None:
        """Take in what other devices have counted up to now."""
        try:
            self.elsewhere.fetch()
            self._tell()
        except Exception as error:  # noqa: BLE001 - a watch must not end the training
            self.failed("another device", "what was counted on it", error)

    def _tell(self, *, wait: bool = False) -> None:
        for place, counts in self.elsewhere.arrived(wait=wait):
            MARKS.counted(place, counts)

    def stop(self) -> None:
        """End the watch; the modules are what they were before."""
        if self._release is None:
            return
        self._release()
        self._release = None
        self.elsewhere.fetch()
        self._tell(wait=True)
        _watches.remove(self)
        for station in self._stations:
            for live in station.layers.values():
                live.watch = None
                station.set_busy(live, busy=live.inspected and bool(live.acts))
            station.leave()
        self._stations = []

    def failed(self, layer: str, tensor: str, error: Exception) -> None:
        """Tell once that a tensor could not be looked at."""
        key = layer, tensor
        if key not in self._failed:
            self._failed.add(key)
            message = f"{layer}: {tensor} cannot be watched, which is told once: {described(error)}"
            if MARKS.tell is not None:
                MARKS.tell(message)
            else:
                tell_on_stderr(f"dftrace: {message}")


_watches: list[Watch] = []


def stepped(step: int | None) -> None:
    """Tell the watches that a step has ended.

    Args:
        step: the number of the next one; None counts on from the present one.
    """
    for watch in _watches:
        watch.stepped()
    MARKS.step = MARKS.step + 1 if step is None else step


def begin(step: int, tell: Callable[[str], None]) -> None:
    """Begin anew, with a session that has a log."""
    MARKS.reset()
    MARKS.step = step
    MARKS.tell = tell


def end() -> None:
    """Take in that the session is over."""
    MARKS.reset()
    MARKS.tell = None


def watch_nonfinite(model: nn.Module, *, name: str | None = None) -> Watch:
    """Watch the outputs and gradients of a model's layers for NaN and infinities.

    The first that appears is told in a line of the log (of standard error without a session), with
    layer, tensor, iteration, micro-batch and counts, and whether what went into the layer had such
    values, too. It is marked in the trace, as is each layer whose counts leave zero later. The
    iteration is the one that `step` counts. A session and a config are not needed.

    A look takes one pass over a tensor. Fused kernels that bypass layers in inference are off for
    as long. Tensors of a GPU are counted there, and told in a later step; those of a CUDA graph
    that is being captured are passed over.

    Args:
        model: the model.
        name: the beginning of the names of its layers; ``model`` where it is not given.

    Returns:
        The watch; its `stop()` ends it.

    Raises:
        InspectTypeError: the model is no module.
        InspectRuntimeError: a module has a class that cannot be changed.

    Example::

        watch = debug_api.watch_nonfinite(model)
        train(model)
        watch.stop()
    """
    if not isinstance(model, nn.Module):
        raise InspectTypeError(
            f"watch_nonfinite: a torch.nn.Module is needed, not {type(model).__name__}"
        )
    if not _watches and MARKS.tell is None:
        MARKS.reset()
    return Watch(model, name)
