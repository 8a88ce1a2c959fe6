"""Which keys are in force for a GEMM and a tensor: those of an item, laid over those around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from typing_extensions import Self

__all__ = [
    "GEMM_KEYS",
    "TENSOR_KEYS",
    "Choosing",
    "Keys",
    "for_gemm",
    "for_query",
    "for_tensor",
    "has_own_tensors",
    "in_force",
    "listed_names",
]

GEMM_KEYS = frozenset({"gemms", "gemms_struct"})
TENSOR_KEYS = frozenset({"tensors", "tensors_struct"})


class Keys(Protocol):
    """What is said of a feature, or in an item of it; names are in their one spelling."""

    def said(self, key: str) -> Any:
        """Return the value of a key, None where it is not given."""

    def over(self, item: Self, but: AbstractSet[str]) -> Self:
        """Return these keys, but some, with those that an item gives laid over them."""


Chosen = TypeVar("Chosen", bound=Keys)


@dataclass(frozen=True)
class Choosing:
    """The keys of a custom feature by which it chooses; those of its items may mean anything."""

    keys: dict[str, Any]

    def said(self, key: str) -> Any:
        """Return the value of a key, None where it is not given."""
        return self.keys.get(key)

    def over(self, item: Choosing, but: AbstractSet[str]) -> Choosing:
        """Return these keys, but some, with those that an item gives laid over them."""
        kept = {key: value for key, value in self.keys.items() if key not in but}
        return Choosing(kept | item.keys)


def for_gemm(keys: Chosen, gemm: str) -> Chosen | None:
    """Return the keys in force for one of fprop, dgrad and wgrad; None where it is not chosen."""
    return _for_name(keys, "gemm", gemm)


def for_tensor(keys: Chosen, tensor: str) -> Chosen | None:
    """Return the keys in force for a tensor, None where it is not chosen."""
    return _for_name(keys, "tensor", tensor)


def for_query(keys: Chosen, gemm: str, tensor: str) -> Chosen | None:
    """Return the keys in force for a tensor in a GEMM, None where there are none."""
    of_gemm = for_gemm(keys, gemm)
    return None if of_gemm is None else for_tensor(of_gemm, tensor)


def in_force(keys: Chosen, kind: str) -> list[tuple[str, Chosen]]:
    """Return each name of a kind that keys choose, with the keys in force there; twins, too."""
    items = keys.said(f"{kind}s_struct")
    if items is None:
        return [(name, keys) for name in keys.said(f"{kind}s") or ()]
    return [(item.said(kind), _laid_over(keys, kind, item)) for item in items]


def listed_names(keys: Keys, kind: str) -> tuple[str, ...]:
    """Return the GEMMs or the tensors, as the kind says, that keys choose, in their order."""
    items = keys.said(f"{kind}s_struct")
    if items is None:
        return tuple(keys.said(f"{kind}s") or ())
    return tuple(dict.fromkeys(item.said(kind) for item in items))


def has_own_tensors(item: Keys) -> bool:
    """Tell whether an item of `gemms_struct` says by itself which tensors it is about."""
    return any(item.said(key) is not None for key in TENSOR_KEYS)


def _for_name(keys: Chosen, kind: str, name: str) -> Chosen | None:
    return next((found for known, found in in_force(keys, kind) if known == name), None)


def _laid_over(keys: Chosen, kind: str, item: Chosen) -> Chosen:
    own_tensors = kind == "tensor" or has_own_tensors(item)
    return keys.over(item, {f"{kind}s_struct"} | (TENSOR_KEYS if own_tensors else frozenset()))
