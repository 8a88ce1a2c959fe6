"""What a tracker has not taken when its run ends, as a file: lines of JSON, for its owner alone."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, Final

from dftrace_ai.loggers.names import safe_name
from dftrace_ai.loggers.records import (
    Alert,
    Artifact,
    HistogramRecord,
    ImageRecord,
    MeshRecord,
    MetricsRecord,
    ParamsRecord,
    Point,
    TextRecord,
    VideoRecord,
)
from dftrace_ai.loggers.trackers.file_paths import opened_file
from dftrace_ai.masking import names_secret

if TYPE_CHECKING:
    from dftrace_ai.loggers.records import Record, Status
    from dftrace_ai.loggers.trackers.base import BaseLogint, RunFacts

MARK: Final = "dftrace unsent"
BEGINNING, SUFFIX = "unsent-", ".lines"
MOST_BYTES: Final = 64 * 1024 * 1024

KINDS: Final = {
    kind.__name__: kind
    for kind in (
        *(MetricsRecord, ParamsRecord, HistogramRecord, ImageRecord, VideoRecord, MeshRecord),
        *(TextRecord, Artifact, Alert),
    )
}
BYTES, ARRAYS = {"png", "data", "glb"}, {"vertices", "faces", "colors"}
TUPLES, PAIRS = {"edges", "counts"}, {"quantiles"}


def line_of(record: Record) -> bytes:
    """Return a record as a line of JSON, which `record_of` takes."""
    fields = {name: _plain(name, value) for name, value in record._asdict().items()}
    return json.dumps([type(record).__name__, fields], default=str).encode() + b"\n"


def _plain(name: str, value: Any) -> Any:
    if name == "at":
        return value[:3]  # the place in a trace is that of a run that is over
    if name in BYTES:
        return base64.b64encode(value).decode()
    if name in ARRAYS and value is not None:
        return [value.dtype.str, value.shape, base64.b64encode(value.tobytes()).decode()]
    return list(value.items()) if name in PAIRS else value


def record_of(line: bytes) -> Record:
    """Return the record of a line; raises ValueError, KeyError or TypeError where it is none."""
    kind, fields = json.loads(line)
    made: Record = KINDS[kind](**{name: _record_value(name, fields[name]) for name in fields})
    return made


def _record_value(name: str, value: Any) -> Any:
    if name == "at":
        return Point(*value)
    if name in BYTES:
        return base64.b64decode(value)
    if name in ARRAYS and value is not None:
        import numpy as np

        kind, shape, data = value
        return np.frombuffer(base64.b64decode(data), kind).reshape(shape)
    if name in TUPLES:
        return tuple(value)
    return dict(value) if name in PAIRS else value


class Unsent:
    """The file of what a tracker of this run has not taken, made when there is something."""

    def __init__(self, name: str, kind: type[BaseLogint], run: RunFacts) -> None:
        facts = {key: value for key, value in asdict(run).items() if key != "log_dir"}
        facts["root"] = str(run.root)
        facts["options"] = {k: v for k, v in run.options.items() if not names_secret(str(k))}
        self._head = {
            "kind": MARK,
            "format": 1,
            "tracker": name,
            "module": kind.__module__,
            "class": kind.__qualname__,
            "run": facts,
        }
        stem = f"{BEGINNING}{safe_name(name)}-{run.begun_ns}-{run.rank}"
        self.path = run.log_dir / f"{stem}{SUFFIX}"
        self.kept = 0
        self._file: IO[bytes] | None = None
        self._left = MOST_BYTES
        self._is_closed = False

    def keep(self, record: Record) -> None:
        """Keep a record where there is room for it; what is kept is counted."""
        if self._is_closed:
            return
        try:
            line = line_of(record)
            if self._file is None:
                self._open()
            if len(line) <= self._left and self._file is not None:
                self._left -= len(line)
                self._file.write(line)
                self._file.flush()
                self.kept += 1
        except (OSError, TypeError, ValueError):
            self._is_closed = True  # a full disk; what is not kept is told as lost

    def _open(self) -> None:
        number = opened_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._file = os.fdopen(number, "wb")
        # Until the run has ended nobody hands it over.
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file.write(json.dumps(self._head, default=str).encode() + b"\n")

    def end(self, status: Status) -> None:
        """Keep how the run has ended."""
        self._is_closed = True
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.write(json.dumps({"end": status}).encode() + b"\n")
