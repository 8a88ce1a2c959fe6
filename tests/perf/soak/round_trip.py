"""Blocks of random text that are compressed here and read by others: `python -m soak.round_trip NUMBER FOLDER`.

Lines of all kinds, lines with something changed in them, and any bytes. They are made and compressed by
a native program, which `make native-test` builds and which has libdeflate read each of them.
"""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

from isal import igzip, isal_zlib

PROGRAM = Path(__file__).resolve().parents[3] / "build" / "native" / "tests" / "dftrace_made_blocks"
SEED = 17
# A stream with a gzip head, as both libraries name it.
WITH_HEAD = 31


def faults_of(number: int, text: bytes, member: bytes) -> list[str]:
    """Who reads another text in a member, or none."""
    readers = {
        "zlib": lambda: zlib.decompress(member, WITH_HEAD),
        "ISA-L": lambda: isal_zlib.decompress(member, WITH_HEAD),
        "Python's gzip": lambda: gzip.decompress(member),
        "Python's gzip by ISA-L": lambda: igzip.decompress(member),
    }
    faults = []
    for name, read in readers.items():
        try:
            alike = read() == text
        except (zlib.error, isal_zlib.error, OSError, EOFError) as error:
            faults.append(f"block {number}: {name}: {error}")
        else:
            if not alike:
                faults.append(f"block {number}: {name} reads another text")
    return faults


def main() -> None:
    number = int(sys.argv[1])
    faults: list[str] = []
    read = plain_bytes = packed_bytes = 0
    with subprocess.Popen(
        [PROGRAM, "members", str(SEED), str(number)], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        while lengths := program.stdout.read(8):
            plain, packed = struct.unpack("=II", lengths)
            text, member = program.stdout.read(plain), program.stdout.read(packed)
            faults += faults_of(read, text, member)
            read += 1
            plain_bytes += plain
            packed_bytes += packed
    if program.returncode or read != number:
        faults.append(f"{read} of {number} blocks, and status {program.returncode}")
    series = {"blocks": [read], "plain bytes": [plain_bytes], "gzip bytes": [packed_bytes]}
    print(json.dumps({"series": series, "faults": faults[:10]}))


main()
