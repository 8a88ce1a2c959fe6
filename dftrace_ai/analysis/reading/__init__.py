"""Finding, opening and decoding trace files.

One call opens them, whatever their compression, and whether or not they are whole::

    from dftrace_ai.analysis.reading import open_traces

    for trace in open_traces(["out/"]):
        print(trace, trace.end.state, trace.header and trace.header.rank)
"""

from __future__ import annotations

from dftrace_ai.analysis.reading.search import profiles_beside
from dftrace_ai.analysis.reading.trace import Trace
from dftrace_ai.analysis.reading.trace_end import EndState, TraceEnd
from dftrace_ai.analysis.reading.trace_file import Codec, SkippedFile, TraceFile
from dftrace_ai.analysis.reading.trace_set import TraceSet, open_traces
from dftrace_ai.errors import DftraceError

__all__ = [
    "Codec",
    "EndState",
    "SkippedFile",
    "Trace",
    "TraceEnd",
    "TraceFile",
    "TraceSet",
    "open_traces",
    "profiles_beside",
]

# Here, since all that reads passes here first: everything below imports it as if it were there.
try:
    import dftrace_ai._reader  # noqa: F401
except ImportError as error:
    raise DftraceError(
        f"traces are read by dftrace_ai._reader, which cannot be loaded here ({error}); install a "
        "wheel of dftrace-ai made for this Python and machine, or build it where its sources "
        "are: pip install ."
    ) from error
