"""Which keys are in force for a GEMM and a tensor: lists, structs, and what they are laid over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "GEMM_KEYS",
    "TENSOR_KEYS",
    "for_gemm",
    "for_query",
    "for_tensor",
    "has_own_tensors",
    "listed_names",
]

GEMM_KEYS = frozenset({"gemms", "gemms_struct"})
TENSOR_KEYS = frozenset({"tensors", "tensors_struct"})


def for_gemm(keys: Mapping[str, Any], gemm: str) -> Mapping[str, Any] | None:
    """Return the keys of a feature that are in force for a GEMM.

    Args:
        keys: those of the feature, with names in their one spelling.
        gemm: one of fprop, dgrad and wgrad.

    Returns:
        The keys, without those that select GEMMs; None where the feature is not active.
    """
    outer = {key: value for key, value in keys.items() if key not in GEMM_KEYS}
    if "gemms_struct" not in keys:
        return outer if gemm in keys.get("gemms", ()) else None
    item = _first(keys["gemms_struct"], "gemm", gemm)
    if item is None:
        return None
    if has_own_tensors(item):
        outer = {key: value for key, value in outer.items() if key not in TENSOR_KEYS}
    return {**outer, **item}


def for_tensor(keys: Mapping[str, Any], tensor: str) -> Mapping[str, Any] | None:
    """Return the keys that are in force for a tensor, without those that select tensors."""
    outer = {key: value for key, value in keys.items() if key not in TENSOR_KEYS}
    if "tensors_struct" not in keys:
        return outer if tensor in keys.get("tensors", ()) else None
    item = _first(keys["tensors_struct"], "tensor", tensor)
    return None if item is None else {**outer, **item}


def for_query(keys: Mapping[str, Any], gemm: str, tensor: str) -> Mapping[str, Any] | None:
    """Return the keys that are in force for a tensor in a GEMM, None where there are none."""
    of_gemm = for_gemm(keys, gemm)
    return None if of_gemm is None else for_tensor(of_gemm, tensor)


def listed_names(keys: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Return the GEMMs or the tensors that keys select, in their order.

    Args:
        keys: those of a feature, or what `for_gemm` returned.
        kind: ``gemm`` or ``tensor``.
    """
    if f"{kind}s_struct" in keys:
        return tuple(dict.fromkeys(item[kind] for item in keys[f"{kind}s_struct"]))
    return tuple(keys.get(f"{kind}s", ()))


def has_own_tensors(item: Mapping[str, Any]) -> bool:
    """Tell whether an item of `gemms_struct` says by itself which tensors it is about."""
    return not TENSOR_KEYS.isdisjoint(item)


def _first(items: tuple[Mapping[str, Any], ...], key: str, name: str) -> Mapping[str, Any] | None:
    for item in items:
        if item[key] == name:
            return {inner: value for inner, value in item.items() if inner != key}
    return None
