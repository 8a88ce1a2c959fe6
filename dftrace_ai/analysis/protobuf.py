"""Fields of protobuf messages as bytes: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def varint(value: int) -> bytes:
    """Return a whole number from 0 on as protobuf has it: seven bits a byte, the lowest first."""
    told = bytearray()
    while value > 0x7F:
        told.append(value & 0x7F | 0x80)
        value >>= 7
    told.append(value)
    return bytes(told)


def number(key: int, value: int) -> bytes:
    """Return a field that is a number; nothing where it is 0."""
    return varint(key << 3) + varint(value) if value else b""


def field(key: int, content: bytes) -> bytes:
    """Return a field that is a text or a message."""
    return varint(key << 3 | 2) + varint(len(content)) + content


def packed(key: int, values: Iterable[int]) -> bytes:
    """Return a field that is several numbers."""
    return field(key, b"".join(map(varint, values)))


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message that are numbers, texts or messages, with their keys.

    Raises:
        ValueError: it is none.
    """
    at = 0
    while at < len(message):
        tag, at = _varint_at(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint_at(message, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint_at(message, at)
        if size is None or at + size > len(message):
            raise ValueError("no message of protobuf")
        if kind == 2:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint_at(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("no message of protobuf")
