"""`dftrace view`: traces shown in Perfetto, as one trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.serving import AddressAsJson, Browser, Port, announce
from dftrace_ai.cli.shared_options import Everything, Paths, RanksShown, Recover, Run, not_together
from dftrace_ai.cli.terminal import complain, json_line
from dftrace_ai.errors import TraceError, needs_numpy
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace


def command(
    paths: Paths = None,
    browser: Browser = True,
    once: Annotated[bool, typer.Option("--once", help="End after one fetch of the trace.")] = False,
    online: Annotated[
        bool,
        typer.Option("--online", help="Use ui.perfetto.dev even if the offline UI is installed."),
    ] = False,
    port: Port = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="START[+LENGTH]",
            help="Open at a time (ts) of the trace, such as 12.3s+49ms, with what lies around it.",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Only the steps A up to B, or A alone, by the numbers of dftrace why, with what "
            "lies around them.",
        ),
    ] = None,
    ranks: RanksShown = None,
    everything: Everything = False,
    json: AddressAsJson = False,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Open traces in Perfetto: its offline UI where installed, else ui.perfetto.dev.

    Several files are shown as one trace. Files of a directory that cannot be read are
    skipped with a warning, and the exit status is then 1. The trace is served on
    127.0.0.1 only, under an address that holds a secret made for this call; nothing is
    uploaded.

    Of more than two million events it is what a viewer takes: some ranks whole, of the others
    steps and collectives; --at, --steps and --ranks open another part, --all opens all.
    A track of each rank has its steps by their numbers: with --steps, and of up to
    half a million events. Of several ranks, arrows lead from the last to come into a
    collective to those that waited, and from sends to receives.

    Example: dftrace view out --at 12.3s+49ms --ranks 0,1
    """
    from dftrace_ai.analysis.merging.choice import of_ranks, parsed_ranks
    from dftrace_ai.analysis.merging.gathering import Asked, gathered
    from dftrace_ai.analysis.reading.identity import Owners
    from dftrace_ai.analysis.reading.time_window import parsed_window
    from dftrace_ai.cli.trace_server import TraceServer, offline_ui

    not_together({"--at": at is not None, "--steps": steps is not None})
    chosen = None
    if steps is not None:
        with needs_numpy("--steps"):
            from dftrace_ai.analysis.merging.numbered_steps import parsed_steps
        chosen = parsed_steps(steps)
    asked = Asked(
        ranks=None if ranks is None else parsed_ranks(ranks),
        steps=chosen,
        window=None if at is None else parsed_window(at),
        around=True,
        numbered=True,
        everything=everything,
    )
    reading = Reading(paths, recover=recover, run=run, takes_merged=True)
    with reading.progress():
        found = reading.traces
    for skipped in reading.skipped:
        complain(skipped)
    shown_files = found.files if asked.ranks is None else of_ranks(found.files, asked.ranks)
    for note in Owners(shown_files).told("shown"):
        complain(note)
    with reading.progress("finding steps and who came last"):
        given = gathered(found.files, asked, _profiles_beside)
    for note in given.told:
        complain(note)
    ui = None if online else offline_ui()
    files = given.files
    with TraceServer(given, ui=ui, once=once, port=port, tell=complain) as server:
        told = {"kind": "dftrace view", "address": server.address, "files": len(files)}
        told |= {"skipped": list(map(str, found.skipped))}
        line = json_line(told) if json else ""
        says = f"serving {counted(len(files), 'file')} as one trace; Ctrl+C ends it"
        announce(server.address, server.port, says, line=line, browser=browser)
        if ui is None and not online:
            complain("to view without network: pip install 'dftrace-ai[viewer]'")
        try:
            server.serve()
        except KeyboardInterrupt:
            complain("ended")
    reading.end(failed=bool(reading.skipped))


def _profiles_beside(files: Sequence[Trace]) -> list[Trace]:
    from dftrace_ai.analysis.reading import profiles_beside

    known = {file.path for file in files}
    return [
        profile for path in profiles_beside(known) if path not in known for profile in _opened(path)
    ]


def _opened(path: Path) -> Sequence[Trace]:
    from dftrace_ai.analysis.reading import open_traces

    try:
        return open_traces([path]).files
    except TraceError as error:
        complain(f"skipped: {error}")
        return ()
