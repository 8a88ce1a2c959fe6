"""What is said of processes that could not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.live import HiddenProcess

__all__ = ["hidden_lines", "problem_lines"]

MOST_PROBLEMS = 5


def hidden_lines(hidden: Iterable[HiddenProcess]) -> Iterator[str]:
    """Return a line for each host whose processes cannot be seen from here."""
    from dftrace_ai.cli.terminal import shown
    from dftrace_ai.live.wording import processes_text, ranges_text

    hosts: dict[str, list[HiddenProcess]] = {}
    for process in hidden:
        hosts.setdefault(process.host, []).append(process)
    for host, processes in sorted(hosts.items()):
        ranks = [process.rank for process in processes if process.rank is not None]
        named = f" of rank{'s' if len(ranks) > 1 else ''} {ranges_text(ranks)}" if ranks else ""
        count = processes_text(len(processes))
        yield f"not visible from here: {count}{named}: run on host {shown(host)}"


def problem_lines(problems: Iterable[str]) -> Iterator[str]:
    """Return a line for each spool that could not be read, the first few of them."""
    from dftrace_ai.cli.terminal import shown

    lines = list(problems)
    for problem in lines[:MOST_PROBLEMS]:
        yield f"not read: {shown(problem)}"
    if len(lines) > MOST_PROBLEMS:
        yield f"not read: {len(lines) - MOST_PROBLEMS:,} more"
