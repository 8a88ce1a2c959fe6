"""Dumps are somebody else's files: nothing in them is run, and none takes more than a bound."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from safety.commands import Done
from safety.commands import dftrace as bounded_dftrace
from sampling import times

from dftrace_ai.live.dumps import judge, plain_pickle, read_dumps
from live.dumps.made_dumps import planted, write

PROTO = b"\x80\x02"


class Runs:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def nested(depth: int) -> bytes:
    return PROTO + b"(]" * depth + b"e" * depth + b"."


def laughs() -> bytes:
    """Lists of the same list, ten times each: 10^60 values for who walks through them."""
    text = PROTO + b"]q\x00"
    for level in range(1, 61):
        text += b"](" + b"h%c" % (level - 1) * 10 + b"eq%c" % level
    return text + b"."


ENTRY = {"profiling_name": "nccl:x", "process_group": ("0", ""), "collective_seq_id": 1}
HOSTILE: dict[str, bytes] = {
    "a place in the memo far away": PROTO + b"K\x01r\xff\xff\xff\xff.",
    "a text of gigabytes": PROTO + b"X\xff\xff\xff\xff" + b"a" * 100,
    "bytes of gigabytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40),
    "a number of many bytes": PROTO + b"\x8b" + struct.pack("<I", 1 << 30),
    "a number of 255 bytes": PROTO + b"\x8a\xff" + b"\x01" * 255 + b".",
    "a number of many digits": PROTO + b"I" + b"9" * 1_000_000 + b"\n.",
    "nested deep": nested(100_000),
    "lists within lists": PROTO + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "laughs": laughs(),
    "itself": PROTO + b"}q\x00(X\x07\x00\x00\x00entriesh\x00X\x07\x00\x00\x00versionh\x00u.",
    "keys of one hash": PROTO
    + b"}("
    + b"".join(b"\x8a\x09" + ((2**61 - 1) * n).to_bytes(9, "little") + b"N" for n in range(1, 120))
    + b"u.",
    "marks alone": PROTO + b"(" * 1_000_000,
    "sizes that hold themselves": PROTO
    + b"}(X\x07\x00\x00\x00version X\x03\x00\x00\x002.0".replace(b" ", b"")
    + b"X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameX\x06\x00\x00\x00nccl:x"
    + b"X\x0d\x00\x00\x00process_groupX\x01\x00\x00\x000X\x01\x00\x00\x00a\x86"
    + b"X\x11\x00\x00\x00collective_seq_idK\x01"
    + b"X\x0b\x00\x00\x00input_sizes]q\x00h\x00aX\x0c\x00\x00\x00output_sizesh\x00ueu.",
    "a class": PROTO + b"cposix\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "something outside of it": PROTO + b"X\x01\x00\x00\x00aQ.",
    "an extension": PROTO + b"\x82\x01.",
    "JSON nested deep": b'{"entries":' + b"[" * 100_000,
    "JSON of many values": b'{"entries":[' + b"0," * 10_000_001 + b"0]}",
    "JSON of another form": json.dumps({"entries": {"a": 1}, "version": 2}).encode(),
    "a version to come": pickle.dumps({"version": "3.0", "entries": []}, protocol=2),
    "nothing of it": pickle.dumps([1, 2], protocol=2),
}


def stuck(*paths: Path) -> Done:
    return bounded_dftrace("stuck", *paths)


def test_what_is_hostile_is_refused_by_its_name(tmp_path: Path) -> None:
    for number, (name, data) in enumerate(HOSTILE.items()):
        (tmp_path / f"{name.replace(' ', '_')}_{number}").write_bytes(data)
    made = tmp_path / "made"
    (tmp_path / "runs_77").write_bytes(pickle.dumps({"entries": Runs(made), "version": "2.10"}))
    os.mkfifo(tmp_path / "pipe_78")
    (tmp_path / "link_79").symlink_to("/dev/zero")
    done = stuck(tmp_path)
    assert done.status in (0, 2), done.err
    assert "Traceback" not in done.err
    assert not made.exists()
    refused = {line.split(": ")[2] for line in done.err.splitlines() if "not read: " in line}
    assert "a_class" in done.err
    assert "it asks for posix.system" in done.err
    assert "runs_77: it asks for posix.mkdir, which plain values do not need" in done.err
    # All but those that hold entries that are none, of which nothing is left.
    assert len(refused) >= len(HOSTILE) - 1


def test_of_a_dump_whose_entries_are_all_damaged_there_is_no_verdict(tmp_path: Path) -> None:
    entry = ENTRY | {"input_sizes": [], "output_sizes": []}
    damaged = [entry | {"collective_seq_id": 2**70}, entry | {"process_group": "x"}, {}, 7]
    dump = tmp_path / "fr_0"
    dump.write_bytes(pickle.dumps({"version": "2.10", "entries": damaged}, protocol=2))
    done = stuck(tmp_path)
    assert (done.status, done.out) == (2, "")
    assert f"not read: {dump}: none of its entries could be read" in done.err
    # Of one that is read in part there is one, which says so; so there is of one without calls.
    dump.write_bytes(pickle.dumps({"version": "2.10", "entries": [*damaged, entry]}, protocol=2))
    assert "of the dumps' entries 4 could not be read" in stuck(tmp_path).out
    dump.write_bytes(pickle.dumps({"version": "2.10", "entries": []}, protocol=2))
    assert stuck(tmp_path).status == 0


def test_what_is_shared_and_large_is_read_once(tmp_path: Path) -> None:
    # Walked through for each that refers to it, it would be 10^11 values.
    many: list[Any] = [[1] * 60] * 10_000
    kinds = ["Float"] * 10_000
    entry = ENTRY | {"input_sizes": many, "output_sizes": many, "frames": many, "record_id": 0}
    entry |= {"input_dtypes": kinds, "output_dtypes": kinds}
    config = {str(number): {"ranks": list(range(1000))} for number in range(20)}
    config |= {f"x{number}": {"ranks": kinds} for number in range(20_000)}
    said = {"version": "2.10", "entries": [entry] * 100_000, "pg_config": config}
    (tmp_path / "fr_0").write_bytes(pickle.dumps(said, protocol=2))
    dumps = read_dumps([tmp_path])
    (call,) = dumps.by_rank[0].calls
    assert len(call.parts) == 100_000
    assert len(judge(dumps).no_dump) == 999
    # One shape, told by each of many lists.
    shape = [2**40] * 60
    said["entries"] = [
        entry | {"input_sizes": [shape] * 10_000, "record_id": one} for one in range(60)
    ]
    (tmp_path / "fr_0").write_bytes(pickle.dumps(said, protocol=2))
    assert len(read_dumps([tmp_path]).by_rank[0].calls) > 0


def test_a_dump_that_was_cut_or_changed_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    whole = pickle.dumps(planted(1).dumps[0], protocol=2)
    rng = random.Random(11)
    path = tmp_path / "fr_0"
    for _ in range(times(20_000, 0.01)):
        data = bytearray(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data[0] = 0x80
        path.write_bytes(data)
        judge(read_dumps([path]))  # whatever it is, it ends in no error


def test_values_are_those_of_pickle() -> None:
    value = {
        "a": [1, 255, 256, 65_535, 65_536, -1, 2**31, -(2**63), 2**63 - 1],
        "é\ud800": 0.5,
        "t": (),
        "u": (1,),
        "v": (1, 2, 3, 4),
        "n": None,
        "b": [True, False],
        7: "x" * 300,
    }
    for protocol in (2, 3, 4, 5):
        assert plain_pickle.plain_pickle(pickle.dumps(value, protocol=protocol)) == value


def test_a_pickle_has_lines_that_json_lacks_and_the_newer_of_two_counts(tmp_path: Path) -> None:
    job = planted(1)
    old, new = tmp_path / "old", tmp_path / "new"
    write(job.dumps, old, after_s=61.0)
    rank = min(job.dumps)
    entries = job.dumps[rank]["entries"][:-1]
    write({rank: job.dumps[rank] | {"entries": entries}}, new, after_s=70.0)
    (new / f"fr_{rank}.json").write_text(json.dumps(job.dumps[rank] | {"entries": []}))
    found = read_dumps([old, new])
    assert found.by_rank[rank].path == str(new / f"nccl_trace_rank_{rank}")
    assert found.by_rank[rank].calls[0].where == "train.py:10 in step"
    (skipped,) = found.skipped
    assert skipped == f"{old}/nccl_trace_rank_{rank}: rank {rank} has a newer dump"


def test_a_million_entries_are_read_within_bounds(tmp_path: Path) -> None:
    value = pickle.dumps({"version": "2.10", "entries": [0] * 1_000_000}, protocol=2)
    (tmp_path / "fr_0").write_bytes(value)
    (skipped,) = read_dumps([tmp_path]).skipped
    assert skipped == f"{tmp_path}/fr_0: none of its entries could be read"
    with pytest.raises(plain_pickle.NotPlainError, match="more than 100,000 values"):
        plain_pickle.plain_pickle(value, most_values=100_000)
