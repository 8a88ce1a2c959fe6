"""TensorFlow: a hook for sessions, as of `MonitoredTrainingSession`; checkpoints; eager loops."""

from __future__ import annotations

import functools
import glob
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.callbacks import Hooks, Listener, framework_for
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import NOTHING, beside, depth
from dftrace_ai.integrations.swapping import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

PART = "tensorflow"

HOOKS: Hooks = {
    "begin": lambda training, number: training.told(epoch=number),
    "before_run": lambda training, step: training.told(step=step, begins=True),
    "after_run": lambda training, hook: training.optimizer_ends(hook),
    "ran out": lambda training, _: training.fetched_nothing(None),
    "end": lambda training, _: training.told_all(),
}


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what `tf.compat.v1.train.Saver` and `tf.train.Checkpoint` save and restore."""
    return once_imported(PART, "tensorflow", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, tensorflow: ModuleType) -> None:
    saver = needed(needed(needed(needed(tensorflow, "compat"), "v1"), "train"), "Saver")
    checkpoint = needed(needed(tensorflow, "train"), "Checkpoint")
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    saves = functools.partial(recorded, options, capture, lambda call: _files(call.result))
    loads = functools.partial(
        recorded,
        options,
        restart,
        lambda call: _files(call.kwargs.get("save_path", call.args[-1])),
    )
    for owner, name, make in (
        (saver, "save", saves),
        (checkpoint, "save", saves),
        (checkpoint, "write", saves),
        (saver, "restore", loads),
        (checkpoint, "restore", loads),
        (checkpoint, "read", loads),
    ):
        swaps.swap(owner, name, make)


def _files(prefix: object) -> list[str] | None:
    """Return the files of a checkpoint, which is named by what their names begin with."""
    if not isinstance(prefix, (str, os.PathLike)):
        return None
    return glob.glob(glob.escape(os.fspath(prefix)) + ".*")  # noqa: PTH207 - may be no local path


def trace_hook(**options: Any) -> Any:
    """Return a `SessionRunHook` that has a session of TensorFlow's graphs traced.

    Each run of the session is a step with one ``compute``, numbered by the graph's global step
    where there is one, and each session an epoch. The number is read before each run, in a run of
    its own. It switches `dftrace_ai.auto` on.

    Args:
        **options: for `dftrace_ai.auto`.

    Raises:
        DftraceError: TensorFlow is not installed.

    Example::

        hooks = [trace_hook(log_file="out/trace")]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
    """
    made = _hook_class()()
    auto(**options)
    return made


@cache
def _hook_class() -> type[Any]:
    tensorflow: Any = framework_for(
        "a hook of sessions", "tensorflow", named="TensorFlow", extra="tensorflow"
    )
    train: Any = tensorflow.compat.v1.train
    base: Any = train.SessionRunHook
    listener = Listener(PART, HOOKS)
    node = beside(ai.compute)

    class TraceHook(base):  # type: ignore[misc]
        """Tells the training of the runs of a session."""

        def __init__(self) -> None:
            self._sessions = 0
            self._global_step: Any = None
            self._is_running = False
            self._span: Any = None

        def begin(self) -> None:
            self._global_step = train.get_global_step()
            self._hear("begin", self._sessions)
            self._sessions += 1

        def before_run(self, run_context: Any) -> None:
            self._leave_run()
            options = auto.options
            if options is None or not options.gate.live:
                return
            step = None
            if self._global_step is not None:
                step = int(run_context.session.run(self._global_step))
            self._hear("before_run", step)
            self._is_running = True
            self._span = node._begin() if options.gate.recording else None

        def after_run(self, run_context: Any, run_values: Any) -> None:
            span, self._span = self._span, None
            if span is not None:
                span.end()
            if self._is_running:
                self._is_running = False
                self._hear("after_run", self)

        def end(self, session: Any) -> None:
            self._leave_run()
            self._hear("end", None)

        def _hear(self, hook: str, given: object) -> None:
            listener.hear(auto.options, hook, given)

        def _leave_run(self) -> None:
            """Forget a run that has raised, as at the end of the data: nobody tells of its end."""
            span, self._span = self._span, None
            if span is not None:
                span.end_unless_empty()
            if self._is_running:
                self._is_running = False
                self._hear("ran out", None)

    return TraceHook


DIFFERENTIATING = ("gradient", "jacobian", "batch_jacobian")
ITERATORS = "tensorflow.python.data.ops.iterator_ops"

# On an iterator: how many batches it has given.
GIVEN = "_dftrace_given"


def install_tapes(options: AutoOptions) -> Callable[[], None]:
    """Record what a loop does eagerly; what runs in a function of a graph is not looked at."""
    return once_imported("tapes", "tensorflow", functools.partial(_install_tapes, options))


def _install_tapes(options: AutoOptions, swaps: Swaps, tensorflow: ModuleType) -> None:
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
