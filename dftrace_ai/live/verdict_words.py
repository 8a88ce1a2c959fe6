"""What is said of a verdict, and of processes that could not be looked at, in lines of text."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from dftrace_ai.live.told import SILENT_S
from dftrace_ai.live.wording import age_text, processes_text, ranges_text
from dftrace_ai.trace_format.names_and_phases import without_loop_part
from dftrace_ai.wording import counted, escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.live import Finding, HiddenProcess, JobVerdict, Verdict
    from dftrace_ai.live.model import WaitedFor
    from dftrace_ai.live.told import ToldHost


def verdict_lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Return what to print for a verdict: lines, each with a style."""
    for job in verdict.jobs:
        if len(verdict.jobs) > 1:
            yield f"{_shown(job.name)}:", "bold"
        yield from finding_lines(job.findings)
        yield from ((line, "yellow") for line in waited_lines(job.waited_for))
        if not job.stuck:
            yield _fine(job), "green" if job.alive else "yellow"
    yield from ((line, "") for line in told_lines(verdict.told))
    yield from ((line, "yellow") for line in hidden_lines(verdict.hidden))
    yield from ((line, "bold red") for line in problem_lines(verdict.problems))


def finding_lines(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Return what to print for what was found: lines, each with a style."""
    for group in _groups(findings):
        cause = group[0].cause
        mark = f"  <- likely cause: {cause}" if cause else ""
        yield _shown(_group_in_words(group) + mark), "bold red" if cause else ""
        if stands := _stand(group):
            yield _shown(stands), ""
        yield from ((_shown(line), "dim") for line in _stack_lines(group[0]))


def _stack_lines(one: Finding) -> Iterator[str]:
    """Return the stacks of all threads of a process; of several in one place those of the first."""
    for known in one.stacks:
        name = f" {known.name}" if known.name else ""
        by = f"dumped {age_text(known.ago_s)} ago" if known.by == "dump" else "by samples"
        yield f"  {one.label}, thread {known.thread}{name}, {by}:"
        if known.is_cut:
            yield "    ... deeper, not read"
        yield from (f"    {frame}" for frame in known.stack or ("could not be read",))


def standing_text(one: Finding) -> str:
    """Return where the process of a finding stands, without its name."""
    return _group_in_words([one]).removeprefix(f"{one.label} ")


MOST_WAITED = 4


def waited_lines(waited: Iterable[WaitedFor]) -> Iterator[str]:
    """Return a line for each rank that others waited for, those for which they did longest."""
    many = sorted((one for one in waited if one.is_much), key=lambda one: -one.alone_s)
    for one in many[:MOST_WAITED]:
        words = f"rank {one.rank} is waited for"
        if one.of:
            words += (
                f": {age_text(one.alone_s)} of the last {age_text(one.covered_s)}, last to "
                f"{one.last:,} of {counted(one.of, 'collective')}"
            )
        if one.now:
            words += f"; the others stand in {one.now} for {age_text(one.now_s)}"
        yield _shown(words)
    if len(many) > MOST_WAITED:
        ranks = counted(len(many) - MOST_WAITED, "rank")
        yield f"{ranks} more for which others waited shorter: --json has all"


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that are told in one line, the largest group first, causes last."""
    groups: dict[object, list[Finding]] = {}
    for one in findings:
        where = one.exit_status or one.place
        key = (one.what, one.worker, one.thread, where, one.cause, _is_silent(one))
        if _is_silent(one):
            # A whole host falls silent at once.
            groups.setdefault(key, []).append(one)
            continue
        # What is likely the cause is told by itself, and in full.
        groups.setdefault(
            (*key, id(one)) if one.cause and one.what != "missing" else key, []
        ).append(one)
    return sorted(groups.values(), key=lambda group: (bool(group[0].cause), -len(group)))


def _is_silent(one: Finding) -> bool:
    return one.what == "dead" and one.told_s is not None


def _silence_in_words(group: list[Finding]) -> str:
    who, named = _who(group)
    words = group[0].label if len(group) == 1 else f"{len(group)} {who}"
    hosts = sorted({one.host for one in group if one.host is not None})
    host = f" on {hosts[0]}" if len(hosts) == 1 else ""
    place = f"in {group[0].place}" if group[0].path else "in no span"
    words += f"{host} told nothing for {_ages(group)}, stood {place} then"
    return words if len(group) == 1 else f"{words}: {named}"


def _group_in_words(group: list[Finding]) -> str:
    first = group[0]
    if _is_silent(first):
        return _silence_in_words(group)
    if first.what == "missing":
        ranks = ranges_text(one.rank for one in group if one.rank is not None)
        return f"rank {ranks} has no process" if len(group) == 1 else f"no process of ranks {ranks}"
    place = f"in {first.place}" if first.path else "in no span"
    if first.thread:
        place += f" on thread {first.thread}"
    if len(group) == 1:
        if first.exit_status:
            after = "" if first.step is None else f" after step {first.step:,}"
            return (
                f"{first.label} ended by exit status {first.exit_status}{after}, "
                f"{age_text(first.quiet_s)} ago"
            )
        if first.what == "dead":
            words = f"{first.label} died {place}, last sign of life {age_text(first.quiet_s)} ago"
        elif first.what == "goes on":
            words = f"{first.label} goes on {place}, quiet for {age_text(first.quiet_s)}"
        else:
            words = f"{first.label} {place} for {age_text(first.quiet_s)}"
        if len(first.path) > 1:
            words += f" ({_path(first)})"
        if first.step is not None:
            words += f" step {first.step}"
        return words
    age = _ages(group)
    who, named = _who(group)
    if first.exit_status:
        status = first.exit_status
        return f"{len(group)} {who} ended by exit status {status}, {age} ago: {named}"
    verb = "died " if first.what == "dead" else ""
    ago = f", last sign of life {age} ago" if first.what == "dead" else f" for {age}"
    return f"{len(group)} {who} {verb}{place}{ago}: {named}"


def _ages(group: list[Finding]) -> str:
    return _span_text(one.quiet_s for one in group)


def _span_text(seconds: Iterable[float]) -> str:
    """From the least to the greatest of some lengths of time: ``61 s .. 64 s``."""
    known = sorted(seconds)
    ages = [age_text(known[0]), age_text(known[-1])]
    return ages[0] if ages[0] == ages[1] else " .. ".join(ages)


def _stand(group: list[Finding]) -> str:
    """Where their Python stands, if all of them stand there, and how the kernel has them."""
    first = group[0]
    words = []
    if first.stands_in and all(one.stands_in == first.stands_in for one in group):
        verb = "stood" if first.what == "dead" else "stands"
        least = min(one.stands_s for one in group)
        words.append(f"{verb} in {first.stands_in}, for {age_text(least)}")
    if first.kernel and all(one.kernel == first.kernel for one in group):
        words.append(first.kernel)
    return f"  {'; '.join(words)}" if words else ""


def _who(group: list[Finding]) -> tuple[str, str]:
    if group[0].worker or any(one.rank is None for one in group):
        noun = "workers" if group[0].worker else "processes"
        return noun, ", ".join(str(one.pid) for one in group)
    return "ranks", ranges_text(one.rank for one in group if one.rank is not None)


def _path(one: Finding) -> str:
    """The way to the innermost span, by bare names."""
    names = [span.partition(".")[2] or span for span in one.path]
    return " > ".join(map(without_loop_part, names))


def _fine(job: JobVerdict) -> str:
    silent = sum(_is_silent(one) for one in job.findings)
    if silent and silent == job.processes:
        return (
            f"nothing is stuck, as far as is known: {processes_text(silent)} told nothing for so "
            f"long that nobody knows whether {'it lives' if silent == 1 else 'they live'}"
        )
    if not job.alive:
        return (
            f"nothing is stuck, since nothing lives: {processes_text(job.processes)} died; "
            "`dftrace recover` finishes the traces"
        )
    quiet = f"quiet for longer than {age_text(job.quietest_s)}" if job.quietest_s else "is open"
    return f"nothing is stuck: {processes_text(job.alive)}, no span {quiet}"


WHY_OLD: Final = "who tells nothing any more has died, or its disk is full, read-only or away"

# Of so many hosts each has a line.
MOST_HOSTS: Final = 8


def told_lines(told: Iterable[ToldHost]) -> Iterator[str]:
    """Return a line for each host whose processes are known by what they have written.

    Of many hosts those have one that wrote longest ago, and the others one together.
    """
    hosts = list(told)
    oldest = heapq.nlargest(MOST_HOSTS, hosts, key=lambda one: one.oldest_s)
    shown = [one for one in hosts if one in oldest]
    for one in shown:
        age = _span_text((one.newest_s, one.oldest_s))
        where = f"on host {_shown(one.host)}"
        why = f"; {WHY_OLD}" if one.oldest_s > SILENT_S else ""
        yield f"{_by_files(one.processes, one.ranks)}: {where}, {age} ago{why}"
    others = [one for one in hosts if one not in oldest]
    if others:
        ranks = sorted({rank for one in others for rank in one.ranks})
        newest_s = min(one.newest_s for one in others)
        age = _span_text((newest_s, max(one.oldest_s for one in others)))
        where = f"on {counted(len(others), 'more host')}, {age} ago"
        rule = "shown are those that told longest ago; --json has all"
        yield f"{_by_files(sum(one.processes for one in others), ranks)}: {where}; {rule}"


def _by_files(processes: int, ranks: Sequence[int]) -> str:
    return f"by files beside the traces: {processes_text(processes)}{_ranks_named(ranks)}"


def _ranks_named(ranks: Sequence[int]) -> str:
    return f" of rank{'s' if len(ranks) > 1 else ''} {ranges_text(ranks)}" if ranks else ""


MOST_PROBLEMS = 5


def hidden_lines(hidden: Iterable[HiddenProcess]) -> Iterator[str]:
    """Return a line for each host whose processes cannot be seen from here."""
    hosts: dict[str, list[HiddenProcess]] = {}
    for process in hidden:
        hosts.setdefault(process.host, []).append(process)
    most = sorted(hosts, key=lambda host: -len(hosts[host]))[:MOST_HOSTS]
    for host in sorted(most):
        yield f"{_not_visible(hosts[host])}: run on host {_shown(host)}"
    others = [process for host in hosts if host not in most for process in hosts[host]]
    if others:
        where = f"run on {counted(len(hosts) - len(most), 'more host')}"
        yield f"{_not_visible(others)}: {where}; shown are those with most; --json has all"


def _not_visible(processes: Sequence[HiddenProcess]) -> str:
    ranks = sorted(process.rank for process in processes if process.rank is not None)
    return f"not visible from here: {processes_text(len(processes))}{_ranks_named(ranks)}"


def problem_lines(problems: Iterable[str]) -> Iterator[str]:
    """Return a line for each spool that could not be read, the first few of them."""
    lines = list(problems)
    for problem in lines[:MOST_PROBLEMS]:
        yield f"not read: {_shown(problem)}"
    if len(lines) > MOST_PROBLEMS:
        yield f"not read: {len(lines) - MOST_PROBLEMS:,} more, which --json has"


def _shown(text: str) -> str:
    return escaped(shortened(text, 2000))
