"""The sections of a config: each with a selection of layers and its features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.config.resolving import (
    GEMM_KEYS,
    TENSOR_KEYS,
    Choosing,
    for_gemm,
    for_tensor,
    listed_names,
)
from dftrace_ai.inspect.config.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.config.features import CustomFeature
    from dftrace_ai.inspect.config.grammar.models import (
        BaseLogTensorStats,
        Feature,
        Layers,
        LogKeys,
    )

__all__ = ["CustomUse", "Observe", "Section", "observed", "schedule_of"]


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
    choosing: Choosing
    _found: dict[tuple[str | None, str | None], dict[str, Any] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Any] | None:
        """Return the keys in force for a GEMM and a tensor, None where the feature is not for them.

        Args:
            gemm: one of fprop, dgrad and wgrad; None where it is about no GEMM.
            tensor: which of its tensors; None where it is about none.
        """
        if not self.choosing.keys:
            return self.config
        if (gemm, tensor) not in self._found:
            self._found[gemm, tensor] = self._keys_for(gemm, tensor)
        return self._found[gemm, tensor]

    def _keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Any] | None:
        found: Choosing | None = self.choosing
        own = {}
        if gemm is not None and not GEMM_KEYS.isdisjoint(self.choosing.keys):
            found, own["gemm"] = for_gemm(self.choosing, gemm), gemm
        if found is not None and tensor is not None and not TENSOR_KEYS.isdisjoint(found.keys):
            found, own["tensor"] = for_tensor(found, tensor), tensor
        if found is None:
            return None
        lists = GEMM_KEYS | TENSOR_KEYS
        said = {key: value for key, value in found.keys.items() if key not in lists}
        return self.config | said | own


@dataclass(frozen=True, eq=False)
class Section:
    """An enabled section.

    Attributes:
        name: its key in the file.
        layers: the selection of layers.
        features: each enabled built-in feature of the namespace `transformer_engine`, by name.
        base: LogTensorStats where it stands in the section itself, else None.
        custom: the custom features.
    """

    name: str
    layers: Layers
    features: Mapping[str, Feature] = field(default_factory=dict)
    base: BaseLogTensorStats | None = None
    custom: tuple[CustomUse, ...] = ()

    def base_observe(self, tensor: str) -> Observe | None:
        """Return what an explicit `log_tensor_stats` of a tensor has to log, None for nothing.

        Args:
            tensor: any name, as `log_tensor_stats` was given it.
        """
        return None if self.base is None else observed("LogTensorStats", self.base, tensor)

    def base_observes(self) -> tuple[Observe, ...]:
        """Return what explicit calls have to log, for each tensor that the config names."""
        listed = () if self.base is None else listed_names(self.base, "tensor")
        return tuple(one for one in map(self.base_observe, listed) if one is not None)


def observed(feature: str, keys: LogKeys, tensor: str) -> Observe | None:
    """Return what the keys of a logging feature ask for a tensor, None for nothing."""
    found = for_tensor(keys, tensor)
    return None if found is None else Observe(feature, tensor, found.stats, schedule_of(found))


def schedule_of(keys: LogKeys) -> Schedule:
    """Return when the keys of a logging feature have it log."""
    return Schedule(keys.freq, keys.start_step, keys.end_step, keys.start_end_list)
