"""The native validator and the rules in Python find the same in any trace, whatever is wrong with it."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from analysis.broken_traces import traces
from analysis.trace_lines import HOST_HASH, TIME_BASE_US, TraceLines, small_trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import SEED, times

from dftrace_ai.analysis import validating as validate
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.reader import LongLine
from dftrace_ai.analysis.reading.trace import Trace
from dftrace_ai.analysis.validating import FileCheck, FilePass, validate_traces
from dftrace_ai.analysis.validating.rules import Fault, Rules
from dftrace_ai.errors import TraceError

FUZZ_CORPUS = Path(__file__).parents[2] / "native/fuzz/corpus/scan.tar.xz"


@pytest.fixture(autouse=True)
def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found natively alone is not compared."""
    monkeypatch.setattr(FilePass, "repeated_ids", lambda _self: (0, []))


NEVER = 2**63 - 1


class EveryLine:
    """What `FilePass` has, by the rules and sorted spans: slow, and plain."""

    def __init__(self, file: Trace, limit: int, _parts: Any = None) -> None:
        self.rules = Rules(str(file.path), limit, self, dict)
        self._reader = file.reader()
        self._spans: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.lines = 0

    def run(self) -> None:
        plain_bytes = 0
        for self.lines, line in self._reader.lines():
            self.rules.line(self.lines, line, plain_bytes)
            plain_bytes += (line.size if isinstance(line, LongLine) else len(line)) + 1

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        end_ns = NEVER if end_ns is None else min(end_ns, NEVER)
        self._spans[pid, tid].append((min(start_ns, NEVER), -end_ns, line))

    @property
    def tear(self) -> Any:
        return self._reader.tear

    def native_faults(self, limit: int) -> tuple[int, list[Fault]]:
        faults = sorted(self._overlaps())
        return len(faults), faults[:limit]

    def _overlaps(self) -> Iterator[Fault]:
        for (pid, tid), spans in self._spans.items():
            around: list[tuple[int, int]] = []
            for start, minus_end, line in sorted(spans):
                while around and around[-1][0] <= start:
                    around.pop()
                if not around or around[-1][0] >= -minus_end:
                    around.append((-minus_end, line))
                    continue
                message = (
                    f"on pid {pid} tid {tid} the span overlaps the one of line {around[-1][1]} "
                    "in part: neither holds the other"
                )
                yield Fault(self.rules.path, line, message)

    def notes(self) -> tuple[str, ...]:
        return ()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".zst": zstandard.compress
}  # fmt: skip


def found_by(
    how: Any, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> FileCheck | str:
    with monkeypatch.context() as patch:
        patch.setattr(validate, "FilePass", how)
        try:
            (check,) = validate_traces([path], **options).files
        except TraceError as error:
            return str(error)
    return check


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=traces(), codec=st.sampled_from([*PACK]), size=st.integers(1, 30), cut=st.integers(0, 200)
)
def test_both_find_the_same(
    text: bytes, codec: str, size: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.pfw"
        split = text.splitlines(keepends=True)
        blocks = [b"".join(split[at : at + size]) for at in range(0, len(split), size)]
        packed = b"".join(map(PACK[codec], blocks))
        path.write_bytes(packed[:-cut] if cut < 20 and cut < len(packed) - 40 else packed)
        for options in ({"limit": 3}, {"limit": 1000, "unfinished_ok": True}):
            truth = found_by(EveryLine, path, monkeypatch, **options)
            assert found_by(FilePass, path, monkeypatch, **options) == truth


moments = st.integers(0, 12)
lengths = st.one_of(st.integers(0, 6), st.none())
spans = st.tuples(st.sampled_from([1, 2]), moments, lengths, moments)


@settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(found=st.lists(spans, max_size=14), in_order=st.booleans(), parents=st.booleans())
def test_both_find_the_same_overlaps(
    found: list[tuple[int, int, int | None, int]],
    in_order: bool,
    parents: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_order:
        found.sort(key=lambda span: (99 if span[2] is None else span[1] + span[2], -span[1]))
    trace = TraceLines()
    for tid, start, duration, parent in found:
        if duration is None:
            trace.unfinished("open", "c", start * 1000, tid=tid)
        elif parents:
            trace.span("s", "c", start * 1000, duration * 1000, tid=tid, p_idx=parent)
        else:
            trace.event("X", "s", "c", start * 1000, duration * 1000, tid=tid, hhash=HOST_HASH)
    trace.footer()
    with tempfile.TemporaryDirectory() as folder:
        path = trace.write(Path(folder) / "t.pfw.gz")
        truth = found_by(EveryLine, path, monkeypatch)
        assert found_by(FilePass, path, monkeypatch) == truth


@pytest.mark.sampled
def test_kept_inputs_of_the_fuzzer_are_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginning = TraceLines().text
    with tarfile.open(FUZZ_CORPUS) as kept:
        inputs = [kept.extractfile(one).read() for one in kept if one.isfile()]  # type: ignore[union-attr]
    assert len(inputs) > 100
    inputs = random.Random(SEED).sample(inputs, times(len(inputs), 0.2))
    for number, lines_of_input in enumerate(inputs):
        path = tmp_path / f"{number}.pfw"
        path.write_bytes(beginning + lines_of_input + b"\n")
    with monkeypatch.context() as patch:
        patch.setattr(validate, "FilePass", EveryLine)
        truth = validate_traces([tmp_path])
    assert validate_traces([tmp_path]) == truth
    assert truth.fault_count > len(inputs)


@pytest.mark.parametrize("name", ["t.pfw", "t.pfw.gz", "t.pfw.zst"])
@pytest.mark.parametrize("timestamps", ["relative", "epoch_us"])
def test_what_is_plainly_right_is_not_looked_at_in_python(
    tmp_path: Path, name: str, timestamps: str
) -> None:
    trace = small_trace(timestamps=timestamps)
    trace.lines.pop()
    start = TIME_BASE_US * 1000
    for at, value in enumerate([True, None, "t\u00e4xt\n", 2**63 - 1, 1e-7, ["a", {"b": [1]}], {}]):
        end = start + 1000 * (at + 5000)
        trace.span("in\\ner", "compute", end, 500_000, **{"a b": value, "step": at})
        trace.instant("now", end, what=value)
        trace.counter("loss", end, loss=at / 7, steps=at)
    trace.footer()
    path = trace.write(tmp_path / name)
    (file,) = open_traces([path]).files
    passed = FilePass(file, 10)
    looked_at = []
    rule = passed.rules.line

    def line(number: int, text: bytes, plain_bytes: int) -> None:
        looked_at.append(text)
        rule(number, text, plain_bytes)

    passed.rules.line = line  # type: ignore[method-assign]
    passed.run()
    assert passed.rules.fault_count == 0
    assert passed.lines == len(trace.lines)
    kinds = [json.loads(text)["ph"] for text in looked_at if text != b"["]
    assert set(kinds) == {"M", "B"}
    assert len(looked_at) < 12
