"""Every kind of fault is found, at its line, and a good trace has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace

from dftrace_ai.analysis.validating import FileCheck, validate_traces

START = 1_123_213_646_764_123


def check(trace: TraceLines, path: Path, **options: bool) -> FileCheck:
    (found,) = validate_traces([trace.write(path)], **options).files
    return found


def only_fault(trace: TraceLines, path: Path) -> tuple[int, str]:
    found = check(trace, path)
    assert found.fault_count == 1, [str(fault) for fault in found.faults]
    assert str(found.faults[0]).startswith(f"{path}:{found.faults[0].line}: ")
    return found.faults[0].line, found.faults[0].message


def span_line(trace: TraceLines, old: str, new: str) -> int:
    """Alter the line of the first span; returns its number."""
    at = next(at for at, line in enumerate(trace.lines) if '"ph":"X"' in line)
    assert old in trace.lines[at]
    trace.lines[at] = trace.lines[at].replace(old, new, 1)
    return at + 1


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('"ph":"X"', '"ph":"Z"', "'Z'"),
        ('"ph":"X",', "", "'ph'"),
        ('"dur":0.800,', "", "dur: field required"),
        ('"dur":0.800', '"dur":0.8', "three decimals"),
        ('"dur":0.800', '"dur":0.8001', "three decimals"),
        ('"dur":0.800', '"dur":"0.800"', "dur: not a finite number"),
        ('"name":"forward"', '"name":7', "name: "),
        ('"level":1', '"level":"1"', "args.level: "),
        ('"2a702c695247d487"', '"XYZ"', "args.hhash: "),
        ('"step":2', '"step":NaN', "args.step: not a value that viewers keep"),
        ('"step":2', '"step":[1,null]', "args.step: not a value that viewers keep"),
        ('"step":2', '"step":99999999999999999999', "args.step: not a value that viewers keep"),
        ('"step":2', '"step":', "JSON"),
        ('"step":2', r'"step":"\\"', "backslash"),
        ('"step":2', r'"step":"\ud83d\ude00"', "surrogate"),
        ("{", "[", "JSON"),
        ('"cat":"compute"', '"cat":"compute","color":"red"', "color: "),
    ],
)
def test_a_faulty_line(tmp_path: Path, old: str, new: str, part: str) -> None:
    trace = small_trace()
    # The footer is made afterwards, so that the line is all that is wrong.
    trace.lines.pop()
    wrong = span_line(trace, old, new)
    trace.footer()
    found = check(trace, tmp_path / "t.pfw")
    line, message = found.faults[0].line, found.faults[0].message
    assert line == wrong
    assert part in message
    # A line that does not parse cannot be counted either.
    assert found.fault_count == 1


def test_what_only_looks_like_an_escape_is_no_fault(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.span("a\\b", "io", START + 5000, 1, path='C:\\"x"', note='\\\\"\\a', end="\\ ")
    trace.span("\\udata", "io", START + 5000, 1, path="C:\\udp")
    korean = trace.span("HANGUL", "io", START + 6000, 1)
    trace.lines[korean - 1] = trace.lines[korean - 1].replace("HANGUL", r"\ud55c\uD7A3")
    trace.footer()
    assert check(trace, tmp_path / "t.pfw").fault_count == 0


def test_whole_microseconds_are_asked_for_where_the_header_says_so(tmp_path: Path) -> None:
    trace = small_trace(timestamps="epoch_us")
    trace.lines.pop()
    trace.epoch = False
    wrong = trace.span("x", "y", TIME_BASE_US * 1000, 1500)
    trace.footer()
    line, message = only_fault(trace, tmp_path / "t.pfw")
    assert (line, "whole microseconds" in message) == (wrong, True)


@pytest.mark.parametrize(
    ("change", "line", "part"),
    [
        (lambda lines: lines.insert(3, ""), 4, "empty"),
        (lambda lines: lines.insert(3, "["), 4, "'['"),
        (lambda lines: lines.append("]"), 17, "']'"),
        (lambda lines: lines.append(lines[1]), 17, "behind the closing line 16"),
        (lambda lines: lines.__setitem__(4, lines[4] + ","), 5, "comma"),
        (lambda lines: lines.__setitem__(slice(1, 3), lines[2:0:-1]), 2, "process_name"),
        (lambda lines: lines.pop(0), 1, "first line"),
        (lambda lines: lines.insert(4, lines[3]), 5, "second header line"),
        (lambda lines: lines.pop(3), 5, "before the header"),
    ],
)
def test_faulty_framing(
    tmp_path: Path, change: Callable[[list[str]], object], line: int, part: str
) -> None:
    trace = small_trace()
    change(trace.lines)
    found = check(trace, tmp_path / "t.pfw")
    assert any(fault.line == line and part in fault.message for fault in found.faults), [
        str(fault) for fault in found.faults
    ]


@pytest.mark.parametrize(
    "name", ["events", "spans", "instants", "counters", "flows", "metadata", "unfinished", "bytes"]
)
def test_the_footer_must_count_right(tmp_path: Path, name: str) -> None:
    trace = small_trace()
    trace.lines.pop()
    last = trace.footer(**{name: 999})
    line, message = only_fault(trace, tmp_path / "t.pfw.gz")
    assert line == last
    assert f"says {name} 999" in message


def test_a_missing_footer_is_reported_unless_the_process_may_run(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    line, message = only_fault(trace, tmp_path / "t.pfw.gz")
    assert (line, "no closing line" in message) == (len(trace.lines), True)
    assert check(trace, tmp_path / "t.pfw.gz", unfinished_ok=True).fault_count == 0


@pytest.mark.parametrize("name", ["t.pfw", "t.pfw.gz", "t.pfw.zst"])
def test_a_torn_file_is_reported(tmp_path: Path, name: str) -> None:
    path = small_trace().write(tmp_path / name, lines_a_block=3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    (found,) = validate_traces([path]).files
    assert found.fault_count == 1
    assert "torn" in found.faults[0].message
    assert not found.closed


def test_the_first_faults_are_kept_by_line_and_all_are_counted(tmp_path: Path) -> None:
    for name in ("a.pfw", "b.pfw"):
        trace = TraceLines()
        trace.span("outer", "c", START, 100)
        trace.span("overlapping", "c", START + 50, 100)
        for number in range(20):
            trace.span("s", "c", START + 1000 + number, 0, level=-1)
        trace.footer()
        trace.write(tmp_path / name)
    result = validate_traces([tmp_path], limit=10)
    assert result.fault_count == 42
    faults = result.first_faults(10)
    assert [Path(fault.path).name for fault in faults] == ["a.pfw"] * 10
    assert [fault.line for fault in faults] == list(range(6, 16))


def test_an_id_that_is_used_twice_is_a_fault(tmp_path: Path) -> None:
    trace = small_trace()
    footer = trace.lines.pop()
    repeated = [line for line in trace.lines if '"ph":"i"' in line or '"ph":"C"' in line][:1]
    trace.lines += [*repeated, footer]
    found = check(trace, tmp_path / "t.pfw")
    told = [fault.message for fault in found.faults]
    assert any("is that of an event before it; ids are used once" in message for message in told)
    assert [fault.line for fault in found.faults if "ids" in fault.message] == [
        len(trace.lines) - 1
    ]


def test_the_ends_of_an_arrow_share_their_id_and_parts_of_a_trace_share_none(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(["t-1.pfw", "t-1.part1.pfw", "t-2.pfw"]):
        trace = TraceLines(pid=2 if number == 2 else 1)
        trace.last_id = 100 * number if number < 2 else 0
        trace.instant("now", 10)
        trace.footer()
        trace.write(tmp_path / name)
    assert validate_traces([tmp_path]).fault_count == 0
    again = TraceLines(pid=1)
    again.instant("now", 10)
    again.footer()
    again.write(tmp_path / "t-1.part1.pfw")
    found = {Path(file.path).name: file for file in validate_traces([tmp_path]).files}
    assert [file.fault_count for _, file in sorted(found.items())] == [1, 0, 0]
    assert "ids are used once" in str(found["t-1.part1.pfw"].faults[0])


def test_each_process_of_a_file_that_was_put_together_has_ids_of_its_own(tmp_path: Path) -> None:
    together = small_trace()
    second = TraceLines(pid=together.pid + 1)
    second.instant("now", 10)
    second.footer()
    together.lines += second.lines[1:]
    told = [fault.message for fault in check(together, tmp_path / "t.pfw").faults]
    assert any("behind the closing line" in message for message in told)
    assert not [message for message in told if "ids are used once" in message]


def test_ids_that_lie_far_apart_are_not_all_looked_at(tmp_path: Path) -> None:
    trace = TraceLines()
    for number in range(66_000):
        trace.last_id = number * 4096
        trace.instant("now", number)
    trace.footer()
    found = check(trace, tmp_path / "t.pfw.gz")
    assert found.fault_count == 0
    assert found.notes == (
        "whether ids are used once was checked for some of them only: they lie far apart",
    )
