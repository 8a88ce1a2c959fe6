"""See inside the tensors of a training: statistics, 8-bit emulation and non-finite values.

A config file says which tensors of which layers are looked at, and when::

    import dftrace_ai.inspect as debug_api

    debug_api.initialize("config.yaml", log_dir="log")
    debug_api.attach(model)
    for batch in loader:
        train(batch)
        debug_api.step()
    debug_api.end_debug()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.inspect.api import (
        end_debug,
        explain_features,
        get_tensor_reduction_group,
        infer_and_assign_layer_names,
        initialize,
        initialize_training_step,
        list_features,
        log_message,
        log_tensor_stats,
        set_tensor_reduction_group,
        set_weight_tensor_tp_group_reduce,
        step,
    )
    from dftrace_ai.inspect.attaching import attach, fp8_autocast
    from dftrace_ai.inspect.attaching.watching import watch_nonfinite
    from dftrace_ai.inspect.config.features import register_feature, register_namespace_api
    from dftrace_ai.inspect.errors import InspectError
    from dftrace_ai.inspect.output.bridge import NvdlfwTraceLogger
    from dftrace_ai.inspect.output.sinks import BaseLogger

__all__ = [
    "BaseLogger",
    "InspectError",
    "NvdlfwTraceLogger",
    "attach",
    "end_debug",
    "explain_features",
    "fp8_autocast",
    "get_tensor_reduction_group",
    "infer_and_assign_layer_names",
    "initialize",
    "initialize_training_step",
    "list_features",
    "log_message",
    "log_tensor_stats",
    "register_feature",
    "register_namespace_api",
    "set_tensor_reduction_group",
    "set_weight_tensor_tp_group_reduce",
    "step",
    "watch_nonfinite",
]

_HOMES = {
    "BaseLogger": "output.sinks",
    "InspectError": "errors",
    "NvdlfwTraceLogger": "output.bridge",
    "attach": "attaching",
    "fp8_autocast": "attaching",
    "register_feature": "config.features",
    "register_namespace_api": "config.features",
    "watch_nonfinite": "attaching.watching",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a config can be read and checked where there is no torch."""
    if name not in __all__:
        # Not kept: another session may have another one of that name.
        from dftrace_ai.inspect.config.features import api_of

        if api_of(name) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.api").calls_of(name)
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)
    globals()[name] = value
    return value
