"""`dftrace stuck`: who has been waiting for too long, and for whom."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dftrace_ai.cli.reading import tell_watched, watched_here
from dftrace_ai.cli.shared_options import Json, Run, on_this_machine
from dftrace_ai.cli.terminal import (
    acting_escaped,
    complain,
    console,
    print_all,
    shown_progress,
    write_out,
)
from dftrace_ai.errors import DftraceError
from dftrace_ai.spools.answering import Asking, SilentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.live import Verdict

BAD_INPUT = 2
STUCK = 1
UNHEARD = (
    "a process that has recorded nothing is not seen; it answers dump_signal with its first event"
)


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...",
            callback=on_this_machine,
            help="Directories in which processes write traces, snapshots of other hosts, made "
            "there by `dftrace top --once --json`, and dumps of PyTorch's flight recorder, or "
            "directories with such. Without any: the folders of runs below the current directory.",
        ),
    ] = None,
    idle: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="A thread in a span is stuck when it has recorded nothing for longer than this; "
            "in dumps a call that all ranks are in.",
        ),
    ] = 60.0,
    stacks: Annotated[
        bool,
        typer.Option(
            "--stacks",
            help="Tell where the Python of each thread of these stands: by the last dump, as "
            "`kill -USR2 PID` asks for with dump_signal=SIGUSR2, or by samples of lines_hz.",
        ),
    ] = False,
    json: Json = False,
    run: Run = None,
) -> None:
    """Tell which ranks wait, for how long, and for which one.

    Looks once, at running processes, without their noticing. Ranks in a collective wait
    for those that are elsewhere; the likely cause is marked. Of several runs the newest of those
    that run is judged. Dumps of PyTorch's flight recorder are compared call by call: who is
    missing, or has called something else.

    Example: dftrace stuck out --idle 30

    Exit status: 0 nothing is stuck, 1 something is, or a rank has died while others live,
    2 the call or its input is wrong.
    """
    from dftrace_ai.live import Observer, find_stuck
    from dftrace_ai.live.died import died_in, with_ends
    from dftrace_ai.live.dumps.flight_dumps import dump_files
    from dftrace_ai.live.verdict_words import finding_lines

    which, deep = run or "last", bool(paths)
    try:
        found = paths = paths or watched_here()
        asking: Asking[Any] = Asking(", ".join(map(str, paths)))
        if files := asking.answer(lambda: dump_files(found)):
            _judge_dumps(files, paths, idle, which, deep=deep, as_json=json)
            return
        observer = Observer(paths, run=which, deep=deep)
        seen = observer.look()
        verdict = asking.answer(lambda: with_ends(find_stuck(seen, idle), found, which, deep=deep))
        if stacks:
            from dftrace_ai.live.dumped_stacks import with_stacks

            judged = verdict
            verdict = asking.answer(lambda: with_stacks(judged, seen))
    except SilentError as error:
        typer.echo(f"dftrace: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    except DftraceError as error:
        typer.echo(f"dftrace: {error}", err=True)
        if stacks:
            complain(UNHEARD)
        for line, _ in finding_lines(died_in(paths or (), which, deep=deep)):
            typer.echo(line, err=True)
        raise typer.Exit(BAD_INPUT) from error
    _print(verdict, as_json=json)
    tell_watched(observer)
    if verdict.stuck:
        raise typer.Exit(STUCK)


def _judge_dumps(
    files: list[Path], paths: list[Path], idle: float, run: str, *, deep: bool, as_json: bool
) -> None:
    """Tell what dumps say, and what is known beside them."""
    from dftrace_ai.live.dumps import judge, read_dumps
    from dftrace_ai.live.dumps.beside import own_traces
    from dftrace_ai.live.dumps.words import report_lines, report_of
    from dftrace_ai.live.verdict_words import verdict_lines

    with shown_progress("reading dumps"):
        dumps = read_dumps(files)
    for skipped in dumps.skipped:
        complain(f"not read: {skipped}", loud=True)
    if not dumps.by_rank:
        raise DftraceError("none of the dumps could be read")
    beside = [path for path in paths if path not in files]
    own = own_traces(beside, dumps, idle, run, deep=deep)
    report = report_of(dumps, judge(dumps, own.groups, idle, own.world_size), own)
    if as_json:
        _print_json(report)
    else:
        lines = list(report_lines(report))
        if report.live is not None and report.live.stuck:
            lines += verdict_lines(report.live)
        _print_lines(lines)
    if report.stuck:
        raise typer.Exit(STUCK)


def _print(verdict: Verdict, *, as_json: bool) -> None:
    from dftrace_ai.live.verdict_words import verdict_lines

    if as_json:
        _print_json(verdict)
    else:
        _print_lines(verdict_lines(verdict))


def _print_json(value: object) -> None:
    import orjson

    option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    write_out(acting_escaped(orjson.dumps(value, option=option).decode()))


def _print_lines(lines: Iterable[tuple[str, str]]) -> None:
    from rich.text import Text

    print_all(console(), (Text(line, style, overflow="fold") for line, style in lines))
