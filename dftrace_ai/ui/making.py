"""What is kept of a run is made here: its card, its steps, its figures.

Loaded late, and by processes of their own alone: the page answers while they read.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from array import array
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import numpy as np

from dftrace_ai.analysis.diff import diff
from dftrace_ai.analysis.merging.shown_times import shown_base_us
from dftrace_ai.analysis.reading.event_columns import read_on
from dftrace_ai.analysis.report.figures.facts import envelope
from dftrace_ai.analysis.report.figures.series import further_maps
from dftrace_ai.analysis.report.page import json_text
from dftrace_ai.analysis.report.run import Run
from dftrace_ai.analysis.steps import Job, measure
from dftrace_ai.analysis.why.model import DriftSince, figures_of, limits_of
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.loggers.runs.lines import exact
from dftrace_ai.loggers.runs.log_files import NoRunsError, run_folders
from dftrace_ai.loggers.runs.reading import read_run
from dftrace_ai.ui.answers import WORDS
from dftrace_ai.ui.kept import (
    CARD,
    FIGURES,
    HALF,
    MAP,
    METRICS,
    NO_ROOM,
    PICTURES,
    READ,
    write_whole,
)
from dftrace_ai.ui.runs_below import begun_ns, opened_run
from dftrace_ai.ui.step_table import StepColumns, StepTable, common_edges, histogram, write_table
from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.report.figures.steps import MeasuredRank
    from dftrace_ai.analysis.report.model import ReportFigures
    from dftrace_ai.analysis.steps import Steps
    from dftrace_ai.analysis.steps.job import Named
    from dftrace_ai.analysis.why import Verdict
    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.reading import LocalRun, Writer
    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.ui import answers
    from dftrace_ai.ui.answers import LoggedPicture, MetricSeries
    from dftrace_ai.ui.step_table import Values


STRETCHES: Final = 30
# Of fewer steps some stretches have none.
FEW_STEPS: Final = 90
MOST_MAPS: Final = 500
SHOWN_METRICS: Final = 12
SHOWN_PARAMS: Final = 60
LETTERS: Final = 2000
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
# Of a name or a value in the list, which is asked for again and again; its page has it whole.
LETTERS_IN_LIST: Final = 200
# A program may log long before its first event.
BEFORE_NS: Final = 600 * 10**9


Side: TypeAlias = "tuple[str, list[str], str]"
Logs: TypeAlias = "list[tuple[str, list[str]]]"


def do_tasks(words: Sequence[str]) -> NoReturn:
    """Do tasks, each a line of the standard input, until that ends; each is answered by a line."""
    os.nice(int(words[0]))
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_take_lines, args=(lines,), daemon=True).start()
    while True:
        line = lines.get()
        kind, asked = json.loads(line)
        answer, failed = "", ""
        try:
            answer = _compared(*asked) if kind == "compare" else _Making(*asked).make()
        except (DftraceError, OSError, MemoryError) as error:
            failed = str(error) or type(error).__name__
        except Exception as error:  # noqa: BLE001 - it is told in the run's row; others are read on
            failed = f"this run breaks its reader: {type(error).__name__}: {error}"
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sys.stdout.write(json.dumps([answer, failed, peak_bytes]) + "\n")
        sys.stdout.flush()


def _take_lines(lines: SimpleQueue[str]) -> None:
    """Take lines of the standard input; when it ends, so does the process, whatever it is at."""
    # However its server has ended: nobody waits for what it reads.
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


class _Making:
    """What is made of one run."""

    # Of files in a folder; `logs` are those of processes of the same numbers by their directories,
    # the nearest first.

    def __init__(
        self,
        folder: str,
        names: list[str],
        logs: Logs,
        into: str,
        key: str,
        thresholds: list[str],
    ) -> None:
        self._logs, self._kept, self._key = logs, Path(into), key
        try:
            self._traces = opened_run(Path(folder), names)
        except TraceError:
            # What was made of other files says nothing of these.
            (self._kept / CARD).unlink(missing_ok=True)
            raise
        # One that runs is read again and again; what others have is not held.
        read_on(trace for trace in self._traces if trace.end.footer is None)
        self._ranks: dict[int, StepColumns] = {}
        self._named: dict[int, tuple[Named, ...]] = {}
        self._last: MeasuredRank | None = None
        limits = limits_of(thresholds)
        self._run = Run([folder], limits=limits, traces=self._traces, taken=self._take)

    def _take(self, measured: MeasuredRank) -> None:
        steps = measured.steps
        times = (steps.start_ns, steps.end_ns, steps.time_ns)
        host = shortened(measured.rank.process.host, LETTERS_IN_LIST)
        self._ranks[measured.number] = StepColumns(host, *times, steps.number, steps.parts)
        self._named[measured.number] = measured.rank.named
        self._last = measured

    def make(self) -> str:
        """Write everything; the card, by which it is found, last."""
        try:
            return self._locked()
        except OSError as error:
            if error.errno in FULL:
                raise DftraceError(NO_ROOM) from error
            raise

    def _locked(self) -> str:
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Held as long as this process makes it, or lives: the next server removes what it left.
        held = os.open(self._kept, os.O_RDONLY)
        try:
            with suppress(OSError):  # there are no locks
                fcntl.flock(held, fcntl.LOCK_SH)
            return self._made()
        finally:
            os.close(held)

    def _made(self) -> str:
        home = self._kept / self._key
        half = Path(tempfile.mkdtemp(dir=self._kept, prefix=HALF))
        try:
            card = self._made_in(half)
            shutil.rmtree(home, ignore_errors=True)
            half.rename(home)
        finally:
            shutil.rmtree(half, ignore_errors=True)
        write_whole(self._kept / CARD, json.dumps({"key": self._key, "card": card}).encode())
        for old in self._kept.iterdir():
            if old.is_dir() and old != home and not old.name.startswith(HALF):
                shutil.rmtree(old, ignore_errors=True)
        return ""

    def _made_in(self, folder: Path) -> answers.Card:
        figures = self._run.figures
        origin_ns = int((figures.first_us or 0) * 1000)
        last_ns = origin_ns + int(figures.wall_s * 1e9)
        shown = self._shown(figures.verdict.rank or 0)
        strip: answers.Strip | None = None
        measures: list[str] = []
        if shown is not None and figures.steps is not None:
            write_table(folder, self._ranks, shown, origin_ns)
            table = StepTable(folder)
            table.write_whole(figures.wall_s)
            measures = table.measures
            strip = {
                "rank": shown[0],
                "wall_s": figures.wall_s,
                "zero_s": (origin_ns - shown_base_us(self._traces.files) * 1000) / 1e9,
            }
        logged = self._logged(origin_ns, last_ns)
        metrics = logged.series(origin_ns / 1e9)
        pictures = {
            name: [(step, round(at_s - origin_ns / 1e9, 3), *place) for step, at_s, *place in items]
            for name, items in logged.pictures.items()
        }
        read: answers.ReadRun = {
            "strip": strip,
            "step_ranks": sorted(self._ranks),
            "measures": measures,
            "metrics": [
                {"name": one["name"], "axis": one["axis"], "count": one["count"]} for one in metrics
            ],
            "media": [
                {"name": name, "kind": "image", "count": len(items)}
                for name, items in pictures.items()
            ],
            "tensor_maps": self._further_maps(folder, figures),
            "params": logged.params,
            "not_recorded": list(_not_recorded(figures, logged)),
        }
        (folder / FIGURES).write_text(json_text(figures), encoding="ascii")
        for name, made in ((READ, read), (METRICS, metrics), (PICTURES, pictures)):
            (folder / name).write_text(json.dumps(made, allow_nan=False), encoding="ascii")
        return self._card(figures, logged, None if shown is None else shown[1])

    def _further_maps(self, folder: Path, figures: ReportFigures) -> list[dict[str, str]]:
        """Write the heat maps that the report does not draw; returns of what they are."""
        if figures.tensors is None or not figures.tensors.maps_left_out:
            return []
        further = further_maps(self._run.tensor_statistics, len(figures.tensors.maps))
        told = []
        for at, one in enumerate(islice(further, MOST_MAPS)):
            (folder / MAP.format(at)).write_text(json.dumps(asdict(one)), encoding="ascii")
            told.append({"statistic": one.statistic, "tensor": one.tensor})
        return told

    def _shown(self, number: int) -> tuple[int, Steps] | None:
        """Return the steps of the rank that is shown, which may have been let go."""
        last = self._last
        if last is None:
            return None
        if last.number == number or number not in self._named:
            return last.number, last.steps
        steps = measure(Job(self._traces).again(self._named[number]).process)
        return None if steps is None else (number, steps)

    def _logged(self, first_ns: int, last_ns: int) -> Logged:
        """Return what was logged while it ran: numbers of processes come again."""
        for folder, names in self._logs:
            begun = {name: begun_ns(name) for name in names}
            own = [
                n for n, at in begun.items() if first_ns - BEFORE_NS <= at <= last_ns + BEFORE_NS
            ]
            if own:
                return Logged(Path(folder), frozenset(own))
        return Logged()

    def _card(self, figures: ReportFigures, logged: Logged, steps: Steps | None) -> answers.Card:
        verdict = figures.verdict
        first = verdict.findings[0] if verdict.findings else None
        facts = verdict.steps
        per_s, spark = (None, []) if steps is None else _speed(steps)
        said = next((f"{one.what}: {one.why}" for one in verdict.abstained), "")
        names = list(logged.last)[:SHOWN_METRICS]
        return {
            "began_s": figures.first_us / 1e6 if figures.began_at and figures.first_us else None,
            "wall_s": figures.wall_s, "ranks": verdict.ranks,
            "events": figures.summary.events, "steps": facts.count if facts else 0,
            "median_ns": float(facts.median_ns) if facts else None,
            "steps_per_s": per_s, "spark": spark,
            "verdict": verdict.verdict, "words": _words(verdict), "severity": _severity(verdict),
            "confidence": first.confidence if first else None,
            "share": first.share if first else None,
            "what": (first.what if first else said)[:LETTERS], "late_ranks": _late_ranks(verdict),
            "losses": len(figures.losses), "older": self._traces.other_runs,
            "ended": _endings(self._traces), "logged": logged.status, "as_of_s": time.time(),
            "metrics": {shortened(name, LETTERS_IN_LIST): logged.last[name] for name in names},
            "params": {
                shortened(name, LETTERS_IN_LIST): _brief(value)
                for name, value in islice(logged.params.items(), SHOWN_PARAMS)
            },
            "hint": "",
        }  # fmt: skip


def _speed(steps: Steps) -> tuple[float, list[float]]:
    """Return the usual steps a second, and those of stretches of the training."""
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    edges = np.linspace(0, max(end - begin, STRETCHES), STRETCHES + 1)
    counts, _ = np.histogram(steps.end_ns - begin, edges)
    per_s = counts / ((edges[1] - edges[0]) / 1e9)
    usual = float(np.median(per_s)) if len(steps) >= FEW_STEPS else float(per_s.mean())
    return round(usual, 4), np.round(per_s, 3).tolist()


def _brief(value: Json) -> Json:
    text = json.dumps(value) if isinstance(value, (dict, list)) else value
    is_long = isinstance(text, str) and len(text) > LETTERS_IN_LIST
    return shortened(str(text), LETTERS_IN_LIST) if is_long else value


def _words(verdict: Verdict) -> str:
    if verdict.verdict == "slower-since" and verdict.findings:
        step = figures_of(verdict.findings[0], DriftSince).get("step")
        return WORDS["slower-since"] if step is None else f"slower since step {step}"
    return WORDS[verdict.verdict]


def _severity(verdict: Verdict) -> answers.Severity:
    if not verdict.findings:
        return "note" if verdict.verdict == "abstained" else "none"
    severity = verdict.findings[0].severity
    return "note" if severity == "info" else severity


def _late_ranks(verdict: Verdict) -> list[int]:
    """Return who keeps the others waiting, where the verdict knows it."""
    late = next((one.late_ranks for one in verdict.findings if one.late_ranks), ())
    return [one.rank for one in late]


def _endings(traces: TraceSet) -> list[str]:
    """Return how its processes ended, those left out that work for others of them."""
    owners = traces.owners
    found = set()
    for owner in owners.all:
        if owners.employer(owner) is None:
            footer = owner.files[-1].end.footer
            found.add((footer and footer.ended) or "not closed")
    return sorted(found)


def _not_recorded(figures: ReportFigures, logged: Logged) -> Iterator[dict[str, str]]:
    for is_there, what, setting in (
        (figures.counters, "processors, memory, disks and network", "system_counters_s"),
        (logged.status, "metrics and hyper-parameters", "a logger with the interface local"),
        (figures.tensors, "statistics of tensors", "inspect_config"),
    ):
        if not is_there:
            yield {"what": what, "setting": setting}


def _compared(before: Side, after: Side) -> str:
    """Compare two runs, folders and their files and where they are kept, as `dftrace diff` does."""
    first, second = (opened_run(Path(folder), names) for folder, names, _ in (before, after))
    first.run, second.run = before[0], after[0]
    found = diff(first, second)
    times = [_times_of(kept) for *_, kept in (before, after)]
    distributions: dict[str, Json] | None = None
    if all(len(each) for each in times):
        edges = common_edges(times)
        bars = [histogram(each, edges) for each in times]
        distributions = {"edges_us": edges.tolist()}
        distributions |= {
            n: list(bar["n"]) if bar else [] for n, bar in zip("ab", bars, strict=True)
        }
    return json.dumps({**found.to_dict(), "distributions": distributions})


def _times_of(kept: str) -> Values:
    try:
        return StepTable(Path(kept)).times_us()
    except (OSError, ValueError):
        return np.zeros(0)


MOST_NAMES: Final = 400
MOST_COLUMNS: Final = 2000
MOST_PICTURES: Final = 2000
# Of these a page has plots of its own, or they are logged besides.
OF_THE_SYSTEM: Final = "system/"
IMAGES: Final = "image"


class Logged:
    """What was logged by the processes of one trace."""

    # `status` says how it ended for who logged, None that nothing was; `last` are the last values
    # of metrics; `pictures` are those that lie in files, by name, with times since 1970.

    def __init__(self, folder: Path | None = None, logs: frozenset[str] = frozenset()) -> None:
        self.status: str | None = None
        self.params: dict[str, Json] = {}
        self.last: dict[str, float | str] = {}
        self.pictures: dict[str, list[LoggedPicture]] = {}
        self._pictures = 0
        # Moments, values and steps in turn, by axis and name.
        self._values: dict[tuple[str, str], array[float]] = {}
        if folder is not None:
            self._read(folder, logs)

    def _read(self, folder: Path, logs: frozenset[str]) -> None:
        try:
            found, _ = run_folders(folder)
        except NoRunsError:
            return  # it was removed meanwhile
        for one in found:
            if one.path != folder or logs.isdisjoint(one.logs):
                continue
            run = read_run(one, self)
            self.status = run.status
            self.params |= {name: exact(value) for name, value in run.params.items()}
            names = [name for name in run.metrics if not name.startswith(OF_THE_SYSTEM)]
            self.last |= {name: exact(run.metrics[name].last) for name in names[:MOST_NAMES]}

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""
        for name, value in line.values.items():
            if name.startswith(OF_THE_SYSTEM):
                continue
            if (line.axis, name) in self._values or len(self._values) < MOST_NAMES:
                values = self._values.setdefault((line.axis, name), array("d"))
                values.extend((line.time_s, value, line.step))

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take a picture."""
        if line.kind == IMAGES and line.file and self._pictures < MOST_PICTURES:
            self._pictures += 1
            picture = (line.step, line.time_s, str(run.path), line.file)
            self.pictures.setdefault(line.name, []).append(picture)

    def series(self, origin_s: float) -> list[MetricSeries]:
        """Return each metric over time, in so many columns at most."""
        return [
            _series(name, axis, values, origin_s)
            for (axis, name), values in sorted(self._values.items())
        ]


def _series(name: str, axis: str, logged: array[float], origin_s: float) -> MetricSeries:
    rows = np.frombuffer(logged).reshape(-1, 3)
    time_s, value, step = rows[np.argsort(rows[:, 0], kind="stable")].T
    groups = envelope(np.arange(len(value)), value, most=MOST_COLUMNS)
    last = np.array(groups.last, int)
    shown = value[last]
    shown[(np.array(groups.non_finite) > 0) & np.isfinite(shown)] = math.nan
    several = len(last) < len(value)
    return {
        "name": name, "axis": axis, "count": len(value),
        "t": np.round(time_s[last] - origin_s, 4).tolist(), "step": step[last].astype(int).tolist(),
        "v": exact(shown.tolist()),
        "low": groups.low if several else None, "high": groups.high if several else None,
    }  # fmt: skip
