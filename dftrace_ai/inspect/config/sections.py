"""The sections of a config: which layers each is about, and what is done in one of them.

Which keys are in force for a GEMM and a tensor: those of an item, laid over those around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.features import DUMP_TENSORS
from dftrace_ai.inspect.config.grammar import (
    LOGGING,
    DisableFp8Gemm,
    DisableFp8Layer,
    DumpTensors,
    FakeQuant,
    PerTensorScaling,
)
from dftrace_ai.inspect.config.layers import what_selects
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.inspect.config.schedule import Schedule
from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from typing_extensions import Self

    from dftrace_ai.inspect.config.features import CustomFeature
    from dftrace_ai.inspect.config.grammar import (
        BaseLogTensorStats,
        Feature,
        Layers,
        LogKeys,
    )
    from dftrace_ai.inspect.config.layers import LayerInfo
    from dftrace_ai.inspect.config.problems import Problem
    from dftrace_ai.trace_format.json_types import Json


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


@dataclass(frozen=True)
class Observe:
    """Statistics of a tensor that are to be logged."""

    feature: str  # LogTensorStats or LogFp8TensorStats
    tensor: str  # the name of the tensor
    stats: tuple[str, ...]  # the statistics in the order of the config, each in its one spelling
    schedule: Schedule  # when they are due


@dataclass(frozen=True)
class CustomUse:
    """A custom feature as a section uses it."""

    feature: CustomFeature  # what was registered
    config: dict[str, Json]  # the keys that the file gives, without `enabled`
    choosing: Choosing  # those that choose GEMMs and tensors, with names in their one spelling
    _found: dict[tuple[str | None, str | None], dict[str, Json] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Json] | None:
        """Return the keys in force for a GEMM and a tensor, None where the feature is not for them.

        Both are None where it is about none.
        """
        if not self.choosing.keys:
            return self.config
        if (gemm, tensor) not in self._found:
            self._found[gemm, tensor] = self._keys_for(gemm, tensor)
        return self._found[gemm, tensor]

    def _keys_for(self, gemm: str | None, tensor: str | None) -> dict[str, Json] | None:
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


@dataclass(frozen=True)
class Dump:
    """What DumpTensors writes of a tensor."""

    high_precision: bool  # the tensor as it is seen
    quantised: bool  # what FP8 makes of it
    schedule: Schedule  # when


def use_of_dumps(keys: DumpTensors) -> CustomUse:
    """Return DumpTensors as a section uses it; its keys for a tensor are a `Dump`."""
    items = tuple(
        Choosing(
            {
                "tensor": tensor,
                "dump": Dump(
                    found.high_precision_tensor, found.quantized_tensor, schedule_of(found)
                ),
            }
        )
        for tensor, found in in_force(keys, "tensor")
    )
    return CustomUse(DUMP_TENSORS, {}, Choosing({"tensors_struct": items}))


@dataclass(frozen=True, eq=False)
class Section:
    """An enabled section."""

    name: str  # its key in the file
    layers: Layers  # the selection of layers
    # Each enabled built-in feature of the namespace `transformer_engine`, by name.
    features: Mapping[str, Feature] = field(default_factory=dict)
    # LogTensorStats where it stands in the section itself, else None.
    base: BaseLogTensorStats | None = None
    custom: tuple[CustomUse, ...] = ()  # the custom features

    # What is to be done is the same in each of its layers: it is worked out once.

    @cached_property
    def observe(self) -> tuple[Observe, ...]:
        """What is observed in each layer that it selects, in the order of the config."""
        return tuple(
            found
            for name, feature in self.features.items()
            if isinstance(feature, LOGGING)
            for tensor in listed_names(feature, "tensor")
            if (found := observed(name, feature, tensor)) is not None
        )

    @cached_property
    def plan(self) -> LayerPlan:
        """What is to be done in a layer with GEMMs that can be run otherwise."""
        modify: dict[tuple[str, str], Modify] = {}
        high_precision: set[str] = set()
        for feature in self.features.values():
            high_precision |= fp8_off_gemms(feature)
            modify |= modified(feature)
        return LayerPlan(self.name, modify, frozenset(high_precision), self.observe, self.custom)

    @cached_property
    def plan_without_gemms(self) -> LayerPlan:
        """What is to be done in any other layer, which is only observed."""
        ignored = tuple(one for one in self.features if one in names.GEMM_FEATURES)
        return LayerPlan(self.name, observe=self.observe, custom=self.custom, ignored=ignored)

    def base_observe(self, tensor: str) -> Observe | None:
        """Return what an explicit `log_tensor_stats` of a tensor has to log, None for nothing."""
        return None if self.base is None else observed("LogTensorStats", self.base, tensor)

    def base_observes(self) -> tuple[Observe, ...]:
        """Return what explicit calls have to log, for each tensor that the config names."""
        listed = () if self.base is None else listed_names(self.base, "tensor")
        return tuple(one for one in map(self.base_observe, listed) if one is not None)


def observed(feature: str, keys: LogKeys, tensor: str) -> Observe | None:
    """Return what the keys of a logging feature ask for a tensor, None for nothing."""
    found = for_tensor(keys, tensor)
    return None if found is None else Observe(feature, tensor, found.stats, schedule_of(found))


def schedule_of(keys: LogKeys | DumpTensors) -> Schedule:
    """Return when the keys of a logging feature have it log."""
    return Schedule(keys.freq, keys.start_step, keys.end_step, keys.start_end_list)


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
    """How a tensor is changed on its way into a GEMM, or out of it."""

    feature: str  # FakeQuant or PerTensorScaling
    # E4M3 or E5M2, with MX in front for blocks; None is the format of the FP8 recipe.
    format: str | None = None
    margin: int = 0  # the scale is that of amax * 2**margin


@dataclass(frozen=True)
class LayerPlan:
    """What is to be done in one layer."""

    section: str | None = None  # the name of the section, None where no section selects the layer
    # The changed tensors, by (gemm, tensor).
    modify: Mapping[tuple[str, str], Modify] = field(default_factory=dict)
    high_precision: frozenset[str] = frozenset()  # the GEMMs for which FP8 is off
    observe: tuple[Observe, ...] = ()  # the statistics to log, in the order of the config
    custom: tuple[CustomUse, ...] = ()  # the custom features
    ignored: tuple[str, ...] = ()  # the features that the layer has no GEMMs for

    def check_recipe(self, recipe: str) -> None:
        """Check that the plan can be carried out under the FP8 recipe of `attach`."""
        # That is ``delayed`` or ``current``.
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
    """Return what is to be done in a layer by the section that selects it, if one does."""
    # It is the same for every iteration; what is observed has its schedule.
    if section is None:
        return LayerPlan()
    return section.plan if layer.has_gemms else section.plan_without_gemms


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


class Selector:
    """Finds the section of each layer of a model."""

    # Whether an entry of `layer_types` is held against names or classes depends on the layers.

    def __init__(self, sections: Mapping[str, Section], layers: Iterable[LayerInfo]) -> None:
        self._sections = sections
        self._layers = tuple(layers)
        # Attaching asks several times, and each time all sections would be asked.
        self._found: dict[LayerInfo, Section | None] = {}
        self._tests = [
            (section, what_selects(section.layers, self._layers)) for section in sections.values()
        ]

    def sections_of(self, layer: LayerInfo) -> list[Section]:
        """Return all sections that select a layer; more than one are an error of the config."""
        return [section for section, selects in self._tests if selects(layer)]

    def section_of(self, layer: LayerInfo) -> Section | None:
        """Return the section that selects a layer, or None."""
        if layer not in self._found:
            self._found[layer] = self._search(layer)
        return self._found[layer]

    def _search(self, layer: LayerInfo) -> Section | None:
        found = self.sections_of(layer)
        if len(found) > 1:
            names = listed([in_short(section.name) for section in found])
            raise InspectValueError(
                f"layer {in_short(layer.name)} is selected by the sections {names}; "
                "a layer can be in one section only"
            )
        return found[0] if found else None

    def unmatched_names(self) -> list[tuple[Section, str]]:
        """Return the entries of `exact_layer_names` that are the name of no layer."""
        names = {layer.name for layer in self._layers}
        return [
            (section, name)
            for section in self._sections.values()
            for name in section.layers.exact_layer_names
            if name not in names
        ]


@dataclass(frozen=True, eq=False)
class InspectConfig:
    """What a config file asks for."""

    # The enabled sections by name, in the order of the file.
    sections: Mapping[str, Section] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()  # the names of the sections that are not enabled
    warnings: tuple[Problem, ...] = ()  # what was odd
    path: str | None = None  # the file as it was named; None where a dict was given, or nothing
    given: bool = True  # whether there was a config at all

    def selector(self, layers: Iterable[LayerInfo]) -> Selector:
        """Return what finds the section of each of these layers."""
        return Selector(self.sections, layers)

    def section_of(self, layer: LayerInfo, layers: Iterable[LayerInfo]) -> Section | None:
        """Return the section of one layer, None where none selects it."""
        return self.selector(layers).section_of(layer)
