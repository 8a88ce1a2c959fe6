"""The grammar of a config as models: what a section, a selection and a feature may hold.

The JSON Schema in schemas/inspect.schema.json is made from these. What a single key cannot know
(which key wins, what a GEMM lacks, which features contradict each other) is checked beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.grammar import values  # noqa: TC001 - pydantic evaluates them

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from typing_extensions import Self

# Keys as example files of other tools write them.
KEY_ALIASES = {"type": "stats", "layer_type": "layer_types"}


class _Mapping(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    # Keys of which at least one has to be given.
    needs_one_of: ClassVar[tuple[str, ...]] = ()

    def said(self, key: str) -> Any:
        """Return the value of a key, None where it is not given."""
        return getattr(self, key) if key in self.model_fields_set else None

    def over(self, item: BaseModel, but: AbstractSet[str]) -> Self:
        """Return these keys, but some, with those that an item gives laid over them."""
        kept = {key: getattr(self, key) for key in self.model_fields_set - but}
        known = item.model_fields_set & type(self).model_fields.keys()
        return self.model_construct(**kept | {key: getattr(item, key) for key in known})


class Layers(_Mapping):
    """Which layers a section is about; an exact name wins over a pattern, both over the rest."""

    needs_one_of = (
        "exact_layer_names",
        "layer_name_regex_pattern",
        "layer_types",
        "layer_numbers",
    )

    exact_layer_names: values.Names = Field(default=(), description="Names, each in full.")
    layer_name_regex_pattern: values.Pattern = Field(
        default="", description="A regular expression that is found somewhere in the name."
    )
    layer_types: values.Names = Field(
        default=(),
        description="Parts of names; 'all' is every layer. One that is in no name is held "
        "against the classes of the layers.",
    )
    layer_numbers: values.LayerNumbers = Field(
        default=(),
        description="Numbers and ranges such as '2-5' of the first part of the name that is a "
        "number, or 'all'.",
    )

    @model_validator(mode="after")
    def _something_is_said(self) -> Layers:
        if not self.model_fields_set:
            raise AssertionError(f"one of {names.listed(self.needs_one_of, 'or')} is needed")
        return self


class SectionHead(_Mapping):
    """What every section has beside its features."""

    enabled: StrictBool = Field(description="Of a section that is disabled, no more is read.")
    layers: Layers


class _Scheduled(_Mapping):
    freq: values.Frequency = 1
    start_step: values.StartStep = None
    end_step: values.EndStep = None
    start_end_list: values.StartEndList = ()


class _TensorStatsKeys(_Scheduled):
    stats: values.TensorStats = ()


class _TensorStatsItem(_TensorStatsKeys):
    tensor: values.Tensor


class _BaseTensorStatsItem(_TensorStatsKeys):
    tensor: values.Name


class _Fp8StatsKeys(_Scheduled):
    stats: values.Fp8Stats = ()


class _Fp8StatsItem(_Fp8StatsKeys):
    tensor: values.Tensor


class _BareGemmItem(_Mapping):
    gemm: values.Gemm


class _ScalingKeys(_Mapping):
    margin: values.Margin = 0


class _ScalingTensorItem(_ScalingKeys):
    tensor: values.Tensor


class _ScalingTensors(_ScalingKeys):
    tensors: values.Tensors = ()
    tensors_struct: tuple[_ScalingTensorItem, ...] = ()


class _ScalingGemmItem(_ScalingTensors):
    gemm: values.Gemm


class _FakeQuantKeys(_ScalingKeys):
    quant_format: values.QuantFormat = ""


class _FakeQuantTensorItem(_FakeQuantKeys):
    tensor: values.Tensor


class _FakeQuantTensors(_FakeQuantKeys):
    tensors: values.Tensors = ()
    tensors_struct: tuple[_FakeQuantTensorItem, ...] = ()


class _FakeQuantGemmItem(_FakeQuantTensors):
    gemm: values.Gemm


class Feature(_Mapping):
    """What every feature has."""

    enabled: StrictBool


class LogTensorStats(_TensorStatsKeys, Feature):
    """Statistics of tensors as they enter or leave a GEMM, before any quantisation."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: values.Tensors = ()
    tensors_struct: tuple[_TensorStatsItem, ...] = ()


class BaseLogTensorStats(_TensorStatsKeys, Feature):
    """Statistics of what is handed to `log_tensor_stats`, under the names used there."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: values.Names = ()
    tensors_struct: tuple[_BaseTensorStatsItem, ...] = ()


class LogFp8TensorStats(_Fp8StatsKeys, Feature):
    """What FP8 does to tensors: underflows, overflows, error and scale."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: values.Tensors = ()
    tensors_struct: tuple[_Fp8StatsItem, ...] = ()


class DisableFp8Gemm(Feature):
    """GEMMs that stay in high precision."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: values.Gemms = ()
    gemms_struct: tuple[_BareGemmItem, ...] = ()


class DisableFp8Layer(Feature):
    """All GEMMs of the layer stay in high precision."""


class PerTensorScaling(_ScalingTensors, Feature):
    """Operands that are scaled by their own, current amax."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: values.Gemms = ()
    gemms_struct: tuple[_ScalingGemmItem, ...] = ()


class FakeQuant(_FakeQuantTensors, Feature):
    """GEMMs in high precision whose operands or results are rounded to FP8."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: values.Gemms = ()
    gemms_struct: tuple[_FakeQuantGemmItem, ...] = ()


LogKeys: TypeAlias = LogTensorStats | LogFp8TensorStats | BaseLogTensorStats
"""What says which statistics are logged, and when."""

FEATURE_MODELS: dict[str, type[Feature]] = {
    model.__name__: model
    for model in (
        LogTensorStats,
        LogFp8TensorStats,
        DisableFp8Gemm,
        DisableFp8Layer,
        PerTensorScaling,
        FakeQuant,
    )
}
