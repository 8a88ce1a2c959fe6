"""The names of the files of a run: traces and their parts, markers beside them, spools."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SUFFIX_OF: Final = {"none": ".pfw", "gzip": ".pfw.gz", "zstd": ".pfw.zst"}
"""How the name of a trace ends, by the setting ``compression``."""

TRACE_SUFFIXES: Final = tuple(SUFFIX_OF.values())

PROFILE_SUFFIXES: Final = (".pt.trace.json", ".pt.trace.json.gz")
"""How the names of traces end that torch.profiler's handler for TensorBoard writes."""

PROFILE_OF_TRACE: Final = ".profile-"
"""What stands between the name of a trace and the number of a profile of the same process."""

MARKER_SUFFIX: Final = ".spool-at"
"""How the name of the file ends that names the spool, beside the trace."""

LIVE_SUFFIX: Final = ".live"
"""How the name of the file ends that tells other hosts what is open, beside the marker."""

INDEX_FILE_SUFFIX: Final = ".dfindex"
"""How the name of the file ends that holds what traces add up to, beside them."""

RANK_FILE_SUFFIX: Final = ".dfrank"
"""How the name of the file ends that holds what a rank says for the whole job, beside its trace."""

SPOOL_PREFIX: Final = "dftrace-"
SPOOL_SUFFIX: Final = ".spool"

# Spools are named by the beginning of the run.
RUN_DIGITS = 16

_BESIDE: Final = (MARKER_SUFFIX, LIVE_SUFFIX, INDEX_FILE_SUFFIX, RANK_FILE_SUFFIX)

# Compiled when first searched for: every run begins with this module, and few read names by it.
_PART = r"\.part(\d{1,9})$"

# As torch.profiler's handler for TensorBoard has it: the worker, and when it had recorded.
_WORKER = r"(.+?)\.(\d{1,20})\.pt\.trace\.json"

# Number and start of the process in the name of its spool.
_SPOOL_PROCESS = r"-(\d{1,9})-(\d{1,19})-\d+\.spool$"


class TraceName(NamedTuple):
    """The name of a trace file, taken apart."""

    base: str
    """Stem, host and process; the same in all parts, and in the marker."""
    part: int
    """Number among the parts of a trace; 0 for the first."""
    suffix: str
    """How it is compressed, as the name has it."""


class SpoolProcess(NamedTuple):
    """The process that made a spool, as the spool's name tells it."""

    pid: int
    start: int
    """When it began, in ticks since the machine did."""


def is_trace(name: str) -> bool:
    """Return whether a file is called as traces are."""
    return name.endswith(TRACE_SUFFIXES)


def is_spool(name: str) -> bool:
    """Return whether a file is called as spools are."""
    return name.startswith(SPOOL_PREFIX) and name.endswith(SPOOL_SUFFIX)


def is_beside_traces(name: str) -> bool:
    """Return whether a file is called as what lies beside traces and is none, whoever reads it."""
    return name.endswith(_BESIDE) or is_spool(name)


def is_of_a_run(name: str) -> bool:
    """Return whether a file is called as what runs leave: a trace, a marker or a spool."""
    return name.endswith((MARKER_SUFFIX, SPOOL_SUFFIX, *TRACE_SUFFIXES))


def is_recorded(name: str) -> bool:
    """Return whether a trace is called as by the recorder, and not by who has converted it."""
    named = trace_name(name)
    return named is not None and re.search(r"-\d{1,9}$", named.base, re.ASCII) is not None


def without_suffix(name: str) -> str:
    """Return the name of a trace without its suffix; any other name or path as it is."""
    for suffix in TRACE_SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def trace_name(name: str) -> TraceName | None:
    """Return the name of a trace taken apart; None for a file that is called otherwise."""
    if not is_trace(name):
        return None
    base = without_suffix(name)
    part = re.search(_PART, base, re.ASCII)
    suffix = name.removeprefix(base)
    return (
        TraceName(base[: part.start()], int(part[1]), suffix)
        if part
        else TraceName(base, 0, suffix)
    )


def profile_name(trace: str, number: int) -> str:
    """Return the name of a profile that lies beside a trace, with which it is shown.

    `number`: of the profile, from 0.
    """
    taken_apart = trace_name(trace)
    base = taken_apart.base if taken_apart else trace
    return f"{base}{PROFILE_OF_TRACE}{number}{PROFILE_SUFFIXES[1]}"


def trace_of_profile(name: str) -> str:
    """Return the base of the trace beside which a profile lies; empty for any other file."""
    base, mark, _ = name.partition(PROFILE_OF_TRACE)
    return base if mark and name.endswith(PROFILE_SUFFIXES) else ""


def worker_of_profile(name: str) -> str:
    """Return what has recorded a profile, by its name; empty where that does not say it."""
    if not name.endswith(PROFILE_SUFFIXES):
        return ""
    found = re.match(_WORKER, name, re.ASCII)
    return found[1] if found else trace_of_profile(name)


def marker_base(marker: str) -> str:
    """Return the name of a marker without its suffix: that of the traces beside it."""
    return marker.removesuffix(MARKER_SUFFIX)


def spool_prefix(run: str | None) -> str:
    """Return how the names of the spools of a run begin, of any run for None."""
    return SPOOL_PREFIX if run is None else f"{SPOOL_PREFIX}{run[:RUN_DIGITS]}-"


def run_of_spool(name: str) -> str:
    """Return the first 16 hexadecimal digits of the run from the name of a spool."""
    return name.removeprefix(SPOOL_PREFIX).partition("-")[0]


def process_of_spool(name: str) -> SpoolProcess | None:
    """Return which process made a spool, by its name or path; None where it does not say."""
    found = re.search(_SPOOL_PROCESS, name, re.ASCII)
    return SpoolProcess(int(found[1]), int(found[2])) if found else None
