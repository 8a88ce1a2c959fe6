"""What is kept with a run at its end: the trace that was written meanwhile, and reports."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.interpreters import answer_of
from dftrace_ai.loggers.delivery.delivery import Mark
from dftrace_ai.loggers.delivery.waiting import wait_until
from dftrace_ai.loggers.records import Artifact
from dftrace_ai.run.run import current_run
from dftrace_ai.trace_format.file_names import trace_name
from dftrace_ai.wording import described, escaped, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.entry import Entry
    from dftrace_ai.loggers.records import Point, Status

REPORT = "report.html"
TRACE_REPORT = "trace-report.html"
REPORTING = ("dftrace_ai.analysis.closing", "write_report")


def check_attached(settings: Mapping[str, EntryConfig]) -> None:
    """Refuse to keep a report, by a ConfigError, where there is nothing that it is made from."""
    asking = [name for name, config in settings.items() if "report" in config.attach]
    if asking and "local" not in settings and current_run() is None:
        raise ConfigError(
            f"logger.{asking[0]}: attach: a report shows what the interface local has logged, or "
            "what is traced; add an entry local, or begin to trace before"
        )


def attach(entries: Sequence[Entry], at: Point, status: Status, until_s: float) -> None:
    """Hand over to each interface what it is to keep; a report is waited for until then."""
    makers: list[tuple[Literal["trace", "report"], str, Callable[[], list[Artifact]]]] = [
        ("trace", "trace", lambda: _trace(at)),
        ("report", "report", lambda: _report(entries, at, status, until_s)),
        ("report", "report of the trace", lambda: _report_of_trace(entries, at, until_s)),
    ]
    for asked, what, made in makers:
        asking = [entry for entry in entries if asked in entry.config.attach]
        if not asking:
            continue
        try:
            artifacts = made()
        except Exception as error:  # noqa: BLE001 - the trackers are to end all the same
            warn("the %s could not be attached to the run: %s", what, described(error))
            continue
        for entry in asking:
            for artifact in artifacts:
                if entry.delivery is not None:
                    entry.delivery.put(artifact)


def _trace(at: Point) -> list[Artifact]:
    run = current_run()
    if run is None or run.path is None:
        return []
    run.flush()
    path = Path(run.path)
    own = trace_name(path.name)
    named = ((trace_name(other.name), other) for other in path.parent.iterdir())
    parts = {name.part: other for name, other in named if name and own and name.base == own.base}
    return [Artifact(parts[part].name, str(parts[part]), at) for part in sorted(parts)]


def _report_of_trace(entries: Sequence[Entry], at: Point, until_s: float) -> list[Artifact]:
    run = current_run()
    facts = next((entry.facts for entry in entries if entry.facts is not None), None)
    if run is None or run.path is None or facts is None or facts.rank != 0:
        return []
    run.flush()
    if run.path is None or not os.path.lexists(run.path):
        return []  # nothing was recorded
    page = facts.log_dir / TRACE_REPORT
    # The trackers need time to end, too.
    limit_s = max(0.0, until_s - time.monotonic()) / 2
    answer = answer_of(*REPORTING, [run.path, str(run._begun_ns), str(page)], limit_s)
    if answer.status is None:
        raise TimeoutError(f"it takes longer than {limit_s:.1f} s; raise limit_s")
    if answer.status:
        raise DftraceError(escaped(answer.reason))
    return [Artifact(TRACE_REPORT, str(page), at)]


def _report(entries: Sequence[Entry], at: Point, status: Status, until_s: float) -> list[Artifact]:
    # On other ranks it may not log, and one report is enough.
    local = next((entry for entry in entries if entry.name == "local"), None)
    facts, delivery = (None, None) if local is None else (local.facts, local.delivery)
    if facts is None or delivery is None or facts.rank != 0:
        return []
    from dftrace_ai.loggers.runs.log_files import run_folders
    from dftrace_ai.loggers.runs.page import RunsOnPage, page_of
    from dftrace_ai.page.files import write_page

    mark = Mark(1)
    delivery.put_mark(mark)
    wait_until(mark.is_through, until_s)
    folders, _ = run_folders(facts.log_dir)
    found = RunsOnPage(folders)
    for writer in (writer for run in found.runs for writer in run.writers):
        # It still writes, and will have ended so when anybody reads the page.
        if writer.line and writer.line.process.pid == os.getpid() and not writer.ending:
            writer.ending = status
    path = facts.log_dir / REPORT
    write_page(path, page_of(facts.run_name, found))
    return [Artifact(REPORT, str(path), at)]
