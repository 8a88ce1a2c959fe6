"""What names and phases mean: whose time the spans of a loop are, what numbers of phases say."""

from __future__ import annotations

from typing import Final, Literal

LoopPart = Literal["wait", "body"]

# `node.iter` and `dft_fn.iter` write two spans for each item. The wait for it is work of the
# category. What is done with it is not: that span only holds what is annotated inside.
_PARTS: Final[dict[str, LoopPart]] = {".iter": "wait", ".block": "body", ".yield": "body"}

# The category of spans in which ranks wait for each other.
COLLECTIVES: Final = "comm"

# Those that all leave together, by the names of the vocabulary (schemas/categories.yaml), which
# `auto` and other recorders share.
JOINT: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})

# dftracer's C++ writers number the phases.
NUMBERED_PHASES: Final = {1: "X", 2: "C", 3: "i", 4: "M"}


def lettered_phase(ph: object) -> str | None:
    """Return the phase of an event as a text, also for dftracer's number; None for what is none."""
    if isinstance(ph, str):
        return ph
    return NUMBERED_PHASES.get(ph) if type(ph) is int else None


def loop_part(name: str) -> LoopPart | None:
    """Return which part of a loop the spans of a name such as ``fetch.iter`` are; None for others.

    A loop whose parts were given names of their own (``block_name``) does not show.
    """
    stem, dot, last = name.rpartition(".")
    return _PARTS.get(dot + last) if stem else None


def own_category(name: str, cat: str) -> str | None:
    """Return the category of a span's own time; None for the body of a loop, which has none."""
    return None if loop_part(name) == "body" else cat


def without_loop_part(name: str) -> str:
    """Return the name of a loop for that of its body, ``fetch.block``, and any other as it is."""
    return name.rpartition(".")[0] if loop_part(name) == "body" else name
