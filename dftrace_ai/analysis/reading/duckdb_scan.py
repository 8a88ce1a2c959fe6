"""Scans of many trace files at once, in a DuckDB that sees nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.reader import FRAMING, LINE_BYTES, LongLine
from dftrace_ai.analysis.reading.trace_file import EMPTY, SkippedFile
from dftrace_ai.database.asking import execute
from dftrace_ai.database.opening import duckdb_module, lock, open_database
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Codec

__all__ = ["MOST_THREADS", "Scan", "Source", "paths_of", "scan_of"]

# The names of the directories of a file say nothing of its columns (hive_partitioning).
LINES = """
SELECT {names} FROM read_json(?, format = 'newline_delimited', compression = '{codec}',
    columns = {{{columns}}}, ignore_errors = true, hive_partitioning = false,
    maximum_object_size = {line_bytes}{more})
"""
PROBE = "SELECT {counts} FROM ({lines})"
DUCKDB_CODEC = {"plain": "uncompressed", "gzip": "gzip", "zstd": "zstd"}

# Each thread holds two lines of the greatest length.
MOST_THREADS = 8


@contextmanager
def scan_of(traces: Sequence[Trace], columns: Mapping[str, str]) -> Iterator[Scan]:
    """Give a scan, whose links and copies are gone with the ``with`` block; as `Scan`."""
    with SpareFolder() as directory:
        yield Scan(traces, directory, columns)


@dataclass
class Source:
    """A trace, and the name under which DuckDB gets it or the copy that stands for it."""

    trace: Trace
    given: Path
    codec: Codec
    salvaged: bool = False


class Scan:
    """The scan of a set of files, with stand-ins for those that DuckDB cannot read.

    DuckDB gets every file under a name of ours, in a directory of ours, and may open
    nothing else: no name that somebody chose is a pattern, an address or SQL.

    Args:
        traces: the traces.
        spare: an empty directory, for links and copies.
        columns: the members of a line that are read, each with its type in DuckDB.

    Attributes:
        sources: the traces that are read, in their order; the last part of the name that
            DuckDB has for one is its number among those that were given.
        tears: for files that end before their time, where and why.
        skipped: files of directories that could not be read.
        long_lines: lines that were passed over since they are too long.

    Raises:
        TraceError: a file that was asked for cannot be read.
    """

    def __init__(self, traces: Sequence[Trace], spare: Path, columns: Mapping[str, str]) -> None:
        self.spare = spare
        self.columns = dict(columns)
        self.tears: dict[Path, str] = {}
        self.skipped: list[SkippedFile] = []
        self.long_lines = 0
        # Before 2.0 the bracket cost the line behind it too; ours is a name, without figures.
        self._bracket_costs_a_line = duckdb_module().__version__.startswith("1.")
        sources = [self._source(at, trace) for at, trace in enumerate(traces)]
        self.sources = [source for source in sources if source]

    def _source(self, at: int, trace: Trace) -> Source | None:
        source = Source(trace, self.spare / str(at), trace.file.codec)
        try:
            self._prepare(source)
        except TraceError as error:
            self._skip(trace, error)
            return None
        return source

    def _prepare(self, source: Source) -> None:
        file, end = source.trace.file, source.trace.end
        costly = self._bracket_costs_a_line and file.framed and not file.named
        if not end.whole and file.content.stat().st_size == 0:
            self.tears[file.path] = EMPTY
        elif costly or (not end.whole and file.codec != "plain"):
            self.salvage(source)
        elif not end.whole:
            self.tears[file.path] = "the last line is cut"
        if not source.salvaged:
            source.given.symlink_to(file.content.absolute())

    def _skip(self, trace: Trace, error: TraceError) -> None:
        if trace.file.asked_for:
            raise error
        self.tears.pop(trace.path, None)
        self.skipped.append(SkippedFile.because_of(error, trace.path))

    def _some_source(self) -> None:
        if not self.sources:
            raise TraceError(str(self.skipped[0]))

    def salvage_unreadable(self) -> None:
        """Replace the files that DuckDB does not read to their end.

        Raises:
            TraceError: none is left.
        """
        with self.connect() as connection:
            checked = [self._readable(connection, source) for source in self.sources]
        self.sources = [source for source in checked if source]
        self._some_source()

    def _readable(self, connection: Any, source: Source) -> Source | None:
        try:
            if not (source.salvaged or self.opens(connection, [source])):
                self.salvage(source)
        except TraceError as error:
            self._skip(source.trace, error)
            return None
        return source

    def opens(self, connection: Any, sources: Sequence[Source]) -> bool:
        """Return whether DuckDB reads files from end to end."""
        counts = ", ".join(f"count({name})" for name in self.columns)
        query = PROBE.format(counts=counts, lines=self.lines(sources))
        try:
            execute(connection, query, paths_of(sources))
        except duckdb_module().Error:
            return False
        return True

    def salvage(self, source: Source) -> None:
        """Replace a file by a copy of the lines that can be read of it.

        Raises:
            TraceError: it cannot be read any more.
            DftraceError: there is no room for the copy.
        """
        import zstandard

        reader = source.trace.reader()
        path = source.trace.path
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
        self.tears.pop(path, None)
        if reader.tear:
            self.tears[path] = str(reader.tear)
        source.codec = "zstd"
        source.salvaged = True

    def lines(self, sources: Sequence[Source], *, named: bool = False) -> str:
        """Return the SQL of the lines of files; `paths_of` gives its parameters.

        A line that is no event is a row of nulls.

        Args:
            sources: the files.
            named: with a further column ``filename``.
        """
        names = [*self.columns, *(["filename"] if named else [])]
        return " UNION ALL ".join(
            LINES.format(
                names=", ".join(names),
                codec=DUCKDB_CODEC[codec],
                columns=", ".join(f"{name}: '{kind}'" for name, kind in self.columns.items()),
                line_bytes=LINE_BYTES,
                more=", filename = true" if named else "",
            )
            for codec in _by_codec(sources)
        )

    def connect(self) -> Any:
        """Return a DuckDB that can open the files of the scan and temporary ones of its own."""
        connection = open_database(self.spare, MOST_THREADS)
        lock(connection, (source.given for source in self.sources))
        return connection


def _by_codec(sources: Sequence[Source]) -> dict[Codec, list[str]]:
    paths: dict[Codec, list[str]] = {}
    for source in sources:
        paths.setdefault(source.codec, []).append(str(source.given))
    return paths


def paths_of(sources: Sequence[Source]) -> list[list[str]]:
    """Return the parameters of `Scan.lines`."""
    return list(_by_codec(sources).values())
