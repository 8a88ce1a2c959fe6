"""What a test has to know of a spool's layout to break one with care; see docs/design/spool.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass

UNIT_BYTES = 64 * 1024
UNIT_HEADER = struct.Struct("=IIIIQII")  # magic, kind, owner, units, sequence, committed, consumed
UNIT_HEADER_BYTES = 64
THREAD_BLOCK_BYTES = 16 * 1024
THREAD_STACK_FROM = 192  # a thread's number, depth and name stand before that
RECORD_BYTES = 64
RECORD_ID = struct.Struct("=16xQ")
MAGIC = int.from_bytes(b"UNIT", "little")
THREAD, RING = 1, 2
RECORDS_FROM = {THREAD: THREAD_BLOCK_BYTES, RING: UNIT_HEADER_BYTES}


@dataclass(frozen=True)
class RecordUnit:
    """A unit with records that are not in the trace yet."""

    index: int
    is_first: bool  # of its thread, and says whose it is
    ids: list[int]


def record_units(spool: bytes) -> list[RecordUnit]:
    """The whole units that hold records, with the ids of what is recorded there."""
    found = []
    for index in range(1, len(spool) // UNIT_BYTES):
        start = index * UNIT_BYTES
        magic, kind, _, _, _, committed, consumed = UNIT_HEADER.unpack_from(spool, start)
        if magic == MAGIC and kind in RECORDS_FROM:
            first = start + RECORDS_FROM[kind]
            places = [first + number * RECORD_BYTES for number in range(consumed, committed)]
            ids = [RECORD_ID.unpack_from(spool, at)[0] for at in places]
            found.append(RecordUnit(index, kind == THREAD, ids))
    return found
