"""The sections of a config: each with a selection of layers and its features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.config.resolving import (
    GEMM_KEYS,
    TENSOR_KEYS,
    for_gemm,
    for_tensor,
    listed_names,
)
from dftrace_ai.inspect.config.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.config.features import CustomFeature
    from dftrace_ai.inspect.config.grammar.models import Layers

__all__ = ["CustomUse", "Observe", "Section", "observed"]


@dataclass(frozen=True)
class Observe:
    """Statistics of a tensor that are to be logged.

    Attributes:
        feature: LogTensorStats or LogFp8TensorStats.
        tensor: the name of the tensor.
        stats: the statistics in the order of the config, each in its one spelling.
        schedule: when they are due.
    """

    feature: str
    tensor: str
    stats: tuple[str, ...]
    schedule: Schedule


@dataclass(frozen=True)
class CustomUse:
    """A custom feature as a section uses it.

    Attributes:
        feature: what was registered.
        config: the keys that the file gives, without `enabled`.
        choosing: those that choose GEMMs and tensors, with names in their one spelling.
    """

    feature: CustomFeature
    config: dict[str, Any]
    choosing: dict[str, Any] = field(default_factory=dict)
    _found: dict[tuple[str | None, str | None], dict[str, Any] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Any] | None:
        """Return the keys in force for a GEMM and a tensor, None where the feature is not for them.

        Args:
            gemm: one of fprop, dgrad and wgrad; None where it is about no GEMM.
            tensor: which of its tensors; None where it is about none.
        """
        if not self.choosing:
            return self.config
        if (gemm, tensor) not in self._found:
            self._found[gemm, tensor] = self._keys_for(gemm, tensor)
        return self._found[gemm, tensor]

    def _keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Any] | None:
        found: Mapping[str, Any] | None = self.choosing
        own: dict[str, Any] = {}
        if gemm is not None and not GEMM_KEYS.isdisjoint(self.choosing):
            found, own["gemm"] = for_gemm(self.choosing, gemm), gemm
        if found is not None and tensor is not None and not TENSOR_KEYS.isdisjoint(found):
            found, own["tensor"] = for_tensor(found, tensor), tensor
        if found is None:
            return None
        lists = GEMM_KEYS | TENSOR_KEYS
        return self.config | {key: found[key] for key in found if key not in lists} | own


@dataclass(frozen=True, eq=False)
class Section:
    """An enabled section.

    Attributes:
        name: its key in the file.
        layers: the selection of layers.
        features: the keys of each enabled built-in feature of the namespace
            `transformer_engine`, by name; names are in their one spelling.
        base: the keys of LogTensorStats where it stands in the section itself, else None.
        custom: the custom features.
    """

    name: str
    layers: Layers
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base: Mapping[str, Any] | None = None
    custom: tuple[CustomUse, ...] = ()

    def base_observe(self, tensor: str) -> Observe | None:
        """Return what an explicit `log_tensor_stats` of a tensor has to log, None for nothing.

        Args:
            tensor: any name, as `log_tensor_stats` was given it.
        """
        return None if self.base is None else observed("LogTensorStats", self.base, tensor)

    def base_observes(self) -> tuple[Observe, ...]:
        """Return what explicit calls have to log, for each tensor that the config names."""
        listed = listed_names(self.base or {}, "tensor")
        return tuple(one for one in map(self.base_observe, listed) if one is not None)


def observed(feature: str, keys: Mapping[str, Any], tensor: str) -> Observe | None:
    """Return what the keys of a logging feature ask for a tensor, None for nothing."""
    found = for_tensor(keys, tensor)
    if found is None:
        return None
    return Observe(feature, tensor, found["stats"], Schedule.of(found))
