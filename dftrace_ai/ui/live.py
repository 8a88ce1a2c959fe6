"""A running job as `dftrace top` and `dftrace stuck` see it, for the page of its run.

Loaded late: who looks at runs that have ended needs none of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.errors import DftraceError
from dftrace_ai.live import Observer, find_stuck
from dftrace_ai.live.model import NS
from dftrace_ai.live.stuck import Waiting, waiting_of
from dftrace_ai.live.verdict_words import finding_lines

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.live import RankStatus
    from dftrace_ai.ui.answers import LiveAnswer, LiveRank

IDLE_S: Final = 60.0
MOST_OBSERVERS: Final = 20
# Ranks that wait, of all: from so many on those that do not are waited for.
WAITING_SHARE: Final = 0.5


class Observers:
    """Looks at the jobs that somebody looks at; rates are between two looks."""

    def __init__(self) -> None:
        self._of: dict[Path, Observer] = {}

    def look(self, folder: Path) -> LiveAnswer:
        """Return what the processes that write into a folder are doing now."""
        observer = self._of.pop(folder, None) or Observer([folder])
        self._of[folder] = observer  # the latest at the end
        for old in list(self._of)[:-MOST_OBSERVERS]:
            self._of.pop(old, None)
        try:
            seen = observer.look()
        except DftraceError as error:
            return _over(str(error))
        verdict = find_stuck(seen, IDLE_S)
        ranks = [process for process in seen.processes if not process.worker]
        ranks.sort(key=lambda one: (one.rank is None, one.rank or 0, one.host, one.pid))
        lines = [line for job in verdict.jobs for line, _ in finding_lines(job.findings)]
        return {
            "over": None,
            "taken_s": seen.taken_ns / NS,
            "ranks": list(map(_live_rank, ranks)),
            "hidden": len(seen.hidden),
            "waited_for": _waited_for(ranks),
            "waited": [
                {"rank": one.rank, "share": one.share, "covered_s": one.covered_s}
                for one in seen.waited_for
                if one.is_much
            ],
            "stuck": json.loads(json.dumps(asdict(verdict))),
            "stuck_lines": lines,
        }


def _over(why: str) -> LiveAnswer:
    return {
        "over": why, "taken_s": 0.0, "ranks": [], "hidden": 0, "waited_for": [], "waited": [],
        "stuck": None, "stuck_lines": [],
    }  # fmt: skip


def _live_rank(process: RankStatus) -> LiveRank:
    main = process.main
    silent = process.state == "dead" and process.told_s is not None
    place = main.place[-1] if main and main.place else None
    return {
        "rank": process.rank, "pid": process.pid, "host": process.host,
        "state": "silent" if silent else process.state,
        "step": process.step, "epoch": process.epoch,
        "quiet_s": round(process.quiet_s(main), 3) if main else None,
        "where": place.label if place else None,
        "since_s": max(0.0, (process.seen_ns - place.start_ns) / NS) if place else None,
        "self_s": dict(main.self_s) if main else {}, "covered_s": main.covered_s if main else 0.0,
        "events_per_s": process.events_per_s, "dropped": process.dropped,
        "told_s": process.told_s,
    }  # fmt: skip


def _waited_for(ranks: list[RankStatus]) -> list[int]:
    """Return which ranks the others wait for in this look, where at least half of all wait."""
    alive = [one for one in ranks if one.state == "alive" and one.rank is not None]
    waiting = [one for one in alive if waiting_of(one) is Waiting.SURELY]
    if len(alive) < 2 or len(waiting) < WAITING_SHARE * len(alive):
        return []
    return [one.rank for one in alive if one not in waiting and one.rank is not None]
