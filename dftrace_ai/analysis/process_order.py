"""How the processes of a job are called and in which order: a rank, its workers, the next rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.identity import Owner, Owners

__all__ = ["ShownProcess", "processes_in_order"]

NAME_LETTERS: Final = 200


class ShownProcess(NamedTuple):
    """A process as a viewer shows it.

    Attributes:
        pid: by which the lines of the merged trace know it.
        name: what it is called there: ``rank 0 · node7``, ``rank 0 · node7 · worker 2``.
    """

    pid: int
    name: str


def processes_in_order(owners: Owners, shown: Mapping[int, int]) -> list[ShownProcess]:
    """Return the processes of files in their natural order.

    A worker is a process that another one of them has started, directly or not.

    Args:
        owners: whose the files are.
        shown: the number by which a process is shown, by its number among the owners.

    Example::

        owners = Owners(open_traces(["out/"]))
        processes_in_order(owners, {owner.number: owner.header.pid for owner in owners.all})
    """
    found = {
        owner.number: owner
        for owner in owners.all
        if owner.header.run is not None and owner.header.pid is not None and shown[owner.number]
    }
    ranks = [owner.header.rank for owner in found.values() if owner.header.rank is not None]
    digits = len(str(max(ranks))) if len(set(ranks)) > 1 else 1

    def employer(owner: Owner) -> Owner:
        seen = {owner.number}
        while (above := owners.parent(owner)) is not None and above.number not in seen:
            if above.number not in found:
                break
            seen.add(above.number)
            owner = above
        return owner

    roots = {owner.number: employer(owner) for owner in found.values()}

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
