"""Arguments as they may be given, and how a line shows them."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping

from hypothesis import strategies as st

NAMED = ("epoch", "step", "image_idx", "image_size")
RESERVED = ("level", "count")
KEYS = (*NAMED, *RESERVED, "microbatch", "loss", "phase", "a", "b", "metadata")


class Phase(enum.IntEnum):
    """An integer that is none of the exact ones."""

    WARM_UP = 3


numbers = st.integers(-3, 3) | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
others = st.sampled_from([2**63, -(10**30), True, False, None, 0.5, "text", 'a "b"', Phase.WARM_UP])
scalars = st.one_of(numbers, numbers, numbers, others)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "level", "it's"]), inner, max_size=2)
    ),
    max_leaves=4,
)
values = st.one_of(scalars, scalars, nested)
some_arguments = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
few_numbers = st.dictionaries(st.sampled_from(KEYS[:3]), numbers, min_size=1, max_size=2)
arguments = st.one_of(few_numbers, few_numbers, some_arguments)


def merged(given: Mapping[str, object]) -> dict[str, object]:
    """What a call gives: its named arguments first, and none of those that are None."""
    named = {k: given[k] for k in NAMED if given.get(k) is not None}
    return {**named, **{k: v for k, v in given.items() if k not in NAMED}}


def shown(args: Mapping[str, object]) -> str:
    """The members of a line, in order, with what tells a number from a text or a truth value."""
    renamed = {k + "_" * (k in RESERVED): as_json(v) for k, v in args.items()}
    return json.dumps(renamed)


def as_json(value: object, *, in_list: bool = False) -> object:
    """A value as a line has it."""
    if isinstance(value, dict):
        return {k: as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v, in_list=True) for v in value]
    if value is None and in_list:
        return "None"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    return value
