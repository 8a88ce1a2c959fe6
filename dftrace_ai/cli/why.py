"""`dftrace why`: what makes the steps of a run slow, and what to try."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.markdown import Block, table, text, write_markdown
from dftrace_ai.cli.readers import Readers, processors, with_readers
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import (
    FailOn,
    Json,
    Markdown,
    Paths,
    Recover,
    Run,
    Thresholds,
    fails,
    not_together,
)
from dftrace_ai.cli.terminal import console, laid_out, print_all, write_json
from dftrace_ai.errors import needs_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.why.model import Finding, PluginFinding, Verdict


@with_readers(bytes_a_second=15e6, by_default=processors)
def command(
    paths: Paths = None,
    json: Json = False,
    markdown: Markdown = False,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Tell of every part of the steps, and of the loader's work, which line of the "
            "program carries it; by samples of Python's stacks.",
        ),
    ] = False,
    threshold: Thresholds = None,
    fail_on: FailOn = None,
    run: Run = None,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Tell in plain words why the steps of a run are slow, or that nothing stands out.

    The traces are those of one run, of all its processes. What cannot be known from them
    is said, too. Packages with an entry point of dftrace_ai.findings are asked what they find.

    Example: dftrace why out --threshold input=0.05 --fail-on warning

    Exit status: 0 with findings or without, 1 where --fail-on says so, or events of the dead
    could not be written to their traces; 2 when the call is wrong or nothing can be read.
    """
    not_together({"--json": json, "--markdown": markdown})
    with needs_numpy():
        from dftrace_ai.analysis.why import limits_of, verdict_lines, why
        from dftrace_ai.analysis.why.words import phase_lines

    limits = limits_of(threshold or ())
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress(), readers:
        verdict = why(reading.traces, limits, readers.of(reading.traces))
    notes = (*reading.waiting_notes(), *verdict.notes)
    verdict = replace(verdict, running=tuple(reading.running), notes=notes)
    if json:
        write_json(verdict)
    elif markdown:
        write_markdown(_blocks(verdict, lines=lines))
    else:
        out = console()
        each: tuple[Finding | PluginFinding, ...]
        each = (*verdict.findings, *verdict.of_plugins, *verdict.of_some_ranks)
        told = [(one.what, one.severity) for one in each]
        head = told[0][1] if verdict.findings else verdict.verdict
        print_all(out, laid_out(verdict_lines(verdict), out, head, told))
        if lines:
            print_all(out, laid_out(["", *phase_lines(verdict)], out, "", ()))
    reading.end(
        failed=readers.left_out
        or fails(fail_on, (one.severity for one in verdict.findings))
        or fails(fail_on, (one.severity for one in verdict.of_plugins))
    )


def _blocks(verdict: Verdict, *, lines: bool) -> Iterator[Block]:
    """Yield what `--markdown` prints: the titles, and below them a table of rows."""
    from dftrace_ai.analysis.why.words import phase_texts, verdict_heads, verdict_rows

    for title, sentence in verdict_heads(verdict):
        yield Block([f"### {text(title)}", "", text(sentence)])
    rows = [*verdict_rows(verdict)]
    if lines:
        rows += [("lines", line) for line in phase_texts(verdict)]
    yield table(("", ""), 2, ((name, text(told)) for name, told in rows))
