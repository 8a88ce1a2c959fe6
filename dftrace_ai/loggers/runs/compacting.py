"""A log's metrics as Parquet, made at its end by a process of its own; the log stays the truth."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from dftrace_ai.spare_folders import SpareFolder
from dftrace_ai.wording import quoted, warn

__all__ = ["compact", "compact_here"]

WORTHWHILE_BYTES = 1 << 20
"""A shorter log is read as quickly as Parquet is."""

LEAST_S = 0.5
"""In less time no interpreter starts."""

# DuckDB has threads of its own, and must not be inside of a program that ends.
PROGRAM = """\
import sys
if not sys.path[0]:
    del sys.path[0]  # of the working directory, where anything may be called as a module is
import json
sys.path[:] = json.loads(sys.argv[1])
from dftrace_ai.loggers.runs.compacting import compact_here
compact_here(sys.argv[2], float(sys.argv[3]))
"""
OURS = ("DFTRACE_", "DFTRACER_")
OUT_OF_TIME = 75
SHARE_OF_LIMIT = 0.9


def compact(log: Path, limit_s: float) -> Path | None:
    """Write the metrics of a log that has ended as Parquet beside it; None where there is none."""
    if limit_s < LEAST_S or importlib.util.find_spec("duckdb") is None:
        return None
    try:
        if log.stat().st_size < WORTHWHILE_BYTES:
            return None
        with SpareFolder() as spare:
            status, said = _run_program(log, limit_s, str(spare))
    except OSError as error:
        status, said = 1, str(error)
    path = log.with_suffix(".parquet")
    # Of a program that ignores the ends of its children there is no status to be had.
    if status == 0 and path.is_file():
        return path
    for unnamed in log.parent.glob(f".{path.name}-*"):
        unnamed.unlink(missing_ok=True)
    if status != OUT_OF_TIME:
        warn(
            "%s: its metrics could not be written as Parquet; the log itself is whole: %s",
            quoted(str(log)),
            said,
        )
    return None


def _run_program(log: Path, limit_s: float, spare: str) -> tuple[int, str]:
    """Return the status of the program, and the last line that it has written."""
    words = [json.dumps(sys.path), str(log), str(limit_s * SHARE_OF_LIMIT)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
        [sys.executable, "-c", PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment | {"TMPDIR": spare},
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return OUT_OF_TIME, ""
    return process.returncode, said.decode(errors="replace").strip().rpartition("\n")[2]


def compact_here(log: str, limit_s: float) -> None:
    """Write the metrics of a log as Parquet; ends this process when the time is up."""
    from dftrace_ai.loggers.runs.folders import RunFolder
    from dftrace_ai.loggers.runs.log_files import head_of
    from dftrace_ai.loggers.runs.tables import RunTables
    from dftrace_ai.page.files import new_file

    def end(number: int, frame: object) -> None:
        raise SystemExit(OUT_OF_TIME)

    # Also where nobody waits for it any more; what is temporary is removed then.
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(limit_s, 0.001))
    os.nice(10)
    path = Path(log)
    head = head_of(path)
    names = path.parent.parts[-2:] if head is None else (head.project, head.name)
    folder = RunFolder("/".join(names), path.parent, (path.name,))
    mode = path.stat().st_mode & 0o777
    with RunTables([folder]) as tables, new_file(path.with_suffix(".parquet"), mode) as unnamed:
        tables.copy_out("metrics", unnamed)
