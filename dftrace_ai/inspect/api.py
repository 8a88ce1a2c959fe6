"""The calls of tensor inspection; one session at a time is open in a process.

Loaded late, when a name of it is asked for: it needs torch.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.arguments import executed, iteration_of
from dftrace_ai.inspect.config import features
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.inspect.naming import assigned_names
from dftrace_ai.inspect.nonfinite import MARKS
from dftrace_ai.inspect.session import open_session
from dftrace_ai.inspect.session.namespaces import Namespace
from dftrace_ai.inspect.session.open_session import log_tensor_stats, needed_session
from dftrace_ai.inspect.session.session import Session
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from torch import nn

__all__ = [
    "end_debug",
    "explain_features",
    "get_tensor_reduction_group",
    "infer_and_assign_layer_names",
    "initialize",
    "initialize_training_step",
    "list_features",
    "log_message",
    "log_tensor_stats",
    "set_tensor_reduction_group",
    "set_weight_tensor_tp_group_reduce",
    "step",
]

IGNORED_KEYWORDS = {"extensions"}


def initialize(
    config_file: str | os.PathLike[str] | dict[str, Any] = "",
    feature_dirs: str | os.PathLike[str] | list[str] | None = None,
    statistics_logger: Any = None,
    log_dir: str | os.PathLike[str] = ".",
    init_training_step: int = 0,
    *,
    tb_writer: Any = None,
    default_logging_enabled: bool = False,
    logger: Any = None,
    **others: Any,
) -> None:
    """Open a session; call it once on every rank, before or after the process group is up.

    Args:
        config_file: path of a YAML file, or what such a file holds as a dict. An empty path or
            one that does not exist gives a session without a config.
        feature_dirs: directories with Python files that register custom features; all files
            are executed. That of Transformer Engine is accepted and not needed.
        statistics_logger: an object with ``log_scalar(name, value, iteration)``.
        log_dir: where the directories of the logs are made.
        init_training_step: number of the first iteration.
        tb_writer: an object with ``add_scalar(name, value, iteration)``.
        default_logging_enabled: write the statistics file though a logger or writer is given.
        logger: another name of `statistics_logger`.
        others: `extensions` is ignored; any other is told in a warning.

    Raises:
        InspectValueError: a session is open, or a value of the config or an argument is not
            accepted.
        InspectAssertionError: a directory does not exist, a logger has no `log_scalar`, or the
            config lacks something or names something unknown.
        InspectTypeError: `config_file` or `log_dir` is of another type.
        OSError: a log cannot be opened.

    Example::

        import dftrace_ai.inspect as debug_api

        debug_api.initialize("config.yaml", log_dir="log")
        debug_api.attach(model)
        for batch in loader:
            train(batch)
            debug_api.step()
        debug_api.end_debug()
    """
    if open_session.session is not None:
        raise InspectValueError("Already initialized: call end_debug before another initialize")
    if not isinstance(config_file, (str, os.PathLike, dict)):
        raise InspectTypeError(
            f"config_file: a path or a dict is accepted, not {type(config_file).__name__}"
        )
    if not isinstance(log_dir, (str, os.PathLike)):
        raise InspectTypeError(f"log_dir: a path is accepted, not {type(log_dir).__name__}")
    if logger is not None and statistics_logger is not None:
        raise InspectValueError("logger is another name of statistics_logger; give one of them")
    iteration = iteration_of(init_training_step, "init_training_step")
    with features.kept_on_success():
        built_in = executed(feature_dirs)
        session = Session(
            config_file,
            log_dir,
            iteration,
            statistics_logger=logger if statistics_logger is None else statistics_logger,
            tb_writer=tb_writer,
            default_logging=default_logging_enabled,
        )
    for directory in built_in:
        session.log.write(f"{directory}: these features are built in.")
    for keyword in sorted(set(others) - IGNORED_KEYWORDS):
        session.log.write(
            f"initialize: the argument {keyword} is not known and ignored.", logging.WARNING
        )
    MARKS.begin(session.iteration, session.warn)
    open_session.session = session


def step() -> None:
    """Log what the iteration has shown and count it; call it after each training step.

    Without a session only the iterations of `watch_nonfinite` are counted.

    Example::

        optimizer.step()
        debug_api.step()
    """
    session = open_session.session
    if session is not None:
        session.step()
    MARKS.stepped(None if session is None else session.iteration)


def initialize_training_step(train_step: int) -> None:
    """Set the number of the present iteration, as when a training is resumed.

    Args:
        train_step: the iteration, 0 or more.

    Raises:
        InspectValueError: it is something else.

    Example::

        debug_api.initialize_training_step(checkpoint["step"])
    """
    session = open_session.session
    if session is not None:
        iteration = iteration_of(train_step, "initialize_training_step")
        session.go_to(iteration)
        MARKS.stepped(iteration)


def log_message(
    msg: object,
    layer_name: str | None = None,
    level: int = logging.INFO,
    extra_cachable_args: Hashable = None,
) -> None:
    """Write a line to the main log; the same one from the same place only once.

    Args:
        msg: the text, or something that has one.
        layer_name: stands before it.
        level: as in `logging`.
        extra_cachable_args: lines that differ in this are different ones.

    Raises:
        InspectRuntimeError: no session is open.
        InspectTypeError: the level is no number.

    Example::

        debug_api.log_message("gradients are clipped", layer_name="decoder.1")
    """
    session = needed_session()
    if not isinstance(level, int):
        raise InspectTypeError(f"level: a number is accepted, not {in_short(level)}")
    msg = str(msg)
    caller = sys._getframe(1)
    key = (caller.f_code.co_filename, caller.f_lineno, layer_name, repr(extra_cachable_args), msg)
    session.say_once(key, f"{layer_name}: {msg}" if layer_name else msg, level)


def set_tensor_reduction_group(group: Any) -> None:
    """Set the process group over which statistics are merged before they are logged.

    Args:
        group: a group of torch.distributed; None is all processes.

    Raises:
        InspectValueError: no session is open.

    Example::

        debug_api.set_tensor_reduction_group(data_parallel_group)
    """
    session = open_session.session
    if session is None:
        raise InspectValueError("set_tensor_reduction_group: call initialize first")
    session.log.write(
        "The tensor reduction group is set: all of its ranks must log alike.", logging.WARNING
    )
    session.set_group(group)


def get_tensor_reduction_group() -> Any:
    """Return the group that `set_tensor_reduction_group` has set, or None.

    Raises:
        InspectValueError: no session is open.
    """
    if open_session.session is None:
        raise InspectValueError("get_tensor_reduction_group: call initialize first")
    return open_session.session.group


def infer_and_assign_layer_names(model: nn.Module | Iterable[nn.Module]) -> None:
    """Give the modules of a model names: ``model`` and their paths, as their attribute `name`.

    A ModuleList gets none. In it, a child that has a `layer_number` is called by this number and
    not by its index, so that the stages of a pipeline have names of their own. The main log of an
    open session tells each name.

    Args:
        model: a model, or several parts of one.

    Example::

        infer_and_assign_layer_names(model)
        assert model.decoder.name == "model.decoder"
    """
    session = open_session.session
    for name in assigned_names(model):
        if session is not None:
            session.log.write(f"Assigned layer name: {name}")


def set_weight_tensor_tp_group_reduce(enabled: bool) -> None:
    """Choose whether statistics of weights are merged over the tensor-parallel group.

    Args:
        enabled: True, as without a call, merges them where `attach` was given a `tp_group`.

    Example::

        debug_api.set_weight_tensor_tp_group_reduce(False)
    """
    open_session.weights_are_reduced = bool(enabled)


def end_debug() -> None:
    """End the session: log what is left, detach the models, close the files, forget the state.

    What GPUs have not delivered yet is waited for. Without a session nothing happens.

    Example::

        debug_api.end_debug()
    """
    session, open_session.session = open_session.session, None
    open_session.weights_are_reduced = True
    if session is not None:
        try:
            session.end()
        finally:
            MARKS.end()


def list_features() -> None:
    """Print the features and what each does in a line, on rank 0.

    Raises:
        InspectRuntimeError: no session is open.
    """
    if needed_session().rank == 0:
        for name, summary in features.summaries().items():
            sys.stdout.write(f"{name}: {summary}\n")


def explain_features(names: str | Iterable[str] | None = None) -> None:
    """Print what features do and which keys they have, on rank 0.

    Args:
        names: ``transformer_engine.FakeQuant`` or a list of such; ``"all"`` or None is all.

    Raises:
        InspectRuntimeError: no session is open.
        InspectValueError: a name is not known.
    """
    session = needed_session()
    texts = features.explanations(names)
    if session.rank == 0:
        for name, text in texts.items():
            sys.stdout.write(f"{name}\n{text}\n\n")


def calls_of(namespace: str) -> Namespace:
    """Return the calls of a namespace of the user's."""
    return Namespace(namespace, lambda: needed_session().namespaces)
