"""TensorFlow: a hook for sessions, as of `MonitoredTrainingSession`, and checkpoints."""

from __future__ import annotations

import functools
import glob
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.wrapping.callbacks import framework_for
from dftrace_ai.integrations.wrapping.checkpoints import recorded
from dftrace_ai.integrations.wrapping.listening import Listener, needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps
    from dftrace_ai.integrations.wrapping.listening import Hooks

__all__ = ["install", "trace_hook"]

PART = "tensorflow"

HOOKS: Hooks = {
    "begin": lambda training, number: training.told(epoch=number),
    "before_run": lambda training, step: training.told(step=step, begins=True),
    "after_run": lambda training, hook: training.optimizer_ends(hook),
    "ran out": lambda training, _: training.fetched_nothing(None),
    "end": lambda training, _: training.told_all(),
}


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what `tf.compat.v1.train.Saver` and `tf.train.Checkpoint` save and restore.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    return once_imported(PART, "tensorflow", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, tensorflow: ModuleType) -> None:
    train = needed(tensorflow, "train")
    v1 = needed(needed(needed(tensorflow, "compat"), "v1"), "train")
    saves = functools.partial(recorded, options, beside(ai.checkpoint.capture), _written)
    loads = functools.partial(recorded, options, beside(ai.checkpoint.restart), _read)
    for owner, names in ((needed(v1, "Saver"), ("save",)), (train.Checkpoint, ("save", "write"))):
        for name in names:
            swaps.swap(owner, name, saves)
    for owner, names in (
        (v1.Saver, ("restore",)),
        (train.Checkpoint, ("restore", "read")),
    ):
        for name in names:
            swaps.swap(owner, name, loads)


def _written(result: object, _: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    return _files(result)


def _read(_: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return _files(kwargs.get("save_path", args[-1]))


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
