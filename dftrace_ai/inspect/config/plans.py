"""What is to be done in one layer: which operands are changed, which tensors are observed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.grammar.models import (
    DisableFp8Gemm,
    DisableFp8Layer,
    FakeQuant,
    LogFp8TensorStats,
    LogTensorStats,
    PerTensorScaling,
)
from dftrace_ai.inspect.config.resolving import for_gemm, for_query, listed_names
from dftrace_ai.inspect.config.sections import CustomUse, Observe, Section, observed
from dftrace_ai.inspect.errors import InspectValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.config.grammar.models import Feature
    from dftrace_ai.inspect.config.layers import LayerInfo

__all__ = [
    "PLAN_LINES",
    "LayerPlan",
    "Modify",
    "fp8_off_gemms",
    "layer_plan",
    "modified",
    "observed_by",
]

# Operands in the order in which their plan is told.
PLAN_LINES = (
    ("activation", "fprop"),
    ("activation", "wgrad"),
    ("weight", "fprop"),
    ("weight", "dgrad"),
    ("gradient", "dgrad"),
    ("gradient", "wgrad"),
)


@dataclass(frozen=True)
class Modify:
    """How a tensor is changed on its way into a GEMM, or out of it.

    Attributes:
        feature: FakeQuant or PerTensorScaling.
        format: E4M3 or E5M2; None is the format of the FP8 recipe.
        margin: the scale is that of amax * 2**margin.
    """

    feature: str
    format: str | None = None
    margin: int = 0


@dataclass(frozen=True)
class LayerPlan:
    """What is to be done in one layer.

    Attributes:
        section: the name of the section, None where no section selects the layer.
        modify: the changed tensors, by (gemm, tensor).
        high_precision: the GEMMs for which FP8 is off.
        observe: the statistics to log, in the order of the config.
        custom: the custom features.
        ignored: the features that the layer has no GEMMs for.
    """

    section: str | None = None
    modify: Mapping[tuple[str, str], Modify] = field(default_factory=dict)
    high_precision: frozenset[str] = frozenset()
    observe: tuple[Observe, ...] = ()
    custom: tuple[CustomUse, ...] = ()
    ignored: tuple[str, ...] = ()

    def check_recipe(self, recipe: str) -> None:
        """Check that the plan can be carried out under the FP8 recipe of `attach`.

        Args:
            recipe: ``delayed`` or ``current``.

        Raises:
            InspectValueError: statistics of delayed scaling without delayed scaling.
        """
        if recipe == "delayed":
            return
        for one in self.observe:
            delayed = [stat for stat in one.stats if stat.startswith("fp8_delayed_scaling_")]
            if delayed:
                raise InspectValueError(
                    f"{self.section}.{names.NAMESPACE}.{one.feature}: "
                    f"{names.listed(delayed)} of {one.tensor} need the recipe 'delayed', "
                    f"not {recipe!r}"
                )


def layer_plan(section: Section | None, layer: LayerInfo) -> LayerPlan:
    """Work out what is to be done in a layer.

    Args:
        section: the section that selects it, None for none.
        layer: the layer; without GEMMs of its own it is only observed.

    Returns:
        The plan. It is the same for every iteration; what is observed has its schedule.

    Example::

        plan = layer_plan(selector.section_of(layer), layer)
        assert ("fprop", "activation") in plan.modify
    """
    if section is None:
        return LayerPlan()
    observe = observed_by(section)
    if not layer.has_gemms:
        ignored = tuple(one for one in section.features if one in names.GEMM_FEATURES)
        return LayerPlan(section.name, observe=observe, custom=section.custom, ignored=ignored)
    modify: dict[tuple[str, str], Modify] = {}
    high_precision: set[str] = set()
    for feature in section.features.values():
        high_precision |= fp8_off_gemms(feature)
        modify |= modified(feature)
    return LayerPlan(section.name, modify, frozenset(high_precision), observe, section.custom)


def observed_by(section: Section) -> tuple[Observe, ...]:
    """Return what a section observes in each layer that it selects."""
    return tuple(
        found
        for name, feature in section.features.items()
        if isinstance(feature, LogTensorStats | LogFp8TensorStats)
        for tensor in listed_names(feature, "tensor")
        if (found := observed(name, feature, tensor)) is not None
    )


def fp8_off_gemms(feature: Feature) -> frozenset[str]:
    """Return the GEMMs that a feature takes out of FP8."""
    if isinstance(feature, DisableFp8Layer):
        return frozenset(names.GEMMS)
    if isinstance(feature, DisableFp8Gemm | FakeQuant):
        return frozenset(gemm for gemm in names.GEMMS if for_gemm(feature, gemm) is not None)
    return frozenset()


def modified(feature: Feature) -> dict[tuple[str, str], Modify]:
    """Return the tensors that a feature changes, by (gemm, tensor)."""
    if not isinstance(feature, FakeQuant | PerTensorScaling):
        return {}
    found: dict[tuple[str, str], Modify] = {}
    for gemm, operands in names.OPERANDS.items():
        results = (names.RESULTS[gemm],) if isinstance(feature, FakeQuant) else ()
        for tensor in (*operands, *results):
            inner = for_query(feature, gemm, tensor)
            if inner is not None:
                format_ = inner.quant_format if isinstance(inner, FakeQuant) else None
                name = type(feature).__name__
                found[gemm, tensor] = Modify(name, format_ or None, inner.margin)
    return found
