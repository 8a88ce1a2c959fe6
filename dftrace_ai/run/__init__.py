"""A run of this process: how it begins, what it is told, who holds it, how it ends."""

from __future__ import annotations

from dftrace_ai.run import ending, system_counters  # noqa: F401 - register themselves
from dftrace_ai.run.beginning import join_run_of_parent

# A process that a traced one started goes on with its run.
join_run_of_parent()
