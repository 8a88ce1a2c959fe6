"""Nested hyper-parameters for trackers that know flat ones only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.names import free_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["flattened"]


def flattened(params: Mapping[str, Any], before: str = "") -> JsonObject:
    """Return nested hyper-parameters by their names with slashes between.

    Args:
        params: mappings in mappings.
        before: what the names begin with.

    Example::

        flattened({"model": {"width": 8}})  # {"model/width": 8}
    """
    found: JsonObject = {}
    for name, value in params.items():
        full = f"{before}{name}"
        if isinstance(value, dict):
            for inner, one in flattened(value, f"{full}/").items():
                found[free_name(inner, found)] = one
        else:
            found[free_name(full, found)] = value
    return found
