"""A window of a trace shows the same, whether or not the native reader leaves out what is elsewhere."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import orjson
import pytest
from analysis.broken_traces import traces
from analysis.trace_lines import TIME_BASE_US, TraceLines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dftrace_ai import _reader
from dftrace_ai.analysis import merged_trace
from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import Trace, open_traces
from dftrace_ai.analysis.reading.given_lines import GivenLines, LinesNear, TimeWindow, lines_near
from dftrace_ai.errors import TraceError


def all_lines(trace: Trace, _window: TimeWindow, shift_us: int) -> LinesNear:
    return lines_near(trace, None, shift_us)


def window_of(paths: list[Path], window: TimeWindow) -> tuple[bytes, list[str]] | str:
    try:
        merged = MergedTrace(open_traces(paths), window)
        return b"".join(merged), merged.notes
    except TraceError as error:
        return str(error)


@settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(traces(), min_size=1, max_size=2),
    begin=st.sampled_from([0, 3, 11, 29, 31, 32, 500, TIME_BASE_US]),
    length=st.sampled_from([0, 1, 5, 1000]),
    packed=st.booleans(),
)
def test_both_show_the_same(
    texts: list[bytes], begin: int, length: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = TimeWindow(float(begin), float(begin + length))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, text in enumerate(texts):
            paths.append(Path(folder) / f"{number}.pfw")
            blocks = text.splitlines(keepends=True)
            paths[-1].write_bytes(b"".join(map(gzip.compress, blocks)) if packed else text)
        found = window_of(paths, window)
        with monkeypatch.context() as patch:
            patch.setattr(merged_trace, "lines_near", all_lines)
            assert found == window_of(paths, window)


def test_what_is_elsewhere_is_not_looked_at_in_python(tmp_path: Path) -> None:
    trace = TraceLines()
    for step in range(1000):
        trace.span("step", "compute", step * 1_000_000, 900_000, step=step)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw.gz", lines_a_block=50)
    (file,) = open_traces([path])
    near = _reader.WindowLines(500_000_000, 509_000_000, 0)
    found = [orjson.loads(line) for _, _, line in GivenLines(file.file, near) if line != b"["]
    assert [event["args"]["step"] for event in found if event["ph"] == "X"] == list(range(500, 510))
    assert sum(event["ph"] == "M" for event in found) == 4
    assert near.left_out == (0, 999_900_000)
