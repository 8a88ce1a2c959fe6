"""Nested hyper-parameters for trackers that know flat ones only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
            found |= flattened(value, f"{full}/")
        else:
            found[full] = value
    return found
