"""`dftrace export`: what was recorded, or is recorded now, sent to OpenTelemetry."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from dftrace_ai import recorder
from dftrace_ai.cli.reading import FAILED, Reading, folders_here
from dftrace_ai.cli.shared_options import Paths, Recover, Run, json_option, where_option
from dftrace_ai.cli.terminal import complain, write_json, write_out
from dftrace_ai.errors import ConfigError, DftraceError, TraceError, needs_numpy
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from typing_extensions import Self

    from dftrace_ai.analysis.otlp.messages import Batch, Resource, Span
    from dftrace_ai.analysis.otlp.recordings import Recording
    from dftrace_ai.analysis.otlp.sending import Sender
    from dftrace_ai.analysis.where import Where

# https://opentelemetry.io/docs/specs/otel/protocol/exporter/ has them, those of traces first.
ADDRESSES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
HEADER: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
OF_THE_BODY: Final = re.compile(r"content-.*|transfer-encoding|connection", re.IGNORECASE)
TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
TIMEOUT_S: Final = 10.0
LEAST_TIMEOUT_S: Final = 0.1

PAUSE_S: Final = 1.0
# Behind the end of a job, and where nothing is followed, a receiver may be away for so long.
PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class Exported:
    """What `dftrace export --json` prints.

    Attributes:
        to: address of the receiver.
        read: spans that were read.
        sent: spans that the receiver took: those that were chosen, of steps and of processes.
        refused: spans that it did not want.
        not_sent: spans that no receiver took in time.
        left_out: instants, counters, arrows and values of metadata that were read; they are no
            spans.
        requests: how many there were.
        again: of them those that were sent once more, since there was no answer, or the wish to
            be asked again.
        bytes: of the bodies of all.
        problem: the last reason why something was not taken; empty for none.
        notes: what could not be read, one line each.
        format: version of this form; it grows when a member goes or means something else.
        kind: ``dftrace export``, by which its JSON is known.
    """

    to: str
    read: int
    sent: int
    refused: int
    not_sent: int
    left_out: int
    requests: int
    again: int
    bytes: int
    problem: str
    notes: list[str]
    format: Literal[1] = 1
    kind: Literal["dftrace export"] = "dftrace export"


def command(
    paths: Paths = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="What it is sent to: the address of a receiver of OTLP over HTTP, such as "
            "http://127.0.0.1:4318. By default that of OTEL_EXPORTER_OTLP_ENDPOINT.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        where_option(
            "Only the spans that meet it, such as 'cat = pipeline', with the steps that hold one: "
            "cat, name, rank, host, pid, tid, dur_us and args.NAME"
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on while the job runs, and wait for one to begin; end with it.",
        ),
    ] = False,
    json: Annotated[bool, json_option("Print JSON of what was sent instead of a line.")] = False,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Send spans to OpenTelemetry: to a collector, or whatever else takes OTLP over HTTP.

    A step is a trace, with its spans on all ranks; what is outside of steps is in one trace of the
    run. What the receiver did not take is counted, too, and the exit status is then 1.
    OTEL_EXPORTER_OTLP_HEADERS has what lets in, OTEL_SERVICE_NAME what the job is called.

    Example: dftrace export out --to http://127.0.0.1:4318 --where "cat = 'pipeline'"
    """
    with needs_numpy():
        from dftrace_ai.analysis.where import where_of
        from dftrace_ai.conditions import all_of

        chosen = where_of(all_of(where)) if where else None
    if follow:
        _follow(paths, to, chosen, run, recover=recover, json=json)
        return
    sender = _sender(to, lambda waited_s: waited_s < PATIENCE_S)
    reading = Reading(paths, recover=recover, run=run)
    with _Export(sender, json=json) as export, reading.progress("sending"):
        _send_all(reading, chosen, export)
        export.notes += reading.skipped
    reading.end(failed=export.failed)


def _send_all(reading: Reading, where: Where | None, export: _Export) -> None:
    from dftrace_ai.analysis.otlp.recordings import Recording
    from dftrace_ai.analysis.reading.identity import recordings_of

    traces, notes = reading.traces.on_one_clock()
    export.notes += notes
    for files in recordings_of(traces).values():
        recording = Recording(files[0], where)
        for file in files:
            recording.add(file)
        export.recordings = [recording]
        for spans in recording.read():
            export.take(recording.resource, spans)
        export.count()
    export.flush()


def _follow(
    paths: list[Path] | None,
    to: str | None,
    where: Where | None,
    run: str | None,
    *,
    recover: bool,
    json: bool,
) -> None:
    if lacking := recorder.lack():
        raise DftraceError(lacking)
    from dftrace_ai.live.following import FollowedJob

    for path in paths or ():
        if not path.is_dir():
            raise TraceError(f"{path}: not a directory, in which processes may write traces")
    job = FollowedJob(paths or _folders_here, run, where, deep=bool(paths))

    def is_patient(waited_s: float) -> bool:
        return job.runs_on() or min(waited_s, job.silent_s) < PATIENCE_S

    with _Export(_sender(to, is_patient), json=json) as export:
        export.recordings = job.recordings.values()
        job.runs_on()
        if not job.runs:
            place = f"in {', '.join(map(str, paths))}" if paths else "below the current directory"
            complain(f"waiting for a job that runs {place}")
        while job.runs_on() or not job.runs:
            for resource, spans in job.read():
                export.take(resource, spans)
            export.flush()
            if export.is_over:
                export.notes.append("ended before the job: the receiver takes nothing")
                break
            time.sleep(PAUSE_S)
        if recover and not export.is_over:
            found = job.complete()
            export.notes += [f"damaged, left out: {line}" for line in found.damaged]
            export.notes += [f"not completed: {line}" for line in found.failed]
        for resource, spans in () if export.is_over else job.read(last=True):
            export.take(resource, spans)
        export.flush()
        export.notes += job.deleted
    if export.failed:
        raise typer.Exit(FAILED)


def _folders_here() -> list[Path]:
    try:
        return folders_here()
    except TraceError:
        return []  # nothing has begun yet


def _sender(to: str | None, patient: Callable[[float], bool]) -> Sender:
    """Return what sends to an address, or to what the environment names."""
    from dftrace_ai.analysis.otlp.sending import Sender, place_of

    given = [os.environ.get(name, "") for name in ADDRESSES]
    address = to or next(filter(None, given), "")
    if not address:
        raise ConfigError("there is no receiver: --to URL, or OTEL_EXPORTER_OTLP_ENDPOINT")
    headers = _headers()
    timeout = next(filter(None, map(os.environ.get, TIMEOUTS)), "")
    timeout_s = int(timeout[:9]) / 1000 if timeout.isascii() and timeout.isdigit() else TIMEOUT_S
    # That of traces alone is taken as it is.
    place = place_of(address, exact=not to and bool(given[0]))
    return Sender(place, headers, max(timeout_s, LEAST_TIMEOUT_S), patient)


def _headers() -> dict[str, str]:
    """Return the headers that the environment names; what is wrong with one is told without it."""
    from dftrace_ai.analysis.otlp.resources import pairs_in

    variable = next(filter(os.environ.get, HEADERS), HEADERS[1])
    headers: dict[str, str] = {}
    for number, entry in enumerate(os.environ.get(variable, "").split(","), 1):
        if not entry.strip():
            continue
        name, value = next(pairs_in(entry), ("", ""))
        if not HEADER.fullmatch(name) or OF_THE_BODY.fullmatch(name):
            raise ConfigError(
                f"{variable}: entry {number} is no header that can be given, as in api-key=..."
            )
        if not value.isascii() or not value.isprintable():
            raise ConfigError(
                f"{variable}: entry {number}: a header may hold letters of ASCII alone"
            )
        headers[name] = value
    return headers


def _batch() -> Batch:
    from dftrace_ai.analysis.otlp.messages import Batch  # commands load what they need when called

    return Batch()


class _Export:
    """Spans on their way to a receiver, and what is told of them at the end, however it comes."""

    def __init__(self, sender: Sender, *, json: bool) -> None:
        self.recordings: Collection[Recording] = ()
        self.notes: list[str] = []
        self._sender = sender
        self._json = json
        self._batch = _batch()
        self._read = self._left_out = 0

    @property
    def failed(self) -> bool:
        """Whether anything could not be read, or was not taken."""
        return bool(self.notes or self._sender.refused or self._sender.lost)

    @property
    def is_over(self) -> bool:
        """Whether the receiver takes nothing at all."""
        return self._sender.is_over

    def take(self, resource: Resource, spans: Iterable[Span]) -> None:
        """Take in spans; what is enough for a request is sent."""
        for span in spans:
            self._batch.add(resource, span)
            if self._batch.is_full:
                self.flush()

    def flush(self) -> None:
        """Send what is there."""
        batch, self._batch = self._batch, _batch()
        if batch.count:
            self._sender.send(batch)

    def count(self) -> None:
        """Add up what was read of the recordings, which are done."""
        for recording in self.recordings:
            placed = recording.placed
            self._read += placed.spans
            self._left_out += placed.left_out
            self.notes += placed.notes
        self.recordings = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._sender.close()
        sender, left = self._sender, self._batch.count
        if kind is not None and issubclass(kind, DftraceError) and not sender.requests:
            return
        self.count()
        told = Exported(
            sender.place.address,
            *(self._read, sender.accepted, sender.refused, sender.lost + left, self._left_out),
            *(sender.requests, sender.again, sender.bytes, sender.problem, self.notes),
        )
        self._tell(told, interrupted=kind is not None)

    def _tell(self, told: Exported, *, interrupted: bool) -> None:
        if self._json:
            write_json(told)
        else:
            requests = f"{counted(told.requests, 'request')}, {told.bytes:,} bytes"
            again = f", {told.again:,} of them again" if told.again else ""
            write_out(f"{counted(told.sent, 'span')} sent to {told.to}: {requests}{again}\n")
        if interrupted:
            complain("ended early: what was not read yet is in the traces, and was not sent")
        for note in self.notes:
            complain(note, loud=": LOST " in note)
        if told.refused:
            complain(f"{counted(told.refused, 'span')} refused: {told.problem}", loud=True)
        if told.not_sent:
            why = f": {told.problem}" if told.problem else ""
            complain(f"{counted(told.not_sent, 'span')} not sent{why}", loud=True)
        if told.left_out and not self._json:
            what = "instants, counters, arrows and values of metadata"
            complain(f"{told.left_out:,} {what} are no spans, and not sent")
