"""What the native core reads in a spool, turned into what is known of its process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from dftrace_ai.live.model import NS, OpenSpanStatus, RankStatus, ThreadStatus
from dftrace_ai.live.saved import plain
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.trace_format.names_and_phases import own_category

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.spools.outcome_types import SpanLook, SpanNames, SpoolLook, ThreadLook
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["LEAST_RATE_S", "path_as_text", "rank_status"]

# A rate over less than this says nothing.
LEAST_RATE_S = 0.01

UNKNOWN = "?"


def rank_status(look: SpoolLook, spool: str) -> RankStatus:
    """Return what is known of a process.

    Args:
        look: what its spool holds.
        spool: path of that.
    """
    header = HeaderFacts.of(_members(look["header"]))
    threads = [_thread_status(thread) for thread in look["threads"]]
    threads.sort(key=lambda thread: (thread.tid != look["pid"], thread.tid))
    error = look["write_error"]
    return RankStatus(
        pid=look["pid"],
        parent_pid=look["parent_pid"],
        host=look["host"],
        run=look["run"],
        rank=header.rank,
        world_size=header.world_size,
        worker=False,
        state="dead" if look["state"] == "dead" else "alive",
        seen_ns=look["now_ns"],
        present_ns=look["present_ns"],
        started_ns=look["started_ns"] or None,
        prefix=path_as_text(look["prefix"]),
        trace=path_as_text(look["trace_path"]),
        spool=path_as_text(spool),
        spool_bytes=look["spool_bytes"],
        dropped=look["dropped"],
        waits=look["waits"],
        overwritten=look["overwritten"],
        write_error=os.strerror(error) if error else "",
        drain_cpu_us=look["drain_cpu_us"],
        flight_recorder=look["flight_recorder"],
        epoch=_newest(look, "epoch"),
        step=_newest(look, "step"),
        events_per_s=_rate(threads),
        threads=threads,
    )


def _rate(threads: Sequence[ThreadStatus]) -> float | None:
    """Events a second of all threads; None where one is too fast to be seen for long enough."""
    seen = [thread for thread in threads if thread.covered_s >= LEAST_RATE_S]
    too_fast = any(
        thread.records and not thread.ended and thread.covered_s < LEAST_RATE_S
        for thread in threads
    )
    if not seen or too_fast:
        return None
    return sum(thread.events / thread.covered_s for thread in seen)


def _thread_status(look: ThreadLook) -> ThreadStatus:
    return ThreadStatus(
        tid=look["tid"],
        name=look["name"],
        ended=look["ended"],
        records=look["records"],
        depth=look["depth"],
        open=[_span_status(span) for span in look["open"]],
        tasks=[_span_status(span) for span in look["tasks"]],
        last_ns=look["last_ns"],
        events=look["events"],
        covered_s=look["covered_ns"] / NS,
        self_s=_by_category(look["self_ns"]),
    )


def _by_category(times: list[tuple[SpanNames | None, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for names, ns in times:
        category = own_category(*(names or (UNKNOWN, UNKNOWN)))
        if category is not None:
            found[category] = found.get(category, 0.0) + ns / NS
    return found


def _span_status(look: SpanLook) -> OpenSpanStatus:
    name, cat = look["name"] or (UNKNOWN, UNKNOWN)
    return OpenSpanStatus(
        id=look["id"],
        parent=look["parent"],
        name=name,
        cat=cat,
        start_ns=look["start_ns"],
        level=look["level"],
        args=_members(look["args"]),
    )


def _members(text: str) -> JsonObject:
    """Read members of an object, each with a comma in front."""
    try:
        found = json.loads(f"{{{text[1:]}}}")
    except (ValueError, RecursionError):  # a number of thousands of digits is one for Python, too
        return {}
    result: JsonObject = plain(found)
    return result


def path_as_text(path: str) -> str:
    """Return a path as text that JSON can carry."""
    return os.fsencode(path).decode("utf-8", "replace")


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(2**63) <= value < 2**63 else None  # type: ignore[operator,return-value]


def _newest(look: SpoolLook, key: str) -> int | None:
    """The value that an argument had last: in the main thread, or else in any."""

    def values(thread: ThreadLook) -> Iterator[tuple[int, int]]:
        for span in (*thread["open"], *thread["tasks"]):
            value = _whole(_members(span["args"]).get(key))
            if value is not None:
                yield span["start_ns"], value
        for moment, args in thread["newest_args"]:
            value = _whole(_members(args).get(key))
            if value is not None:
                yield moment, value

    main = [thread for thread in look["threads"] if thread["tid"] == look["pid"]]
    for threads in (main, look["threads"]):
        found = [one for thread in threads for one in values(thread)]
        if found:
            return max(found)[1]
    return None
