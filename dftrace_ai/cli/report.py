"""`dftrace report`: a run on one page that needs no network, or its figures as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dftrace_ai.cli.readers import Readers, processors, with_readers
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import (
    Paths,
    Recover,
    Run,
    Thresholds,
    force_option,
    json_option,
    out_option,
)
from dftrace_ai.cli.terminal import shown, write_out
from dftrace_ai.errors import needs_numpy

PAGE = "report.html"


@with_readers(bytes_a_second=9e6, by_default=processors)
def command(
    paths: Paths = None,
    out: Annotated[
        Path | None, out_option("FILE", f"Where it is written; by default {PAGE}.")
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write each plot as an SVG of its own, too."),
    ] = None,
    force: Annotated[
        bool, force_option("Replace what is there, also a file that is no report of ours.")
    ] = False,
    threshold: Thresholds = None,
    json: Annotated[
        bool,
        json_option("Print JSON of the figures; a page only where -o names it."),
    ] = False,
    run: Run = None,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Write one page on a run: verdict, steps, where the time goes, loader, tensors, counters.

    The page is one file, fetches nothing, and can be sent by mail or printed. What was lost
    stands at its top. A run without steps gets a page, too. Packages with an entry point of
    dftrace_ai.report_sections add sections of their own.

    Example: dftrace report out -o report.html

    Exit status: 0 done, 1 where files of a directory were skipped, 2 when the call is wrong,
    nothing can be read, or something that is no report has the name.
    """
    with needs_numpy():
        from dftrace_ai.analysis.report.files import check_page, check_plots
        from dftrace_ai.analysis.report.page import json_text
        from dftrace_ai.analysis.report.run import Run as ShownRun
        from dftrace_ai.analysis.why import limits_of

    limits = limits_of(threshold or ())
    page = Path(PAGE) if out is None and not json else out
    # Not after minutes of reading.
    if page is not None:
        check_page(page, force=force)
    if plots is not None:
        check_plots(plots)
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress(), readers:
        if page is not None:
            check_page(page, [trace.path for trace in reading.traces], force=force)
        spread = readers.of(reading.traces)
        shown_run = ShownRun(reading.paths, limits, traces=reading.traces, spread=spread)
        figures = shown_run.page_figures
    if page is not None:
        made = shown_run.report(page, force=force)
        if not json:
            typer.echo(shown(made))
    if plots is not None:
        shown_run.write_plots(plots, force=force)
    if json:
        write_out(json_text(figures) + "\n")
    reading.warn(shown_run.losses)
    reading.warn(figures.plugin_faults)
    reading.end(failed=readers.left_out or bool(shown_run.summary.skipped))
