"""What a call gives as arguments of events and as the key of an arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["flow_id", "given_arguments"]


def given_arguments(
    epoch: int | None,
    step: int | None,
    image_idx: int | None,
    image_size: float | None,
    args: Mapping[str, Any] | None,
    free: Mapping[str, object],
) -> dict[str, object]:
    """Return what was given, by name; the last of two of one name counts."""
    named = {"epoch": epoch, "step": step, "image_idx": image_idx, "image_size": image_size}
    given: dict[str, object] = {key: value for key, value in named.items() if value is not None}
    if args is not None:
        given.update(args)
    given.update(free)
    return given


def flow_id(key: int | str) -> int:
    """Return a number of at most 53 bits: what every reader of JSON holds exactly."""
    if isinstance(key, int) and 0 < key < 1 << 53:
        return key
    value = 0xCBF29CE484222325
    for byte in repr(key).encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return (value >> 11) or 1
