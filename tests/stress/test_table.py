"""The judge finds what is wrong, in traces with one line changed; the table stands in the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import trace_files

from stress.account import Place
from stress.conftest import PAGE, ROWS, NewPlace
from stress.judge import Verdict, judge
from stress.nursery import Nursery
from stress.table import Row, as_markdown, cells_of, write_into


@pytest.fixture
def place(nursery: Nursery, new_place: NewPlace) -> Place:
    """What a program leaves that ends inside of spans, one of which nobody ends."""
    place = new_place()
    victim = nursery.start("endings.sys_exit", place, settings={"compression": "none"})
    assert victim.ended() == 3, victim.said
    return place


Change = Callable[[list[str]], list[str]]


def line_of(lines: list[str], number: int = 31) -> int:
    """Which line holds the span of that number; number 31 has none inside of it."""
    (found,) = [i for i, line in enumerate(lines) if f'"n":{number},' in line]
    return found


def changed(pattern: str, replacement: str) -> Change:
    """Replaces something in the line of span 31."""

    def change(lines: list[str]) -> list[str]:
        at = line_of(lines)
        lines[at], count = re.subn(pattern, replacement, lines[at])
        assert count == 1, lines[at]
        return lines

    return change


def dropped(lines: list[str]) -> list[str]:
    """Without the line of span 31."""
    del lines[line_of(lines)]
    return lines


def repeated(lines: list[str]) -> list[str]:
    """With the line of span 31 twice, the second time under an id of its own."""
    again = re.sub(r'"id":\d+', '"id":999999', lines[line_of(lines)])
    return [*lines[:-1], again, lines[-1]]


def moved(lines: list[str]) -> list[str]:
    """With span 31 inside of the next one of its parent's kind."""
    (other,) = re.findall(r'^{"id":(\d+)', lines[line_of(lines, 32)])
    return changed(r'"p_idx":\d+', f'"p_idx":{other}')(lines)


CHANGES: dict[str, tuple[Change, str]] = {
    "a line is missing": (dropped, "lost"),
    "a line is there twice": (repeated, "twice there"),
    "of nobody": (changed(r'"diary":"[^"]+"', '"diary":"1-1-0"'), "nobody made"),
    "a number that was not made": (changed(r'"n":31,', '"n":3000,'), "nobody made"),
    "of another thread": (changed(r'"tid":\d+', '"tid":1'), "not by"),
    "too long": (changed(r'"dur":\d+', '"dur":99999999'), "takes more than"),
    "too short": (changed(r'"dur":\d+\.\d+', '"dur":0.001'), "takes less than"),
    "too early": (changed(r'"ts":\d+', '"ts":1'), "begins"),
    "elsewhere": (moved, "is not inside of"),
    "old arguments": (changed(r'"done":31', '"done":30'), "has not the arguments of its end"),
    "strange arguments": (changed(r'"done":31', '"done":31,"x":1'), "strange arguments"),
    "unfinished": (
        changed(r',"dur":\d+\.\d+,"ph":"X"(.*)"n"', r',"ph":"B"\1"unfinished":true,"n"'),
        "a line 'B' where",
    ),
}


def counts_mended(lines: list[str]) -> list[str]:
    """With a footer that says what the file holds, so that the judge is left with the spans."""
    spans, unfinished = (sum(f'"ph":"{ph}"' in line for line in lines) for ph in "XB")
    counts = {
        "events": spans + unfinished,
        "spans": spans,
        "unfinished": unfinished,
        "bytes": sum(len(line.encode()) + 1 for line in lines[:-1]),
        "file_bytes": 0,
    }
    for name, count in counts.items():
        lines[-1] = re.sub(rf'"{name}":\d+', f'"{name}":{count}', lines[-1])
    return lines


def test_changes_are_found(place: Place) -> None:
    assert judge(place).holds()
    (path,) = trace_files(place.out)
    untouched = path.read_text(encoding="utf-8").splitlines()
    for name, (change, told) in CHANGES.items():
        lines = counts_mended(change(untouched.copy()))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        verdict = judge(place)
        assert not verdict.holds(), name
        if told == "lost":
            assert verdict.found == verdict.made - 1
        else:
            assert [fault for fault in verdict.wrong if told in fault], (name, verdict.wrong)


def test_a_file_that_is_gone_is_found(place: Place) -> None:
    (path,) = trace_files(place.out)
    path.unlink()
    assert judge(place).found == 0


def test_a_spool_that_is_left_is_found(place: Place) -> None:
    (place.spools / "dftrace-0-1-0.spool").touch()
    assert judge(place).wrong == ["dftrace-0-1-0.spool is left"]


def test_a_row_that_does_not_hold_fails() -> None:
    for verdict in (Verdict(2, 1), Verdict(2, 2, ["wrong"]), Verdict()):
        row = Row("a fault")
        row.add(verdict)
        with pytest.raises(AssertionError, match="a fault"):
            row.hold()
    assert "| a fault | 0 | 0 | 0 |" in as_markdown([row])


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "what-happens-when.md"
OF_THE_KERNEL = "OOM kill"
BY_OURSELVES = "SIGKILL, since no OOM kill"


def runs_in_whole(session: pytest.Session) -> bool:
    """Whether every test that makes a row is part of this session, and has come before."""
    if any(
        session.config.getoption(option, None)
        for option in ("keyword", "markexpr", "lf", "deselect")
    ):
        return False
    if any("::" in argument for argument in session.config.args):
        return False
    files = Path(__file__).parent.rglob("test_*.py")
    making = {path for path in files if "fault_row" in path.read_text(encoding="utf-8")}
    return making - {Path(__file__)} <= {item.path for item in session.items}


def test_the_page_tells_of_all_faults(request: pytest.FixtureRequest) -> None:
    """Every fault that was tried stands there; in a run of all, nothing else does."""
    if PAGE:
        pytest.skip("the table is being written")
    told = [fault for fault, *_ in cells_of(GUIDE)]
    tried = [row.fault for row in request.config.stash.get(ROWS, [])]
    assert len(set(told)) == len(told)
    # Where nobody may limit memory, another row stands for the kernel's.
    swap = {fault: fault.startswith(BY_OURSELVES) for fault in tried}
    assert {fault for fault in tried if not swap[fault]} <= set(told)
    if runs_in_whole(request.session):
        missing = set(told) - set(tried)
        assert not {fault for fault in missing if not fault.startswith(OF_THE_KERNEL)}
        assert any(swap.values()) or not missing


def test_the_page_tells_of_nothing_lost_and_nothing_wrong() -> None:
    for fault, made, found, wrong in cells_of(GUIDE):
        assert made == found, fault
        assert int(made.replace(",", "")) > 0, fault
        assert wrong == "0", fault


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- faults: begin -->\nold\n<!-- faults: end -->\nb\n", encoding="utf-8")
    row = Row("a fault")
    row.add(Verdict(1234, 1233, ["wrong"]))
    for _ in range(2):
        write_into(page, [row])
        assert page.read_text(encoding="utf-8") == (
            f"a\n<!-- faults: begin -->\n{as_markdown([row])}\n<!-- faults: end -->\nb\n"
        )
    assert cells_of(page) == [("a fault", "1,234", "1,233", "1")]
