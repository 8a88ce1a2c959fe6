"""The table of the matrix, as it stands in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from stress.conftest import PAGE, ROWS
from stress.judge import Verdict
from stress.table import Row, as_markdown, cells_of, write_into

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "what-happens-when.md"
OF_THE_KERNEL = "OOM kill"
BY_OURSELVES = "SIGKILL, since no OOM kill"


def runs_in_whole(session: pytest.Session) -> bool:
    """Whether every test that makes a row is part of this session, and has come before."""
    if any(
        session.config.getoption(option) for option in ("keyword", "markexpr", "lf", "deselect")
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
