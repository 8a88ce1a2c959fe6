"""`dftrace ui`: one page over all runs below a directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.serving import AddressAsJson, Browser, Port, announce
from dftrace_ai.cli.shared_options import on_this_machine
from dftrace_ai.cli.terminal import complain, json_line
from dftrace_ai.errors import DftraceError, needs_numpy

if TYPE_CHECKING:
    from dftrace_ai.ui.local_server import LocalServer
    from dftrace_ai.ui.runs_below import FoundRun


def command(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            callback=on_this_machine,
            help="All runs below it; without one below the current directory.",
        ),
    ] = None,
    browser: Browser = True,
    port: Port = None,
    json: AddressAsJson = False,
) -> None:
    """Show all runs in one page: each with its verdict, two beside each other, one as it runs.

    It is served on 127.0.0.1 only, under an address that holds a secret made for this call;
    nothing is uploaded. Nothing is written to the runs, but where the page is asked to
    recover the trace of a process that died.

    Example: dftrace ui traces --port 8080
    """
    with needs_numpy():
        import numpy  # noqa: F401, ICN001 - the processes that read need it
    from dftrace_ai.analysis.why import limits_of
    from dftrace_ai.config.project_file import options_of
    from dftrace_ai.ui.kept import Kept
    from dftrace_ai.ui.local_server import LocalServer
    from dftrace_ai.ui.readers import Readers
    from dftrace_ai.ui.runs_below import RunsBelow
    from dftrace_ai.ui.site import RunsSite

    root = (directory or Path()).resolve()
    if not root.is_dir():
        raise DftraceError(f"{root}: no such directory")
    option = options_of("why").get("threshold")
    thresholds = [] if option is None else option.words
    if option is not None:
        complain(f"{option.origin}: {', '.join(thresholds)}")
    limits_of(thresholds)  # a wrong name is told now, and not of each run
    kept = Kept()
    kept.forget_old()
    http = LocalServer.on_one_of([port or 0])

    runs = RunsBelow(root, thresholds)
    readers = Readers(kept, lambda: runs.all()[0])
    site = RunsSite(runs, kept, readers, partial(_opened_in_perfetto, http), http.remove)
    address = f"{http.origin}/{http.add(site)}/"
    line = json_line({"kind": "dftrace ui", "address": address}) if json else ""
    announce(address, http.port, f"runs below {root}; Ctrl+C ends it", line=line, browser=browser)
    try:
        http.serve_until(lambda: False)
    except KeyboardInterrupt:
        complain("ended")
    finally:
        readers.end()
        http.server_close()


def _opened_in_perfetto(http: LocalServer, run: FoundRun, at: str, ranks: str) -> tuple[str, str]:
    """Add what `dftrace view` shows of a run, by the times and ranks that it takes."""
    from dftrace_ai.analysis.merging.choice import of_ranks, parsed_ranks
    from dftrace_ai.analysis.merging.gathering import Asked, gathered
    from dftrace_ai.analysis.merging.shown_times import shown_base_us
    from dftrace_ai.analysis.reading.time_window import TimeWindow, parsed_window
    from dftrace_ai.cli.trace_server import TraceSite, offline_ui
    from dftrace_ai.ui.runs_below import opened_run

    files = opened_run(run.path, run.names).files
    window = parsed_window(at) if at else None
    chosen = of_ranks(files, parsed_ranks(ranks)) if ranks else files
    if window is not None:
        # Times are those of all ranks, which may count from an earlier moment than some of them.
        ahead_us = shown_base_us(files) - shown_base_us(chosen)
        window = TimeWindow(*(us + ahead_us for us in window))
    asked = Asked(window=window, around=True, everything=True, arrows=0, clocks="given")
    site = TraceSite(http, gathered(chosen, asked), ui=offline_ui(), tell=complain)
    return site.token, site.address
