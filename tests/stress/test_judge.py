"""The judge finds what is wrong: traces that were right, with one line changed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from conftest import trace_files

from stress.account import Place
from stress.conftest import NewPlace
from stress.judge import Verdict, judge
from stress.nursery import Nursery
from stress.table import Row, as_markdown


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


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found(name: str, place: Place) -> None:
    change, told = CHANGES[name]
    untouched = judge(place)
    assert untouched.holds(), untouched
    (path,) = trace_files(place.out)
    lines = change(path.read_text(encoding="utf-8").splitlines())
    path.write_text("\n".join(counts_mended(lines)) + "\n", encoding="utf-8")
    verdict = judge(place)
    assert not verdict.holds()
    if told == "lost":
        assert verdict.found == verdict.made - 1
    else:
        assert [fault for fault in verdict.wrong if told in fault], verdict.wrong


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
