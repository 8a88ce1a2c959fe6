"""What names and phases mean: whose time the spans of a loop are, what numbers of phases say."""

from __future__ import annotations

from typing import Final, Literal

__all__ = [
    "COLLECTIVES",
    "NUMBERED_PHASES",
    "LoopPart",
    "lettered_phase",
    "loop_part",
    "own_category",
    "without_loop_part",
]

LoopPart = Literal["wait", "body"]

# `node.iter` and `dft_fn.iter` write two spans for each item. The wait for it is work of the
# category. What is done with it is not: that span only holds what is annotated inside.
_PARTS: Final[dict[str, LoopPart]] = {".iter": "wait", ".block": "body", ".yield": "body"}

# The category of spans in which ranks wait for each other.
COLLECTIVES: Final = "comm"


# dftracer's C++ writers number the phases.
NUMBERED_PHASES: Final = {1: "X", 2: "C", 3: "i", 4: "M"}


def lettered_phase(ph: object) -> str | None:
    """Return the phase of an event as a text; None for what is no phase.

    Args:
        ph: as the line has it: a text, or dftracer's number for one.

    Example::

        assert lettered_phase(1) == "X"
    """
    if isinstance(ph, str):
        return ph
    return NUMBERED_PHASES.get(ph) if type(ph) is int else None


def loop_part(name: str) -> LoopPart | None:
    """Return which part of a loop the spans of this name are.

    Args:
        name: of an event, such as ``fetch.iter``.

    Returns:
        ``wait`` for the wait for an item, ``body`` for what is done with it, None for
        any other span. A loop whose parts were given names of their own
        (``block_name``) does not show.

    Example::

        assert loop_part("fetch.iter") == "wait"
        assert loop_part("fetch.block") == loop_part("scan.yield") == "body"
        assert loop_part("forward") is None
    """
    stem, dot, last = name.rpartition(".")
    return _PARTS.get(dot + last) if stem else None


def own_category(name: str, cat: str) -> str | None:
    """Return the category to which a span's own time belongs, without that of the spans inside.

    Args:
        name: of the event.
        cat: its category.

    Returns:
        The category; None for the body of a loop, whose own time is not annotated.

    Example::

        assert own_category("fetch.iter", "dataloader") == "dataloader"
        assert own_category("fetch.block", "dataloader") is None
    """
    return None if loop_part(name) == "body" else cat


def without_loop_part(name: str) -> str:
    """Return the name of a loop, ``fetch``, for that of its body, ``fetch.block``.

    Args:
        name: of an event, with its category in front or without; any other is returned.
    """
    return name.rpartition(".")[0] if loop_part(name) == "body" else name
