"""The habits of the tests: samples of slow matrices, and signals of what they start."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sampling
from conftest import clean_environment
from sampling import sample, times

ROOT = Path(__file__).resolve().parents[2]
CASES = list(itertools.product(range(7), "abcd", (False, True)))
AXES = [dict(zip(("number", "letter", "on"), case, strict=True)) for case in CASES]


@pytest.fixture(autouse=True)
def _as_in_the_suite(monkeypatch):
    monkeypatch.setattr(sampling, "SHARE", None)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.5])
def test_each_value_of_each_axis_is_there(share):
    taken = sample(CASES, AXES, share)
    assert [set(values) for values in zip(*taken, strict=True)] == [
        set(values) for values in zip(*CASES, strict=True)
    ]
    assert len(taken) == max(7, round(share * len(CASES)))


def test_the_sample_is_the_same_each_time_and_in_order():
    taken = sample(CASES, AXES, 0.3)
    assert taken == sample(CASES, AXES, 0.3)
    assert taken == [case for case in CASES if case in taken]


def test_what_is_always_there_counts_for_its_values():
    always = [CASES.index((6, "d", True)), CASES.index((0, "a", False))]
    taken = sample(CASES, AXES, 0, always)
    assert {CASES[index] for index in always} < set(taken)
    assert len(taken) == 7


def test_all_are_run_where_all_are_asked_for(monkeypatch):
    monkeypatch.setattr(sampling, "SHARE", "1")
    assert sample(CASES, AXES, 0.01) == CASES
    assert times(30, 0.1) == 30
    monkeypatch.setattr(sampling, "SHARE", None)
    assert (times(30, 0.1), times(3, 0.1)) == (3, 1)


MATRIX = """
import pytest

@pytest.mark.sampled(0)
@pytest.mark.parametrize("one", [0, 1, pytest.param(2, marks=pytest.mark.always)])
@pytest.mark.parametrize("other", ["a", "b"])
def test_cell(one, other): pass

@pytest.mark.sampled
def test_that_asks_itself(): pass

def test_alone(): pass
"""

COLLECTING = """
import json, sys
import pytest, sampling

for share, words in json.loads(sys.argv[2]):
    sampling.SHARE = share
    pytest.main(["-c", sys.argv[1], "--collect-only", "-q", "-p", "conftest", *words])
"""


def test_pytest_runs_the_sample(tmp_path: Path) -> None:
    (tmp_path / "test_matrix.py").write_text(MATRIX)
    asked = [
        (None, ["test_matrix.py"]),
        ("1", ["test_matrix.py"]),
        ("1", ["test_matrix.py", "-m", "sampled"]),
        (None, ["test_matrix.py::test_cell[a-1]"]),
        (None, ["test_matrix.py", "-k", "a-0 or a-1 or alone"]),
    ]
    said = subprocess.run(
        [sys.executable, "-c", COLLECTING, str(ROOT / "pyproject.toml"), json.dumps(asked)],
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = [
        sorted(re.findall(r"::test_(\S+)", part)) for part in re.split("tests? collected", said)
    ]
    cells = [f"cell[{other}-{one}]" for other in "ab" for one in range(3)]
    assert {"cell[a-2]", "cell[b-2]", "alone", "that_asks_itself"} <= set(found[0])
    assert len(found[0]) == 2 + 4
    assert found[1:5] == [
        ["alone", *cells, "that_asks_itself"],
        [*cells, "that_asks_itself"],
        ["cell[a-1]"],
        ["alone", "cell[a-0]", "cell[a-1]"],
    ]


BACKGROUND = "trap '' HUP INT QUIT TERM; exec \"$@\""  # what `nohup ... &` does, and more
# Signals 32 and 33 are not a program's to set; whoever started the tests may ignore them.
OF_THE_C_LIBRARY = 0b11 << 31
PROGRAM = """
import subprocess
import conftest

for status in (open("/proc/self/status").read(), subprocess.check_output(["cat", "/proc/self/status"], text=True)):
    print([line for line in status.splitlines() if line.startswith("SigIgn:")][0].split()[1])
"""


def test_tests_in_the_background_start_programs_that_ignore_nothing() -> None:
    said = subprocess.run(
        ["sh", "-c", BACKGROUND, "sh", sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    of_python, of_a_program = (int(mask, 16) & ~OF_THE_C_LIBRARY for mask in said)
    assert of_python.bit_count() == 2  # SIGPIPE and SIGXFSZ, which are Python's affair
    assert of_a_program == 0
