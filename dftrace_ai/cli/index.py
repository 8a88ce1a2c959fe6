"""`dftrace index`: index files beside traces, for summaries that need not read them again."""

from __future__ import annotations

from collections import defaultdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.readers import Readers, with_readers
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import Paths, Recover, Run, json_option
from dftrace_ai.cli.terminal import complain, shown, write_json
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading import TraceSet

LEFT_OUT = 1
UNWRITABLE = "cannot be written: "


@with_readers(bytes_a_second=55e6)
def command(
    paths: Paths = None,
    json: Annotated[bool, json_option("Print JSON instead of lines.")] = False,
    run: Run = None,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Make index files beside traces that have none, for a summary without reading them.

    Example: dftrace index out

    For traces of other programs, packed in any way, for those that were cut or
    recovered, and for small ones: what else the recorder writes has its index in
    it. The traces stay as they are. An index is used by summary while its traces do
    not change, and made again by this command when they have. Of jobs with several
    ranks it keeps what each says for dftrace ranks, too. Exit status: 0 done,
    1 when a trace or rank was left out, as where nothing may be written beside it, 2 when
    the call is wrong or nothing can be read.
    """
    from dftrace_ai.analysis.summary.indexing import IndexReport, index_traces

    chosen = run or ("all" if paths else "last")
    reading = Reading(paths, recover=recover, run=chosen, readers=readers)
    with reading.progress(), readers:
        spread = readers.of(reading.traces)
        found = index_traces(reading.traces, spread)
        made, not_kept = _kept_of_ranks(reading.traces, spread)
    if json:
        write_json(IndexReport(tuple(found), made, not_kept))
    not_indexed: list[tuple[str, str]] = []
    for process in found:
        if process.state == "left out":
            not_indexed.append((process.path, process.reason or ""))
        elif not json:
            size = f" ({counted(process.lines, 'line')})" if process.lines else ""
            typer.echo(f"{process.state}: {shown(process.path)}{size}")
    if made and not json:
        typer.echo(f"made: {counted(made, 'file')} of what ranks say, for dftrace ranks")
    _tell("not indexed", not_indexed)
    parts = (reason.partition(": ") for reason in not_kept)
    _tell("not kept for dftrace ranks", [(path, why) for path, _, why in parts])
    for told in () if spread is None else spread.left_out:
        complain(told)
    if readers.left_out or not_kept or any(process.state == "left out" for process in found):
        raise typer.Exit(LEFT_OUT)


def _tell(what: str, left_out: Sequence[tuple[str, str]]) -> None:
    """Say of files why it was not: a thousand that may not be written take one line."""
    alike: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, why in left_out:
        at = why.find(UNWRITABLE)
        alike[f"{path}: {why}" if at < 0 else why[at:]].append((path, why))
    for why, some in alike.items():
        path, whole = some[0]
        more = f" and {counted(len(some) - 1, 'more file')}" if len(some) > 1 else ""
        complain(f"{what}: {path}{more}: {why if more else whole}")


def _kept_of_ranks(traces: TraceSet, spread: Spread | None) -> tuple[int, tuple[str, ...]]:
    """Keep what ranks say, where there are several and what it takes is installed."""
    ranks = {owner.header.rank for owner in traces.owners.all} - {None}
    if len(ranks) < 2 or find_spec("numpy") is None:
        return 0, ()
    from dftrace_ai.analysis.ranks.job import keep_ranks

    return keep_ranks(traces, spread)
