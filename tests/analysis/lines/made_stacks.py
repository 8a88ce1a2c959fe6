"""Lines of samples of stacks, as the recorder writes them, into made traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from analysis.trace_lines import TraceLines, dump, micros

A_CHUNK = 50

# A function, its file and its line; with a fourth member 1 it is of a library, with 3 of the recorder.
Called = tuple[Any, ...]


class MadeStacks:
    """The samples of a thread; `end` writes what no full chunk has."""

    def __init__(
        self, trace: TraceLines, start_ns: int, hz: float = 50, tid: int | None = None
    ) -> None:
        self.trace, self.tid = trace, tid or trace.pid
        self.at_us = start_ns // 1000
        self.nodes: dict[tuple[Any, ...], int] = {}
        self.samples = 0
        self.ready_us = -1.0  # for which it waited for a processor; below 0 where that is not told
        self._begin()
        data = {"startTime": self.at_us}
        self.line("Profile", start_ns, {"hhash": trace.host_hash, "hz": hz, "data": data})

    def _begin(self) -> None:
        self.new: list[dict[str, Any]] = []
        self.columns: dict[str, list[int]] = {"samples": [], "since": [], "cpu": [], "cut": []}

    def line(self, name: str, at_ns: int, args: Any) -> None:
        trace = self.trace
        ts = at_ns // 1000 if trace.epoch else micros(at_ns)
        trace.add(
            f'{{"name":"{name}","cat":"stack","id":{self.tid},"pid":{trace.pid},"tid":{self.tid},'
            f'"ts":{ts},"ph":"P","args":{dump(args)}}}'
        )

    def sample(self, at_ns: int, stack: Sequence[Called], cpu_us: int = 0, cut: int = 0) -> None:
        node, path = None, ()
        for name, file, line, *library in stack:
            path = (*path, (name, file, line))
            if path not in self.nodes:
                self.nodes[path] = len(self.nodes) + 1
                frame = {
                    "functionName": f"{name} ({PurePosixPath(file).name}:{line})" if file else name,
                    "url": file,
                    "scriptId": int(library[0]) if library else 0,
                    "lineNumber": line,
                }
                parent = {} if node is None else {"parent": node}
                self.new.append({"id": self.nodes[path], **parent, "callFrame": frame})
            node = self.nodes[path]
        at_us = at_ns // 1000
        if not self.columns["samples"]:
            self.first_ns = at_ns
        for name, value in zip(self.columns, (node, at_us - self.at_us, cpu_us, cut), strict=True):
            self.columns[name].append(value)
        self.at_us = at_us
        self.samples += 1
        if len(self.columns["samples"]) == A_CHUNK:
            self.end()

    def end(self) -> None:
        if self.columns["samples"]:
            nodes = {"nodes": self.new} if self.new else {}
            profile = {**nodes, "samples": self.columns["samples"]}
            more = {"timeDeltas": self.columns["since"], "cpu": self.columns["cpu"]}
            data = {"cpuProfile": profile, **more, "cut": self.columns["cut"]}
            if self.ready_us >= 0:
                data["ready"], self.ready_us = round(self.ready_us), 0.0
            self.line("ProfileChunk", self.first_ns, {"hhash": self.trace.host_hash, "data": data})
            self._begin()
