"""The processes of a merged trace: their numbers, what they are called, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from dftrace_ai.analysis.merging.overlap_tracks import LARGEST
from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.analysis.reading.identity import Owner, Owners

# Process ids beyond the greatest that Linux gives (2^22), for those that hosts have in common.
FIRST_SPARE_PID: Final = 1 << 22

NAME_LETTERS: Final = 200


class ProcessNumbers:
    """Gives every process a number that no other has."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._given: dict[tuple[int, object], int] = {}
        self._spare = FIRST_SPARE_PID

    def of(self, pid: int, owner: object) -> int:
        """Return the number of a process with this pid, whose the lines are."""
        given = self._given.get((pid, owner))
        if given is None:
            given = pid if 0 <= pid < LARGEST else FIRST_SPARE_PID
            while self._owners.setdefault(given, (pid, owner)) != (pid, owner):
                self._spare += 1
                given = self._spare
            self._given[pid, owner] = given
        return given


class ShownProcess(NamedTuple):
    """A process by its pid in the merged trace, and its name there: ``rank 0 · node7``."""

    pid: int
    name: str


def processes_in_order(owners: Owners, shown: Mapping[int, int]) -> list[ShownProcess]:
    """Return the processes in their natural order; `shown` are their pids by number of owner.

    A rank, the workers that it has started, directly or not, the next rank.
    """
    found = {
        owner.number: owner
        for owner in owners.all
        if owner.header.run is not None and owner.header.pid is not None and shown[owner.number]
    }
    ranks = [owner.header.rank for owner in found.values() if owner.header.rank is not None]
    digits = len(str(max(ranks))) if len(set(ranks)) > 1 else 1

    def root_of(owner: Owner) -> Owner:
        seen = {owner.number}
        while (above := owners.employer(owner)) is not None and above.number not in seen:
            if above.number not in found:
                break
            seen.add(above.number)
            owner = above
        return owner

    roots = {owner.number: root_of(owner) for owner in found.values()}

    def place(owner: Owner) -> tuple[bool, int, str, int, int, int, bool, int]:
        root = roots[owner.number]
        rank, host = root.header.rank, root.header.host or ""
        # What no launcher has given a rank comes after the ranks.
        begun = root.run, root.start, root.header.pid or 0
        return (rank is None, rank or 0, host, *begun, owner is not root, owner.header.pid or 0)

    order: list[ShownProcess] = []
    workers: dict[int, int] = {}
    for owner in sorted(found.values(), key=place):
        header, root = owner.header, roots[owner.number]
        title = "python" if header.rank is None else f"rank {header.rank:0{digits}}"
        # Perfetto cannot read a name that ends in a backslash.
        name = f"{title} · {shortened(header.host or '', NAME_LETTERS)}".replace("\\", "_")
        if root.start > 1 or root.run:
            name += f" · start {root.start}" if root.start > 1 else f" · run {root.run + 1}"
        if owner is not root:
            workers[root.number] = workers.get(root.number, 0) + 1
            name += f" · worker {workers[root.number]}"
        order.append(ShownProcess(shown[owner.number], name))
    return order


def order_lines(processes: Sequence[ShownProcess]) -> Iterator[bytes]:
    """Yield lines that bring processes into their order, in viewers that go by them."""
    # Perfetto does from v53 on; before, it puts those with more spans first.
    if len(processes) < 2:
        return
    for place, (pid, name) in enumerate(processes, 1):
        line = {"cat": "dftrace", "pid": pid, "tid": pid, "ph": "M"}
        yield orjson.dumps({"name": "process_name", **line, "args": {"name": name}})
        yield orjson.dumps({"name": "process_sort_index", **line, "args": {"sort_index": place}})
