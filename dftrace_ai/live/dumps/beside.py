"""What our own spools and traces say beside dumps: where ranks stand, who is in which group."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from dftrace_ai.errors import TraceError
from dftrace_ai.live.died import died_in
from dftrace_ai.live.observer import Observer
from dftrace_ai.live.stuck import Finding, Verdict, find_stuck, finding_of

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.live.dumps.flight_dumps import Dumps

# Groups are told when they are met, and again at the beginning of each part of a trace.
_MOST_LINES: Final = 200_000


@dataclass(frozen=True)
class OwnTraces:
    """What is known of the ranks beside their dumps."""

    standing: dict[int, Finding]  # where each rank stands, or stood when it died, by its rank
    groups: dict[str, list[frozenset[int]]]  # the ranks of process groups by their names
    verdict: Verdict | None  # that of the processes whose spools are there; None without any
    # Number of ranks of the job; None where it is not told, or not by all the same.
    world_size: int | None


def own_traces(
    paths: list[Path], dumps: Dumps, idle_s: float, run: str = "last", *, deep: bool = True
) -> OwnTraces:
    """Look at what lies beside dumps: spools, and traces for groups where the dumps lack ranks.

    `paths` are without the dumps, `idle_s` is the quiet from which on a thread counts as stuck, and
    `run` and `deep` are as for `Observer`. Nothing is known where there is neither a spool nor a
    trace.
    """
    standing: dict[int, Finding] = {}
    verdict = None
    sizes: set[int | None] = set()
    try:
        seen = Observer(paths, run=run, deep=deep).look()
    except TraceError:
        pass  # nothing runs there: the traces may tell
    else:
        verdict = find_stuck(seen, idle_s)
        sizes = {process.world_size for process in seen.processes}
        for process in seen.processes:
            if process.rank is not None and not process.worker:
                standing[process.rank] = finding_of(
                    "stuck" if process.state == "alive" else "dead", process, process.main
                )
    traced = [path for path in paths if _has_traces(path, deep)]
    if traced and not dumps.by_rank.keys() <= standing.keys():
        for finding in died_in(traced, run, deep=deep):
            if finding.rank is not None:
                standing.setdefault(finding.rank, finding)
    groups: dict[str, list[frozenset[int]]] = {}
    if traced and _lack_ranks(dumps):
        groups, told = _groups_in(traced, run, deep)
        sizes |= told
    sizes.discard(None)
    return OwnTraces(standing, groups, verdict, sizes.pop() if len(sizes) == 1 else None)


def _has_traces(path: Path, deep: bool) -> bool:
    """Whether there are any: a directory of dumps has none, and a file may be a snapshot."""
    from dftrace_ai.analysis.reading.search import search_traces

    try:
        return bool(search_traces([path], deep=deep).files)
    except TraceError:
        return False


def _lack_ranks(dumps: Dumps) -> bool:
    return any(
        call.group not in dump.ranks for dump in dumps.by_rank.values() for call in dump.calls
    )


def _groups_in(
    paths: list[Path], run: str, deep: bool
) -> tuple[dict[str, list[frozenset[int]]], set[int | None]]:
    """The ranks of groups by their names, and the numbers of ranks that the traces tell."""
    from dftrace_ai.analysis.reading.trace_set import of_one_run, open_folders, open_traces

    found: dict[str, list[frozenset[int]]] = defaultdict(list)
    try:
        found_there = open_traces(paths) if deep else open_folders(paths)
        traces = list(of_one_run(found_there, run))
    except TraceError:
        return {}, set()
    for trace in traces:
        for _, line in islice(trace.lines(), _MOST_LINES):
            if b'"process_group"' not in line:
                continue
            try:
                told = json.loads(json.loads(line)["args"]["value"])
                name, ranks = str(told["name"]), frozenset(map(int, told["ranks"]))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # a line of somebody else's, or a group whose ranks nobody knew
            if ranks and ranks not in found[name]:
                found[name].append(ranks)
    sizes = {trace.header.world_size for trace in traces if trace.header is not None}
    return dict(found), sizes
