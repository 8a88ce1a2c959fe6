"""How the processes of a job are called and in which order: a rank, its workers, the next rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

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


_Key: TypeAlias = "tuple[str | None, str | None, int]"


def processes_in_order(found: Iterable[tuple[HeaderFacts, int]]) -> list[ShownProcess]:
    """Return the processes of files in their natural order.

    A worker is a process that another one of them has started, directly or not.

    Args:
        found: of each file that names a process the header, and the number by which it is shown;
            the same for parts of one trace.

    Example::

        processes_in_order([(trace.header, trace.header.pid) for trace in open_traces(["out/"])])
    """
    shown: dict[_Key, int] = {}
    headers: dict[_Key, HeaderFacts] = {}
    for header, pid in found:
        if header.run is not None and header.pid is not None and pid:
            key: _Key = (header.run, header.hhash or header.host, header.pid)
            shown.setdefault(key, pid)
            headers.setdefault(key, header)
    ranks = [header.rank for header in headers.values() if header.rank is not None]
    digits = len(str(max(ranks))) if len(set(ranks)) > 1 else 1

    def employer(key: _Key) -> _Key:
        seen = {key}
        while (above := (*key[:2], headers[key].ppid or 0)) in headers and above not in seen:
            seen.add(above)
            key = above
        return key

    def place(key: _Key) -> tuple[bool, int, str, str, int, bool, int]:
        root = employer(key)
        rank, host, run = headers[root].rank, headers[root].host or "", headers[root].run or ""
        # What no launcher has given a rank comes after the ranks.
        return (rank is None, rank or 0, host, run, root[2], key != root, key[2])

    order: list[ShownProcess] = []
    workers: dict[_Key, int] = {}
    for key in sorted(headers, key=place):
        header, root = headers[key], employer(key)
        title = "python" if header.rank is None else f"rank {header.rank:0{digits}}"
        # Perfetto cannot read a name that ends in a backslash.
        name = f"{title} · {shortened(header.host or '', NAME_LETTERS)}".replace("\\", "_")
        if key != root:
            workers[root] = workers.get(root, 0) + 1
            name += f" · worker {workers[root]}"
        order.append(ShownProcess(shown[key], name))
    return order
