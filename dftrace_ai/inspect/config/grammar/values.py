"""The values that keys of a config take: each checked, brought to one spelling, and its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainValidator, WithJsonSchema

from dftrace_ai.inspect.config import names, schedule
from dftrace_ai.inspect.config.bounded_search import MOST_WRITTEN, searcher
from dftrace_ai.inspect.config.problems import all_checked, as_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
) -> Callable[[Any], str]:
    """Return a check of one name, which returns its one spelling."""
    accepted = names.listed(known)

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
    if isinstance(value, str) and value.upper().startswith("MX"):
        raise ValueError(f"{as_written(value)} is not supported; supported: FP8E4M3 and FP8E5M2")
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


def _stats_check(feature: str) -> PlainValidator:
    known = names.known_stats(feature)
    one = _known(f"statistic of {feature}", known, names.STAT_ALIASES[feature], ValueError)
    return PlainValidator(_several(one))


def _stats_schema(feature: str) -> WithJsonSchema:
    known = [*names.known_stats(feature), *names.STAT_ALIASES[feature]]
    return WithJsonSchema(_one_or_more(_spelt(known)))


TensorStats = Annotated[
    tuple[str, ...], _stats_check("LogTensorStats"), _stats_schema("LogTensorStats")
]
Fp8Stats = Annotated[
    tuple[str, ...], _stats_check("LogFp8TensorStats"), _stats_schema("LogFp8TensorStats")
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
