"""A second reader of what blocks say of themselves, by the page of the format alone."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import zstandard

NO_EVENT = (2**63 - 1, -(2**63))


class Block(NamedTuple):
    """A block, and what it says."""

    kind: int
    packed_bytes: int
    plain_bytes: int
    lines: int
    first_ns: int
    last_ns: int
    place: int
    text: bytes

    @property
    def reach(self) -> tuple[int, int]:
        return self.first_ns, self.last_ns

    def reach_of_text(self) -> tuple[int, int]:
        """From when to when its lines reach, by the lines."""
        first, last = NO_EVENT
        for line in self.text.splitlines():
            event = json.loads(line, parse_float=_ns, parse_int=_ns) if line != b"[" else {}
            if "ts" not in event:
                continue
            first = min(first, event["ts"])
            end = event["ts"] + event.get("dur", 0)
            last = max(last, 2**63 - 1 if event["ph"] == "B" else end)
        return first, last


def _ns(micros: str) -> int:
    whole, _, rest = micros.partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0")[:3] or 0)


def blocks_of(path: Path) -> list[Block]:
    """Hop through a file; each block must end where it says."""
    data = path.read_bytes()
    blocks = []
    place = 0
    while place < len(data):
        if path.name.endswith(".gz"):
            magic, flags = data[place : place + 3], data[place + 3]
            assert (magic, flags) == (b"\x1f\x8b\x08", 4)
            extra = data[place + 12 :][: struct.unpack_from("<H", data, place + 10)[0]]
            assert extra[:4] == b"DF" + struct.pack("<H", 30)
            facts = extra[4:]
        else:
            magic, length = struct.unpack_from("<II", data, place)
            assert (magic, length) == (0x184D2A5D, 32)
            assert data[place + 8 : place + 10] == b"DF"
            facts = data[place + 10 : place + 40]
        version, kind, packed, plain, lines, first, last = struct.unpack("<BBIIIqq", facts)
        assert version == 1
        whole = data[place : place + packed]
        if path.name.endswith(".gz"):
            inflate = zlib.decompressobj(wbits=31)
            text = inflate.decompress(whole)
            assert (inflate.eof, inflate.unused_data) == (True, b"")
        else:
            text = zstandard.ZstdDecompressor().decompress(whole[40:])
        blocks.append(Block(kind, packed, plain, lines, first, last, place, text))
        place += packed
    return blocks


def check_blocks(path: Path) -> list[Block]:
    """Every block of a file says what it holds."""
    blocks = blocks_of(path)
    for block in blocks:
        assert block.plain_bytes == len(block.text)
        assert block.lines == block.text.count(b"\n")
        assert block.reach == block.reach_of_text()
    return blocks
