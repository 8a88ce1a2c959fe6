"""A watch for NaN and infinities: where the first one appeared, in a log line and in the trace.

Loaded late, when a name of it is asked for: it needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from dftrace_ai.inspect.attaching.modules.attention import FAST_PATH
from dftrace_ai.inspect.attaching.modules.swap import station_at
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.naming import layers_of
from dftrace_ai.inspect.nonfinite import MARKS, WATCHES, DeviceCounts, LayerWatch
from dftrace_ai.wording import ToldOnce, described

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.inspect.attaching.modules.swap import Station


class Watch:
    """The watch over a model, until `stop` is called."""

    def __init__(self, model: nn.Module, name: str | None = None) -> None:
        self.elsewhere = DeviceCounts()
        self._told = ToldOnce()
        self._stations: list[Station] = []
        self._release: Callable[[], None] | None = FAST_PATH.release
        FAST_PATH.hold()
        WATCHES.append(self.stepped)
        try:
            for layer in layers_of(model, name):
                station = station_at(layer.module, layer.kind)
                live = station.layer(layer.part, layer.name)
                live.watch = LayerWatch(live.name, self.elsewhere, self.failed)
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
        WATCHES.remove(self.stepped)
        for station in self._stations:
            for live in station.layers.values():
                live.watch = None
                station.set_busy(live, busy=live.inspected and bool(live.acts))
            station.leave()
        self._stations = []

    def failed(self, layer: str, tensor: str, error: Exception) -> None:
        """Tell once that a tensor could not be looked at."""
        if self._told.first(layer, tensor):
            why = described(error)
            MARKS.say(f"{layer}: {tensor} cannot be watched, which is told once: {why}")


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
    if not WATCHES and MARKS.tell is None:
        MARKS.reset()
    return Watch(model, name)
