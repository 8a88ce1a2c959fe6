"""The values that may stand in a line of a trace: numbers, times, ids, arguments."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from typing_extensions import TypeAliasType

__all__ = ["ArgValue", "Count", "Finite", "Hash", "Id", "Int64", "ListItem", "Micros", "Pid", "Tid"]

# Perfetto turns larger integers into -1 (trace processor, JSON importer).
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# Perfetto keeps process and thread ids in 32 bits.
Pid = Annotated[int, Field(ge=0, le=2**32 - 1, description="Process id.")]
Tid = Annotated[
    int,
    Field(
        ge=1,
        le=2**32 - 1,
        description="Thread id; 0x40000000 and up are lanes made for spans that do not nest.",
    ),
]
Id = Annotated[int, Field(ge=1, le=2**63 - 1, description="Number of the event in its process.")]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="Hash of the host's name.")]


def _with_fraction(value: object) -> object:
    """Refuse what a float would take too: an integer beyond 64 bits."""
    if isinstance(value, float):
        return value
    raise ValueError("not a number with a fraction, and not an integer of 64 bits")


Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_with_fraction)]


def _in_branches(schema: dict[str, Any]) -> None:
    """Say of each kind of number what pydantic says of both, in a keyword of its own."""
    least = schema.pop("ge")
    for kind in schema["anyOf"]:
        kind["minimum"] = least


Micros = Annotated[
    int | Finite,
    Field(
        ge=0,
        json_schema_extra=_in_branches,
        description=(
            "Microseconds: with three decimals since the header's time_base_us, or whole since "
            "1970 where the header says timestamps 'epoch_us'."
        ),
    ),
]

# A list holds no null: Perfetto would shift the items behind it.
ListItem = TypeAliasType(
    "ListItem", "bool | Int64 | str | Finite | list[ListItem] | dict[str, ArgValue]"
)
ArgValue = TypeAliasType(
    "ArgValue", "bool | Int64 | str | Finite | list[ListItem] | dict[str, ArgValue] | None"
)
