"""The grammar of a config: what sections, selections and features hold, and the values of keys.

Each value is checked and brought to one spelling. The JSON Schema in schemas/inspect.schema.json is
made from the models. What a single key cannot know (which key wins, what a GEMM lacks, which
features contradict each other) is checked beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from dftrace_ai.inspect.config import names, schedule
from dftrace_ai.inspect.config.bounded_search import MOST_WRITTEN, searcher
from dftrace_ai.inspect.config.problems import all_checked, as_written
from dftrace_ai.inspect.numerics.statistics import BLOCK_RANGE, BlockRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from typing_extensions import Self

ITERATION = {"type": ["integer", "null"], "minimum": -1}
NAMED = {"type": "string", "minLength": 1}
PATTERN = {**NAMED, "format": "regex", "maxLength": MOST_WRITTEN}

JsonSchema: TypeAlias = "dict[str, Any]"
"""A schema as JSON has it."""


def _entries(value: Any) -> list[Any]:
    """Return the entries of a list; one text alone is a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, (list, tuple)):
        return list(value)
    raise ValueError(f"{as_written(value)} is not accepted; accepted: a list of names")


def _known(
    noun: str,
    known: Iterable[str],
    aliases: Mapping[str, str] | None = None,
    kind: type[Exception] = AssertionError,
    in_short: str | None = None,
) -> Callable[[Any], str]:
    """Return a check of one name, which returns its one spelling."""
    accepted = in_short or names.listed(known)

    def check(value: Any) -> str:
        name = names.canonical(value, known, aliases)
        if name is None:
            raise kind(f"{as_written(value)} is no {noun}; known: {accepted}")
        return name

    return check


def _several(check: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    """Return a check of a list of names, which tells all that are not accepted."""
    return lambda value: tuple(dict.fromkeys(all_checked(check, _entries(value))))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{as_written(value)} is not accepted; accepted: a name")
    return value


def _margin(value: Any) -> int:
    number = schedule.whole(value)
    if number is None or abs(number) > 200:
        raise ValueError(
            f"{as_written(value)} is not accepted; accepted: a whole number, -200 to 200"
        )
    return number


def _format(value: Any) -> str:
    return names.FORMATS[_known("format", names.FORMATS, kind=ValueError)(value)]


def _pattern(value: Any) -> str:
    text = _text(value)
    try:
        searcher(text)
    except ValueError as error:
        raise ValueError(f"{as_written(value)} {error}") from error
    return text


def _numbers(value: Any) -> tuple[tuple[int, int], ...] | Literal["all"]:
    """Return ranges of layer numbers, both ends included."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(entry, str) and entry.strip().lower() == "all" for entry in entries):
        return "all"
    return all_checked(_range, entries)


def _range(entry: Any) -> tuple[int, int]:
    number = schedule.whole(entry)
    if number is not None and number >= 0:
        return number, number
    if isinstance(entry, str):
        ends = [end.strip() for end in entry.split("-")]
        if len(ends) <= 2 and all(end.isascii() and end.isdigit() for end in ends):
            first, last = int(ends[0]), int(ends[-1])
            if first <= last:
                return first, last
    raise ValueError(
        f"{as_written(entry)} is no number of a layer; accepted: whole numbers, ranges such as "
        "'2-5', and 'all'"
    )


def _spelt(known: Iterable[str]) -> JsonSchema:
    """Return the schema of one name in any case; an editor offers the usual spelling."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": names.any_case(known)}]}


def _one_or_more(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


Gemm = Annotated[
    str, PlainValidator(_known("GEMM", names.GEMMS)), WithJsonSchema(_spelt(names.GEMMS))
]
Gemms = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_known("GEMM", names.GEMMS))),
    WithJsonSchema(_one_or_more(_spelt(names.GEMMS))),
]
Tensor = Annotated[
    str, PlainValidator(_known("tensor", names.TENSORS)), WithJsonSchema(_spelt(names.TENSORS))
]
Tensors = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_known("tensor", names.TENSORS))),
    WithJsonSchema(_one_or_more(_spelt(names.TENSORS))),
]


def _stats_check(feature: str) -> Callable[[Any], str]:
    return _known(
        f"statistic of {feature}",
        names.STATS[feature],
        names.STAT_ALIASES[feature],
        ValueError,
        names.STATS_IN_SHORT[feature],
    )


def _stats_schema(feature: str) -> JsonSchema:
    return _spelt([*names.STATS[feature], *names.STAT_ALIASES[feature]])


_BLOCK_RANGE_KEYS = {
    "block_size": {"type": "integer", "minimum": 1, "default": BlockRange().block_size},
    "dims": {"enum": [1, 2], "default": BlockRange().dims},
}


def _tensor_stat(value: Any) -> str:
    """Return the name of a statistic, or of the one that has keys of its own with these in it."""
    if not isinstance(value, dict):
        return _stats_check("LogTensorStats")(value)
    keys = value.get(BLOCK_RANGE)
    if len(value) != 1 or not isinstance(keys, dict) or not keys.keys() <= _BLOCK_RANGE_KEYS.keys():
        raise ValueError(
            f"{as_written(value)} is not accepted; accepted: "
            f"{{{BLOCK_RANGE}: {{block_size: 32, dims: 1}}}}"
        )
    size = schedule.whole(keys.get("block_size", BlockRange().block_size))
    dims = schedule.whole(keys.get("dims", BlockRange().dims))
    if size is None or size < 1 or dims is None or dims not in {1, 2}:
        raise ValueError(
            f"{as_written(keys)} is not accepted; accepted: a block_size of 1 or more, and "
            "1 or 2 as dims"
        )
    return str(BlockRange(size, dims))


TensorStats = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_tensor_stat)),
    WithJsonSchema(
        {
            "anyOf": [
                _stats_schema("LogTensorStats"),
                {
                    "type": "array",
                    "items": {
                        "anyOf": [
                            *_stats_schema("LogTensorStats")["anyOf"],
                            {
                                "type": "object",
                                "properties": {
                                    BLOCK_RANGE: {
                                        "type": "object",
                                        "properties": _BLOCK_RANGE_KEYS,
                                        "additionalProperties": False,
                                    }
                                },
                                "required": [BLOCK_RANGE],
                                "additionalProperties": False,
                            },
                        ]
                    },
                },
            ]
        }
    ),
]
BaseStats = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_stats_check("LogTensorStats"))),
    WithJsonSchema(_one_or_more(_stats_schema("LogTensorStats"))),
]
Fp8Stats = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_stats_check("LogFp8TensorStats"))),
    WithJsonSchema(_one_or_more(_stats_schema("LogFp8TensorStats"))),
]
Nvfp4Stats = Annotated[
    tuple[str, ...],
    PlainValidator(_several(_stats_check("LogNvfp4TensorStats"))),
    WithJsonSchema(_one_or_more(_stats_schema("LogNvfp4TensorStats"))),
]
Margin = Annotated[
    int,
    PlainValidator(_margin),
    WithJsonSchema({"type": "integer", "minimum": -200, "maximum": 200}),
    Field(description="The scale is that of an amax of amax * 2**margin."),
]
QuantFormat = Annotated[
    str,
    PlainValidator(_format),
    WithJsonSchema(_spelt(names.FORMATS)),
    Field(description="The format to quantise to."),
]


Frequency = Annotated[
    int,
    PlainValidator(schedule.frequency),
    WithJsonSchema({"type": ["integer", "null"], "minimum": 1}),
    Field(description="Due are the iterations that this divides; null is 1."),
]
StartStep = Annotated[
    int | None,
    PlainValidator(schedule.iteration),
    WithJsonSchema(ITERATION),
    Field(description="First iteration that may be due; null or -1 is the first of all."),
]
EndStep = Annotated[
    int | None,
    PlainValidator(schedule.iteration),
    WithJsonSchema(ITERATION),
    Field(description="Last iteration that may be due; null or -1 is open."),
]
StartEndList = Annotated[
    tuple[tuple[int, int], ...],
    PlainValidator(schedule.pairs),
    WithJsonSchema(
        {
            "type": ["array", "null"],
            "items": {
                "type": "array",
                "prefixItems": [{"type": "integer", "minimum": 0}, ITERATION],
                "minItems": 2,
                "maxItems": 2,
            },
        }
    ),
    Field(
        description="Windows in place of start_step and end_step, each up to and without its "
        "end; an end of null or -1 is open."
    ),
]
Name = Annotated[str, PlainValidator(_text), WithJsonSchema(NAMED)]
Names = Annotated[
    tuple[str, ...], PlainValidator(_several(_text)), WithJsonSchema(_one_or_more(NAMED))
]
Pattern = Annotated[str, PlainValidator(_pattern), WithJsonSchema(PATTERN)]
_NUMBER = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*(?:[0-9]+\s*(?:-\s*[0-9]+)?|[aA][lL][lL])\s*$"},
    ]
}
LayerNumbers = Annotated[
    tuple[tuple[int, int], ...] | Literal["all"],
    PlainValidator(_numbers),
    WithJsonSchema(_one_or_more(_NUMBER)),
]


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

    exact_layer_names: Names = Field(default=(), description="Names, each in full.")
    layer_name_regex_pattern: Pattern = Field(
        default="", description="A regular expression that is found somewhere in the name."
    )
    layer_types: Names = Field(
        default=(),
        description="Parts of names; 'all' is every layer. One that is in no name is held "
        "against the classes of the layers.",
    )
    layer_numbers: LayerNumbers = Field(
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
    freq: Frequency = 1
    start_step: StartStep = None
    end_step: EndStep = None
    start_end_list: StartEndList = ()


class _TensorStatsKeys(_Scheduled):
    stats: TensorStats = ()


class _TensorStatsItem(_TensorStatsKeys):
    tensor: Tensor


class _BaseStatsKeys(_Scheduled):
    stats: BaseStats = ()


class _BaseStatsItem(_BaseStatsKeys):
    tensor: Name


class _Fp8StatsKeys(_Scheduled):
    stats: Fp8Stats = ()


class _Fp8StatsItem(_Fp8StatsKeys):
    tensor: Tensor


class _Nvfp4StatsKeys(_Scheduled):
    stats: Nvfp4Stats = ()


class _Nvfp4StatsItem(_Nvfp4StatsKeys):
    tensor: Tensor


class _DumpKeys(_Scheduled):
    high_precision_tensor: StrictBool = Field(default=False, description="As it is seen.")
    quantized_tensor: StrictBool = Field(default=False, description="As FP8 makes it.")


class _DumpItem(_DumpKeys):
    tensor: Tensor


class _BareGemmItem(_Mapping):
    gemm: Gemm


class _ScalingKeys(_Mapping):
    margin: Margin = 0


class _ScalingTensorItem(_ScalingKeys):
    tensor: Tensor


class _ScalingTensors(_ScalingKeys):
    tensors: Tensors = ()
    tensors_struct: tuple[_ScalingTensorItem, ...] = ()


class _ScalingGemmItem(_ScalingTensors):
    gemm: Gemm


class _FakeQuantKeys(_ScalingKeys):
    quant_format: QuantFormat = ""


class _FakeQuantTensorItem(_FakeQuantKeys):
    tensor: Tensor


class _FakeQuantTensors(_FakeQuantKeys):
    tensors: Tensors = ()
    tensors_struct: tuple[_FakeQuantTensorItem, ...] = ()


class _FakeQuantGemmItem(_FakeQuantTensors):
    gemm: Gemm


class Feature(_Mapping):
    """What every feature has."""

    enabled: StrictBool


class LogTensorStats(_TensorStatsKeys, Feature):
    """Statistics of tensors as they enter or leave a GEMM, before any quantisation."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: Tensors = ()
    tensors_struct: tuple[_TensorStatsItem, ...] = ()


class BaseLogTensorStats(_BaseStatsKeys, Feature):
    """Statistics of what is handed to `log_tensor_stats`, under the names used there."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: Names = ()
    tensors_struct: tuple[_BaseStatsItem, ...] = ()


class LogFp8TensorStats(_Fp8StatsKeys, Feature):
    """What FP8 does to tensors: underflows, overflows, error and scale."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: Tensors = ()
    tensors_struct: tuple[_Fp8StatsItem, ...] = ()


class LogNvfp4TensorStats(_Nvfp4StatsKeys, Feature):
    """What NVFP4 would do to tensors: underflows and error."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: Tensors = ()
    tensors_struct: tuple[_Nvfp4StatsItem, ...] = ()


class DumpTensors(_DumpKeys, Feature):
    """Tensors that are written to files, before and after quantisation."""

    needs_one_of = ("tensors", "tensors_struct")

    tensors: Tensors = ()
    tensors_struct: tuple[_DumpItem, ...] = ()


class DisableFp8Gemm(Feature):
    """GEMMs that stay in high precision."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: Gemms = ()
    gemms_struct: tuple[_BareGemmItem, ...] = ()


class DisableFp8Layer(Feature):
    """All GEMMs of the layer stay in high precision."""


class PerTensorScaling(_ScalingTensors, Feature):
    """Operands that are scaled by their own, current amax."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: Gemms = ()
    gemms_struct: tuple[_ScalingGemmItem, ...] = ()


class FakeQuant(_FakeQuantTensors, Feature):
    """GEMMs in high precision whose operands or results are rounded to FP8."""

    needs_one_of = ("gemms", "gemms_struct")

    gemms: Gemms = ()
    gemms_struct: tuple[_FakeQuantGemmItem, ...] = ()


LOGGING = (LogTensorStats, LogFp8TensorStats, LogNvfp4TensorStats, BaseLogTensorStats)
LogKeys: TypeAlias = LogTensorStats | LogFp8TensorStats | LogNvfp4TensorStats | BaseLogTensorStats
"""What says which statistics are logged, and when."""

FEATURE_MODELS: dict[str, type[Feature]] = {
    model.__name__: model
    for model in (
        LogTensorStats,
        LogFp8TensorStats,
        LogNvfp4TensorStats,
        DisableFp8Gemm,
        DisableFp8Layer,
        PerTensorScaling,
        FakeQuant,
        DumpTensors,
    )
}
