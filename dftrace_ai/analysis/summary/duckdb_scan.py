"""The one scan of many trace files that gives all figures, in a DuckDB that sees nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.files import SkippedFile
from dftrace_ai.analysis.reading.reader import FRAMING, LINE_BYTES, LongLine, TraceReader
from dftrace_ai.analysis.reading.trace_end import read_end
from dftrace_ai.errors import DftraceError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.files import Codec, TraceFile
    from dftrace_ai.analysis.reading.trace_end import TraceEnd

__all__ = ["Scan"]

# The durations of a trace have three decimals, so DECIMAL adds them up exactly; a line
# that is no event comes back as a row of nulls. The largest rows come first.
QUERY = """
SELECT ph, coalesce(cat, '') AS cat, name, count(*) AS n, count(dur), sum(dur) AS total,
       quantile_cont(dur::DOUBLE, [0.5, 0.95]), max(dur)
FROM ({lines}) GROUP BY ph, cat, name ORDER BY total DESC NULLS LAST, n DESC, ph, cat, name
"""
PROBE = "SELECT count(ph), count(cat), count(name), count(dur) FROM ({lines})"
# The names of the directories of a file say nothing of its columns (hive_partitioning).
LINES = """
SELECT ph, cat, name, dur FROM read_json(?, format = 'newline_delimited', compression = '{codec}',
    columns = {{ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', dur: 'DECIMAL(18, 3)'}},
    ignore_errors = true, hive_partitioning = false, maximum_object_size = {line_bytes})
"""
DUCKDB_CODEC = {"plain": "uncompressed", "gzip": "gzip", "zstd": "zstd"}

# Beyond this DuckDB goes to its directory of temporary files. Figures of a hundred million spans
# and of a million names fit.
MEMORY_LIMIT = "1GiB"
DISK_LIMIT = "16GiB"
# Each thread holds two lines of the greatest length.
MOST_THREADS = 8

ROWS_AT_ONCE = 10_000


@dataclass
class _Source:
    """A file, and the name under which DuckDB gets it or the copy that stands for it."""

    file: TraceFile
    end: TraceEnd
    given: Path
    codec: Codec
    salvaged: bool = False


class Scan:
    """The scan of a set of files, with stand-ins for those that DuckDB cannot read.

    DuckDB gets every file under a name of ours, in a directory of ours, and may open
    nothing else: no name that somebody chose is a pattern, an address or SQL.

    Args:
        files: the traces.
        spare: an empty directory, for links and copies.

    Attributes:
        tears: for files that end before their time, where and why.
        skipped: files of directories that could not be read.
        long_lines: lines that were passed over since they are too long.

    Raises:
        TraceError: a file that was asked for cannot be read.
    """

    def __init__(self, files: Sequence[TraceFile], spare: Path) -> None:
        self.spare = spare
        self.tears: dict[Path, str] = {}
        self.skipped: list[SkippedFile] = []
        self.long_lines = 0
        self._cut_lines = 0
        # Before 2.0 the bracket cost the line behind it too; ours is a name, without figures.
        self._bracket_costs_a_line = _duckdb().__version__.startswith("1.")
        sources = [self._source(at, file) for at, file in enumerate(files)]
        self._sources = [source for source in sources if source]

    def _source(self, at: int, file: TraceFile) -> _Source | None:
        try:
            source = _Source(file, read_end(file), self.spare / str(at), file.codec)
            self._prepare(source)
        except TraceError as error:
            self._skip(file, error)
            return None
        return source

    def _prepare(self, source: _Source) -> None:
        file, end = source.file, source.end
        costly = self._bracket_costs_a_line and file.framed and not file.named
        if not end.whole and file.path.stat().st_size == 0:
            self.tears[file.path] = "the file is empty"
        elif costly or (not end.whole and file.codec != "plain"):
            self._salvage(source)
        elif not end.whole:
            self.tears[file.path] = "the last line is cut"
            self._cut_lines += 1
        if not source.salvaged:
            source.given.symlink_to(file.path.absolute())

    def _skip(self, file: TraceFile, error: TraceError) -> None:
        if file.asked_for:
            raise error
        self.tears.pop(file.path, None)
        self.skipped.append(SkippedFile.because_of(error, file.path))

    @property
    def read(self) -> list[tuple[TraceFile, TraceEnd]]:
        """The files whose lines the figures hold, with their ends."""
        return [(source.file, source.end) for source in self._sources]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield ph, cat, name, count, count of durations, their sum, quantiles and greatest.

        Raises:
            TraceError: the files cannot be read, or their figures need too much memory.
        """
        duckdb = _duckdb()
        if not self._sources:
            raise TraceError(str(self.skipped[0]))
        try:
            yield from self._query()
        except duckdb.OutOfMemoryException as error:
            raise TraceError(
                f"the traces cannot be added up in {MEMORY_LIMIT} of memory and {DISK_LIMIT} of "
                "temporary files; give fewer at a time"
            ) from error
        except duckdb.Error:
            # Broken data, or a line too long, in some file: read that one as far as it goes.
            self._salvage_unreadable()
        else:
            return
        if not self._sources:
            raise TraceError(str(self.skipped[0]))
        try:
            yield from self._query()
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise TraceError(f"the traces cannot be read: {reason}") from error

    def _salvage_unreadable(self) -> None:
        with self._connect() as connection:
            checked = [self._readable(connection, source) for source in self._sources]
        self._sources = [source for source in checked if source]

    def _readable(self, connection: Any, source: _Source) -> _Source | None:
        try:
            if not (source.salvaged or _opens(connection, source)):
                self._salvage(source)
        except TraceError as error:
            self._skip(source.file, error)
            return None
        return source

    def _salvage(self, source: _Source) -> None:
        """Replace a file by a copy of the lines that can be read of it."""
        import zstandard

        reader = TraceReader(source.file)
        long_lines = 0
        source.given.unlink(missing_ok=True)
        try:
            # Compressed, since the file may be small only as long as it is.
            with (
                source.given.open("xb") as out,
                zstandard.ZstdCompressor(level=1).stream_writer(out) as copy,
            ):
                for _, line in reader.lines():
                    if isinstance(line, LongLine):
                        long_lines += 1
                    elif line not in FRAMING:
                        copy.write(line + b"\n")
        except OSError as error:
            raise DftraceError(
                f"temporary files cannot be written to {self.spare}: {error.strerror}; "
                "choose another place with TMPDIR"
            ) from error
        self.long_lines += long_lines
        if self.tears.pop(source.file.path, None) == "the last line is cut":
            self._cut_lines -= 1
        if reader.tear:
            self.tears[source.file.path] = str(reader.tear)
        source.codec = "zstd"
        source.salvaged = True

    def rows_of_nulls(self) -> int:
        """Return how many rows of nulls stand for framing and cut ends and not for a fault."""
        lost = 2 if self._bracket_costs_a_line else 1
        as_they_are = [source for source in self._sources if not source.salvaged]
        opening = lost * sum(source.file.framed for source in as_they_are)
        closing = sum(source.end.bracket for source in as_they_are)
        return opening + closing + self._cut_lines

    def _query(self) -> Iterator[tuple[Any, ...]]:
        by_codec: dict[Codec, list[str]] = {}
        for source in self._sources:
            by_codec.setdefault(source.codec, []).append(str(source.given))
        lines = " UNION ALL ".join(map(_lines_of, by_codec))
        with self._connect() as connection:
            result = connection.execute(QUERY.format(lines=lines), list(by_codec.values()))
            while rows := result.fetchmany(ROWS_AT_ONCE):
                yield from rows

    def _connect(self) -> Any:
        """Return a DuckDB that can open the files of the scan and temporary ones of its own."""
        options = {
            "memory_limit": MEMORY_LIMIT,
            "max_temp_directory_size": DISK_LIMIT,
            "threads": str(min(len(os.sched_getaffinity(0)), MOST_THREADS)),
            "temp_directory": str(self.spare / "duckdb"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        }
        connection = _duckdb().connect(config=options)
        # It would be drawn into the table, or the JSON, of who asks by `python -c`.
        connection.execute("SET enable_progress_bar = false")
        names = ", ".join(
            "'" + str(source.given).replace("'", "''") + "'" for source in self._sources
        )
        connection.execute(f"SET allowed_paths = [{names}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection


def _opens(connection: Any, source: _Source) -> bool:
    """Return whether DuckDB reads a file from end to end."""
    try:
        connection.execute(PROBE.format(lines=_lines_of(source.codec)), [[str(source.given)]])
    except _duckdb().Error:
        return False
    return True


def _lines_of(codec: Codec) -> str:
    return LINES.format(codec=DUCKDB_CODEC[codec], line_bytes=LINE_BYTES)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise DftraceError("a summary needs DuckDB; install it with: pip install duckdb") from error
    return duckdb
