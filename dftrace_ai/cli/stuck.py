"""`dftrace stuck`: who has been waiting for too long, and for whom."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.live import Finding, JobVerdict, Verdict

__all__ = ["Command", "command", "verdict_lines"]

BAD_INPUT = 1
STUCK = 2

CLICK_USAGE_ERROR = 2


class Command(TyperCommand):
    """A command that ends with 1 when it is called wrongly: 2 means that something is stuck."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the words of the command line."""
        try:
            return super().make_context(*args, **extra)
        except Exception as error:
            # A usage error of click, which newer versions of typer carry inside of themselves.
            if getattr(error, "exit_code", 0) == CLICK_USAGE_ERROR:
                error.exit_code = BAD_INPUT  # type: ignore[attr-defined]
            raise


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...",
            help="Directories in which processes write traces, and snapshots of other hosts, "
            "made there by `dftrace top --once --json`.",
        ),
    ],
    limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="A thread in a span is stuck when it has recorded nothing for longer than this.",
        ),
    ] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Tell which ranks wait, for how long, and for which one.

    Looks once, at running processes, without their noticing. Ranks in a collective wait
    for those that are elsewhere; the likely cause is marked.

    Exit status: 0 nothing is stuck, 1 the call or its input is wrong, 2 something is
    stuck, or a rank has died while others live.
    """
    from dftrace_ai.live import find_stuck, snapshot

    try:
        verdict = find_stuck(snapshot(paths), limit)
    except DftraceError as error:
        typer.echo(f"dftrace: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    try:
        _print(verdict, as_json=json)
    except OSError as error:
        typer.echo(f"dftrace: the output cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BAD_INPUT) from error
    if verdict.stuck:
        raise typer.Exit(STUCK)


def _print(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        import orjson

        from dftrace_ai.cli.output import write_out

        option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        write_out(orjson.dumps(verdict, option=option).decode())
        return
    from rich.text import Text

    from dftrace_ai.cli.output import print_all
    from dftrace_ai.cli.terminal import console

    lines = verdict_lines(verdict)
    print_all(console(), (Text(line, style, overflow="fold") for line, style in lines))


def verdict_lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Return what to print for a verdict: lines, each with a style."""
    from dftrace_ai.cli.live_view.unseen import hidden_lines, problem_lines
    from dftrace_ai.cli.terminal import shown

    for job in verdict.jobs:
        if len(verdict.jobs) > 1:
            yield f"{shown(job.name)}:", "bold"
        groups = _groups(job)
        for group in groups:
            cause = group[0].cause
            mark = f"  <- likely cause: {cause}" if cause else ""
            yield shown(_told(group) + mark), "bold red" if cause else ""
        if not job.stuck:
            yield _fine(job), "green" if job.alive else "yellow"
    yield from ((line, "yellow") for line in hidden_lines(verdict.hidden))
    yield from ((line, "bold red") for line in problem_lines(verdict.problems))


def _groups(job: JobVerdict) -> list[list[Finding]]:
    """Findings that are told in one line, the largest group first, causes last."""
    groups: dict[object, list[Finding]] = {}
    for one in job.findings:
        key = (one.what, one.worker, one.thread, one.place, one.cause)
        # What is likely the cause is told by itself, and in full.
        groups.setdefault(
            (*key, id(one)) if one.cause and one.what != "missing" else key, []
        ).append(one)
    return sorted(groups.values(), key=lambda group: (bool(group[0].cause), -len(group)))


def _told(group: list[Finding]) -> str:
    from dftrace_ai.live.wording import age_text, ranges_text

    first = group[0]
    if first.what == "missing":
        ranks = ranges_text(one.rank for one in group if one.rank is not None)
        return f"rank {ranks} has no process" if len(group) == 1 else f"no process of ranks {ranks}"
    place = f"in {first.place}" if first.path else "in no span"
    if first.thread:
        place += f" on thread {first.thread}"
    if len(group) == 1:
        if first.what == "dead":
            told = f"{first.label} died {place}, last sign of life {age_text(first.quiet_s)} ago"
        elif first.what == "goes on":
            told = f"{first.label} goes on {place}, quiet for {age_text(first.quiet_s)}"
        else:
            told = f"{first.label} {place} for {age_text(first.quiet_s)}"
        if len(first.path) > 1:
            told += f" ({_path(first)})"
        if first.step is not None:
            told += f" step {first.step}"
        return told
    least, most = min(one.quiet_s for one in group), max(one.quiet_s for one in group)
    ages = [age_text(least), age_text(most)]
    age = ages[0] if ages[0] == ages[1] else " .. ".join(ages)
    who, named = _who(group)
    verb = "died " if first.what == "dead" else ""
    ago = f", last sign of life {age} ago" if first.what == "dead" else f" for {age}"
    return f"{len(group)} {who} {verb}{place}{ago}: {named}"


def _who(group: list[Finding]) -> tuple[str, str]:
    from dftrace_ai.live.wording import ranges_text

    if group[0].worker or any(one.rank is None for one in group):
        noun = "workers" if group[0].worker else "processes"
        return noun, ", ".join(str(one.pid) for one in group)
    return "ranks", ranges_text(one.rank for one in group if one.rank is not None)


def _path(one: Finding) -> str:
    """The way to the innermost span, by bare names."""
    from dftrace_ai.trace_format.vocabulary import without_loop_part

    names = [span.partition(".")[2] or span for span in one.path]
    return " > ".join(map(without_loop_part, names))


def _fine(job: JobVerdict) -> str:
    from dftrace_ai.live.wording import age_text, processes_text

    if not job.alive:
        return (
            f"nothing is stuck, since nothing lives: {processes_text(job.processes)} died; "
            "`dftrace recover` finishes the traces"
        )
    quiet = f"quiet for longer than {age_text(job.quietest_s)}" if job.quietest_s else "is open"
    return f"nothing is stuck: {processes_text(job.alive)}, no span {quiet}"
