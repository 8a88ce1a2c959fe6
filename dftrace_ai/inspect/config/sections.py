"""The sections of a config: each with a selection of layers and its features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.config.resolving import for_tensor, listed_names
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
    """

    feature: CustomFeature
    config: dict[str, Any]


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
