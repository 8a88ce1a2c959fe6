"""Spools of dead processes that were cut, or in which bits have changed."""

from __future__ import annotations

import platform
import random
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import RunScript, trace_files
from perfetto.trace_file import BadTrace, read, read_unfinished

from stress.account import Place, read_accounts
from stress.conftest import SEED, FaultRow, NewPlace
from stress.damage import TRAINED
from stress.judge import Verdict, judge_counts
from stress.nursery import Nursery

TURNS = 8

# A spool's layout, see docs/design/spool.md.
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


def only(paths: Iterable[Path]) -> Path:
    """The only one."""
    (path,) = paths
    return path


def dead_spool(nursery: Nursery, place: Place) -> bytes:
    """What a victim left of which nothing has been written yet, as long as its units.

    Room that was made ready for more of them lies behind: nobody misses it.
    """
    victim = nursery.start("threads.killed_by_itself", place)
    assert victim.ended() == -signal.SIGKILL, victim.said
    spool = only(place.spools.iterdir()).read_bytes()
    units = -(-len(spool.rstrip(b"\0")) // UNIT_BYTES)
    return spool[: units * UNIT_BYTES]


def with_spool(original: Place, copy: Place, spool: bytes) -> Place:
    """A place like the original, but with this for its spool."""
    path = copy.spools / only(original.spools.iterdir()).name
    path.write_bytes(spool)
    marker = only(original.out.glob("*.spool-at"))
    named, newline, more = marker.read_text(encoding="utf-8").partition("\n")
    assert Path(named).name == path.name
    (copy.out / marker.name).write_text(f"{path}{newline}{more}", encoding="utf-8")
    for diary in original.diaries.iterdir():
        shutil.copy(diary, copy.diaries)
    return copy


def recovered(nursery: Nursery, place: Place) -> tuple[int, int, int]:
    """How many traces were finished, failed, and how many kinds of damage were told of."""
    adopter = nursery.start("programs.adopt_damaged", place)
    assert adopter.ended() == 0, adopter.said
    finished, failed, damaged = (int(word) for word in adopter.said.split())
    return finished, failed, damaged


def judge_rest(place: Place, whole: set[int], *, texts_whole: bool = True) -> Verdict:
    """All these records are there, by id, once, and true; all else is at least well-formed.

    Where texts have changed, what a record says of itself is no longer sure.
    """
    verdict = Verdict(made=len(whole))
    made = {
        (account.name, told.number) for account in read_accounts(place) for told in account.spans
    }
    for path in trace_files(place.out):
        try:
            trace = read_unfinished(path)
        except BadTrace as error:
            verdict.wrong.append(str(error)[:300])
            continue
        events = [event for event in trace.of("X") if event.id in whole]
        verdict.found += len({event.id for event in events})
        if not texts_whole:
            continue
        told = [(e.args["diary"], e.args["n"]) for e in events if {"diary", "n"} <= set(e.args)]
        verdict.wrong += [f"{key} is there {n} times" for key, n in Counter(told).items() if n > 1]
        verdict.wrong += [f"nobody made {key}" for key in set(told) - made]
    return verdict


def flipped(spool: bytes, rng: random.Random, unit: int, first: int, end: int) -> bytes:
    """With some bits changed between two places of a unit."""
    changed = bytearray(spool)
    for _ in range(rng.choice([1, 8, 64])):
        changed[unit * UNIT_BYTES + rng.randrange(first, end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def ids_in(units: Iterable[RecordUnit]) -> set[int]:
    return {number for unit in units for number in unit.ids}


Damaged = tuple[bytes, set[int], bool]
"""A spool, the records that are sound in it, and whether the texts that they name are."""


def cut(spool: bytes, rng: random.Random) -> Damaged:
    """What lies in whole units before the cut is found."""
    rest = spool[: rng.randrange(len(spool))]
    return rest, ids_in(record_units(rest)), True


def changed_unit(spool: bytes, rng: random.Random) -> Damaged:
    """All that lies in other units is found."""
    unit = rng.randrange(1, len(spool) // UNIT_BYTES)
    others = [other for other in record_units(spool) if other.index != unit]
    of_records = len(others) < len(record_units(spool))
    return flipped(spool, rng, unit, UNIT_HEADER_BYTES, UNIT_BYTES), ids_in(others), of_records


def changed_thread(spool: bytes, rng: random.Random) -> Damaged:
    """Whatever the spool says of a thread's number, name and open spans: its records are found."""
    units = record_units(spool)
    unit = rng.choice([unit.index for unit in units if unit.is_first])
    changed = flipped(spool, rng, unit, UNIT_HEADER_BYTES, THREAD_STACK_FROM)
    return changed, ids_in(units), True


def changed_header(spool: bytes, rng: random.Random) -> Damaged:
    """Either all is there, or it is told that it is not."""
    return flipped(spool, rng, 0, 0, UNIT_BYTES), ids_in(record_units(spool)), True


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (cut, f"cut at {TURNS} lengths"),
        (changed_unit, f"bits changed in a unit, {TURNS} times"),
        (changed_thread, f"bits changed in a thread, {TURNS} times"),
        (changed_header, f"bits changed in its header, {TURNS} times"),
    ],
)
def test_what_is_sound_is_found(
    damage: Callable[[bytes, random.Random], Damaged],
    fault: str,
    nursery: Nursery,
    new_place: NewPlace,
    fault_row: FaultRow,
) -> None:
    rng = random.Random(f"{SEED} {fault}")
    with fault_row(f"spool of a killed process, {fault}") as row:
        original = new_place()
        spool = dead_spool(nursery, original)
        for _ in range(TURNS):
            damaged, sound, texts_whole = damage(spool, rng)
            place = with_spool(original, new_place(), damaged)
            finished, failed, told = recovered(nursery, place)
            if damage is changed_header:
                # It may have become the spool of a process that lives.
                assert finished or failed or list(place.spools.iterdir())
                sound = set() if told or not finished else sound
            else:
                assert (finished, failed) == ((1, 0) if len(damaged) >= UNIT_BYTES else (0, 1))
                assert told or not finished or damage is not cut
            row.add(judge_rest(place, sound, texts_whole=texts_whole))


# Each child leaves a spool with several units, and a neighbour does something else to each but the first.
HAS_A_NEIGHBOUR = """
spools = Path("spools").absolute()
dftrace_ai.initialize(spool_dir=spools, flush_interval_ms=60_000)
trained(3000)
seen = set(spools.iterdir())
children, left = [], []
for _ in range(6):
    child = os.fork()
    if child == 0:
        trained(3000, ai.data.item)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    children.append(child)
    left += set(spools.iterdir()) - seen
    seen.update(left)

whole, empty, short, hollow, changed, moving = left
os.truncate(empty, 0)
os.truncate(short, 100_000)
os.truncate(hollow, 70_000)
os.truncate(hollow, whole.stat().st_size)
content = bytearray(changed.read_bytes())
content[1 << 16 :: 5] = bytes(len(content[1 << 16 :: 5]))
changed.write_bytes(content)
content = moving.read_bytes()
neighbour = os.fork()
if neighbour == 0:
    with open(moving, "r+b", buffering=0) as file:
        while True:
            for bytes_ in (len(content), 200_000, 65_536, 1_000):
                file.truncate(bytes_)
                os.pwrite(file.fileno(), content[:100_000], 0)
try:
    dftrace_ai.finalize()
finally:
    os.kill(neighbour, signal.SIGKILL)
    os.waitpid(neighbour, 0)
print(json.dumps([os.getpid(), children[0]]))
"""


def test_spools_of_children_change_while_finalize_reads_them(
    run_script: RunScript, fault_row: FaultRow
) -> None:
    """That ends no training, and costs nobody else's spans."""
    done = run_script(TRAINED + HAS_A_NEIGHBOUR)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("the trace of a child") >= 4
    (untouched,) = done.said
    whole = [read(done.folder / f"trace-{platform.node()}-{pid}.pfw.gz") for pid in untouched]
    with fault_row("spools of children cut and changed while finalize reads them") as row:
        row.add(judge_counts(whole, {"forward": 3000, "item": 3000}))
