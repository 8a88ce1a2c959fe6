"""Samples of stacks in the forms of speedscope and pprof.

Loaded late, by a conversion to one of them: it needs NumPy, as that for Perfetto does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson

from dftrace_ai.analysis.converting.placing import ConvertedFile, gzip_member
from dftrace_ai.analysis.lines.stack_samples import StackReader
from dftrace_ai.analysis.protobuf import field, number, packed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dftrace_ai.analysis.lines.stack_samples import StackSamples
    from dftrace_ai.analysis.reading import TraceSet

PPROF_VALUES: Final = (("samples", "count"), ("wall", "nanoseconds"), ("cpu", "nanoseconds"))


class _Thread(NamedTuple):
    """The samples of a thread, and what it is called."""

    name: str
    process: str
    rank: int | None
    samples: StackSamples


def _threads_of(traces: TraceSet, reader: StackReader) -> Iterator[_Thread]:
    owners = traces.owners
    for owner in owners.all:
        for samples in reader.read(owner.files):
            called = owners.labels[owner.number]
            for tid in np.unique(samples.tid).tolist():
                main = "main thread" if tid == samples.pid else f"thread {tid}"
                of_thread = samples.at(samples.tid == tid)
                yield _Thread(f"{called}, {main}", called, owner.header.rank, of_thread)


def write_for_speedscope(
    traces: TraceSet, path: Path, name: str
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the samples of stacks as speedscope reads them: a profile for each thread.

    https://www.speedscope.app/file-format-schema.json has the form.
    """
    reader, count = StackReader(), 0
    profiles = []
    for thread in _threads_of(traces, reader):
        samples = thread.samples
        count += len(samples)
        # Samples of one stack that follow each other are one, with the weight of all.
        first = np.flatnonzero(np.append(True, samples.stack[1:] != samples.stack[:-1]))
        weights = np.add.reduceat(samples.period_ns, first).tolist()
        stacks = [reader.tree.stack(node) for node in samples.stack[first].tolist()]
        numbers = reader.tree.numbers
        profiles.append(
            {
                "type": "sampled",
                "name": thread.name,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [[numbers[frame] for frame in stack] for stack in stacks],
                "weights": weights,
            }
        )
    frames = []
    for frame in reader.tree.frames:
        function = reader.tree.functions[frame.function]
        place = {"file": function.file} if function.file else {}
        line = {"line": frame.line} if frame.line else {}
        frames.append({"name": function.name, **place, **line})
    told = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": profiles,
        "exporter": "dftrace",
    }
    path.write_bytes(orjson.dumps(told))
    return [_of_samples(name, path, count)], _notes_of(reader, count)


def write_for_pprof(
    traces: TraceSet, path: Path, name: str
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the samples of stacks as pprof reads them: how many, and for how long, by thread.

    https://github.com/google/pprof/blob/main/proto/profile.proto has the form, whose numbers of
    fields stand here.
    """
    reader, count = StackReader(), 0
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    out = bytearray()
    for kind, unit in PPROF_VALUES:
        out += field(1, number(1, text(kind)) + number(2, text(unit)))
    for thread in _threads_of(traces, reader):
        samples = thread.samples
        count += len(samples)
        labels = [("process", thread.process), ("thread", thread.name)]
        told = b"".join(field(3, number(1, text(a)) + number(2, text(b))) for a, b in labels)
        if thread.rank is not None:
            told += field(3, number(1, text("rank")) + number(3, thread.rank))
        busy = np.clip(samples.cpu_ns / np.maximum(samples.since_ns, 1), 0, 1) * samples.period_ns
        nodes, which = np.unique(samples.stack, return_inverse=True)
        times = np.bincount(which), np.bincount(which, samples.period_ns), np.bincount(which, busy)
        rows = zip(nodes.tolist(), *(each.astype(np.int64).tolist() for each in times), strict=True)
        for node, *values in rows:
            stack = reader.tree.stack(node)
            places = [reader.tree.numbers[frame] + 1 for frame in reversed(stack)]
            out += field(2, packed(1, places) + packed(2, values) + told)
    for place, frame in enumerate(reader.tree.frames, 1):
        line = number(1, frame.function + 1) + number(2, frame.line)
        out += field(4, number(1, place) + field(4, line))
    for at, function in enumerate(reader.tree.functions, 1):
        called = text(function.name)
        named = number(2, called) + number(3, called) + number(4, text(function.file))
        out += field(5, number(1, at) + named)
    out += number(14, text("wall"))
    for one in texts:
        out += field(6, one.encode("utf-8", "surrogateescape"))
    path.write_bytes(gzip_member(bytes(out)))
    return [_of_samples(name, path, count)], _notes_of(reader, count)


def _of_samples(name: str, path: Path, count: int) -> ConvertedFile:
    return ConvertedFile(name, None, count, path.stat().st_size)


def _notes_of(reader: StackReader, count: int) -> list[str]:
    none = [] if count else ["there are no samples of stacks; lines_hz has them recorded"]
    return [*reader.notes, *none]
