"""What PyTorch's flight recorder says of a job that hangs, by the dumps that it leaves.

`read_dumps` reads them, `judge` says who is missing, who called something else, and who waits::

    from dftrace_ai.live.dumps import judge, read_dumps

    found = judge(read_dumps(["fr/"]))
    print(found.kind, found.ranks)
"""

from __future__ import annotations

from dftrace_ai.live.dumps.flight_dumps import Call, Dump, Dumps, read_dumps
from dftrace_ai.live.dumps.judging import Problem, Verdict, judge

__all__ = ["Call", "Dump", "Dumps", "Problem", "Verdict", "judge", "read_dumps"]
