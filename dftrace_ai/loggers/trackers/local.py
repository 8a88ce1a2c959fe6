"""The embedded tracker: a log that is appended to, which any number of processes write and read.

Each process writes a file of its own, a line for each record, so that nobody waits for a lock and a
kill leaves all that was written. `docs/guide/runs.md` describes the lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dftrace_ai.loggers.names import safe_file_name
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
from dftrace_ai.loggers.runs.lines import RunLine, exact, line_of
from dftrace_ai.loggers.runs.log_files import LogLines
from dftrace_ai.loggers.runs.processes import here, is_alive
from dftrace_ai.loggers.trackers.base import BaseLogint
from dftrace_ai.loggers.trackers.file_paths import kept_copy, kept_file
from dftrace_ai.masking import masked_words
from dftrace_ai.spools.held import HeldLog
from dftrace_ai.wording import counted, quoted, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.records import Param, Params, Record, Status
    from dftrace_ai.loggers.runs.processes import ProcessIdentity

# The line that ends a log is shorter.
ROOM_OF_END = 200
# Of what is left of the time for the end; the run is not to be told to have ended too late.
SHARE_OF_LIMIT = 0.8
AXES = {"iteration": "i", "epoch": "e", "time": "t"}


class LocalLogint(BaseLogint):
    """Appends to a log in the run's directory; media and artifacts are files beside it."""

    name: ClassVar[str] = "local"
    own_process: ClassVar[bool] = False
    sent_later: ClassVar[bool] = False

    _log: HeldLog | None = None
    _torn = False
    _path = Path()

    def open(self) -> None:
        """Make this process's log, and say in it who writes."""
        folder = self.run.log_dir
        name = f"rank{self.run.rank}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._path = folder / name
        writers = _others_at_work(folder, self.run.rank)
        others = len(writers) - writers.count(here())
        if others:
            warn(
                "the directory %s is written by another run at the same time (%s); give one of "
                "them a run_name of its own",
                quoted(str(folder)),
                counted(others, "log"),
            )
        elif writers:
            # As where the cell of a notebook is run again.
            warn(
                "loggers that this program made before still write to the run in %s; they end with "
                "end_log(), or when nobody holds them any more",
                quoted(str(folder)),
            )
        self._write(self._head())

    def take(self, record: Record) -> None:
        """Append a line; bytes become files first."""
        if isinstance(record, MetricsRecord):
            values = exact(dict(record.values))
            self._write({"k": "m", **_place(record.at), "v": values})
        elif isinstance(record, ParamsRecord):
            self._write({"k": "p", "t": record.at.time_s, "v": exact(record.values)})
        elif isinstance(record, HistogramRecord):
            facts = record._asdict()
            del facts["at"]
            self._write({"k": "h", **_place(record.at), **exact(facts)})
        elif isinstance(record, ImageRecord):
            facts = {"width": record.width, "height": record.height, "caption": record.caption}
            self._keep("image", record.name, record.png, "png", record.at, facts)
        elif isinstance(record, VideoRecord):
            facts = {"frames": record.frames, "fps": record.fps}
            facts |= {"width": record.width, "height": record.height}
            self._keep("video", record.name, record.data, record.suffix, record.at, facts)
        elif isinstance(record, MeshRecord):
            facts = {"vertices": len(record.vertices), "faces": len(record.faces)}
            self._keep("mesh", record.name, record.glb, "glb", record.at, facts)
        elif isinstance(record, TextRecord):
            line = {"k": "x", **_place(record.at), "name": record.name, "text": record.text}
            self._write(line)
        elif isinstance(record, Artifact):
            self._copy(record)
        else:
            self._alert(record)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Append a line; `take` knows the time, too."""
        self.take(MetricsRecord(metrics, Point(step, time_s=time.time())))

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file, and append a line with its name."""
        self._keep("file", name, data, suffix, Point(step, time_s=time.time()), {})

    def finish(self, status: Status) -> None:
        """Say how the run ended; then its metrics become Parquet, if there is time."""
        self._write({"k": "end", "t": time.time(), "status": status})
        self.forget()
        if status != "killed":
            from dftrace_ai.loggers.runs.tables import compact

            compact(self._path, self.limit_s * SHARE_OF_LIMIT)

    def forget(self) -> None:
        """Close the log in a forked child."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _head(self) -> dict[str, Param]:
        process = here()
        return {
            "k": "run",
            "t": time.time(),
            "project": self.run.project,
            "name": self.run.run_name,
            "group": self.run.group,
            "tags": list(self.run.tags),
            "rank": self.run.rank,
            "world_size": self.run.world_size,
            "host": process.host,
            "boot": process.boot,
            "pid_ns": process.pid_namespace,
            "pid": process.pid,
            "start": process.start,
            "argv": list(masked_words(sys.argv) if self.run.mask_secrets else sys.argv),
        }

    def _keep(
        self, kind: str, name: str, data: bytes, suffix: str, at: Point, facts: Params
    ) -> None:
        run = self.run
        path = kept_file(run.log_dir / "media", name, suffix, at.step, data, run.file_mode)
        file = str(path.relative_to(run.log_dir))
        self._write({"k": "f", **_place(at), "kind": kind, "name": name, "file": file, **facts})

    def _copy(self, artifact: Artifact) -> None:
        folder = self.run.log_dir / "artifacts"
        kept_copy(Path(artifact.path), folder, artifact.name)
        file = str((folder / safe_file_name(artifact.name)).relative_to(self.run.log_dir))
        self._write({"k": "a", **_place(artifact.at), "name": artifact.name, "file": file})

    def _alert(self, alert: Alert) -> None:
        line = {"title": alert.title, "text": alert.text, "level": alert.level}
        self._write({"k": "!", **_place(alert.at), **line})

    def _write(self, line: Params) -> None:
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if self._torn:
            data = b"\n" + data
        number = self._number(line)
        view = memoryview(data)
        while view:
            try:
                written = os.write(number, view)
            except OSError:
                # What stands there of the line is no line; the next one does not go on with it.
                self._torn = self._torn or len(view) < len(data)
                raise
            view = view[written:]
        self._torn = False

    def _number(self, line: Params) -> int:
        """Return the log's number; one that had to be made again begins as a log does."""
        if self._log is None:
            self._log = HeldLog(self._path, mode=self.run.file_mode)
        number = self._log.number()
        if line["k"] == "run" or os.fstat(number).st_size:
            return number
        self._write(self._head())
        return self._log.number()


def _others_at_work(folder: Path, rank: int) -> list[ProcessIdentity]:
    """Return for each log of a rank that is being written which process of this machine does."""
    found = []
    for path in folder.glob(f"rank{rank}-*.jsonl"):
        try:
            with closing(LogLines(path)) as log:
                head = next(map(line_of, log), None)
                last = log.last_bytes(ROOM_OF_END).splitlines()[-1:]
        except OSError:
            continue  # gone this moment, or no file
        ended = b'{"k":"end"' in b"".join(last)
        if not isinstance(head, RunLine) or ended or _is_parent(head.process):
            continue
        if is_alive(head.process, log.written_s):
            found.append(head.process)
    return found


def _is_parent(process: ProcessIdentity) -> bool:
    """Return whether a process has started this one, which then goes on with its run."""
    return process.pid == os.getppid() and process.pid_namespace == here().pid_namespace


def _place(at: Point) -> dict[str, Param]:
    return {"s": at.step, "a": AXES[at.axis], "t": at.time_s}
