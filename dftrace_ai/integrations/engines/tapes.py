"""Loops of TensorFlow 2 that run eagerly: tapes, their gradients, and batches of `tf.data`."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.torch.depth import depth
from dftrace_ai.integrations.wrapping.listening import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

__all__ = ["install"]

DIFFERENTIATING = ("gradient", "jacobian", "batch_jacobian")
ITERATORS = "tensorflow.python.data.ops.iterator_ops"

# On an iterator: how many batches it has given.
GIVEN = "_dftrace_given"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what a loop does eagerly; what runs in a function of a graph is not looked at.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    return once_imported("tapes", "tensorflow", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, tensorflow: ModuleType) -> None:
    if not hasattr(tensorflow, "GradientTape"):  # that came with TensorFlow 2
        return
    eager = _Eager(options, needed(tensorflow, "inside_function"))
    tape = needed(tensorflow, "GradientTape")
    swaps.swap(tape, "__enter__", eager.entering)
    swaps.swap(tape, "__exit__", eager.leaving)
    for name in DIFFERENTIATING:
        swaps.swap(tape, name, eager.differentiating)
    iterator = needed(sys.modules.get(ITERATORS), "OwnedIterator")
    swaps.swap(iterator, "__next__", eager.fetching)


class _Eager:
    """What a loop does, outside of what TensorFlow or Keras has made one function of."""

    def __init__(self, options: AutoOptions, is_in_graph: Callable[[], bool]) -> None:
        self._gate, self._training = options.gate, options.training
        self._is_in_graph = is_in_graph
        beside_all = options.companions
        self._forward = beside(ai.compute.forward, companions=beside_all)
        self._backward = beside(ai.compute.backward, companions=beside_all)
        self._grad = beside(ai.compute.backward, "grad", companions=beside_all)
        self._fetch = beside(ai.dataloader.fetch, "iter")
        # The outermost tape of each thread, by identity, and its span.
        self._open: dict[int, Any] = {}

    def _is_seen(self) -> bool:
        return self._gate.live and not depth.computing and not self._is_in_graph()

    def entering(self, original: Any) -> Any:
        @functools.wraps(original)
        def enter(tape: Any) -> Any:
            result = original(tape)
            if not depth.forward and self._is_seen():
                depth.forward = 1
                self._training.forward(True)
                self._open[id(tape)] = self._forward._begin() if self._gate.recording else None
            return result

        return enter

    def leaving(self, original: Any) -> Any:
        @functools.wraps(original)
        def leave(tape: Any, kind: Any, error: Any, traceback: Any) -> Any:
            try:
                return original(tape, kind, error, traceback)
            finally:
                if id(tape) in self._open:
                    depth.forward = 0
                    span = self._open.pop(id(tape))
                    if span is not None:
                        span.end(kind)

        return leave

    def differentiating(self, original: Any) -> Any:
        @functools.wraps(original)
        def gradient(*args: Any, **kwargs: Any) -> Any:
            if depth.backward or not self._is_seen():
                return original(*args, **kwargs)
            # Within a tape it is a part of what is computed, such as a penalty.
            learns = not depth.forward
            node = self._backward if learns else self._grad
            depth.backward = 1
            try:
                with node if self._gate.recording else NOTHING:
                    return original(*args, **kwargs)
            finally:
                depth.backward = 0
                if learns:
                    self._training.backward(False)

        return gradient

    def fetching(self, original: Any) -> Any:
        @functools.wraps(original)
        def fetch(iterator: Any) -> Any:
            # What a data set reads of another one is within its own fetch.
            if depth.waiting or not self._is_seen():
                return original(iterator)
            given = getattr(iterator, GIVEN, 0)
            self._training.fetch(iterator, given == 0)
            span = self._fetch._begin() if self._gate.recording else None
            depth.waiting = 1
            try:
                batch = original(iterator)
            except StopIteration:
                if span is not None:
                    span.cancel()
                self._training.fetched_nothing(iterator)
                raise
            except BaseException as error:
                if span is not None:
                    span.end(type(error))
                raise
            finally:
                depth.waiting = 0
            setattr(iterator, GIVEN, given + 1)
            if span is not None:
                span.end(None, given + 1)
            return batch

        return fetch
