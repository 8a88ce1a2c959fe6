"""Layers point one way: held by reading the imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import rooms
from analysis.trace_lines import small_trace
from layers import INSIDE, MOST_UNTYPED, circles, inside, sizes, strays, untyped, upward

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dftrace_ai"

HEAVY = {
    "torch",
    "pydantic",
    "duckdb",
    "psutil",
    "yaml",
    "orjson",
    "rich",
    "typer",
    "zstandard",
    "numpy",
}

READ_WITHOUT_THE_CORE = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name in ("dftrace_ai._native", "duckdb"):
            raise ImportError("blocked")

sys.meta_path.insert(0, Blocked())
import os
os.environ["DFTRACE_RUN"] = "0-0"
import dftrace_ai.analysis.validating
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary import summarise
(trace,) = open_traces(sys.argv[1:2])
assert trace.header.host == "host" and trace.end.state == "complete"
rows = sum(len(batch["name"]) for batch in open_traces([trace.path]).batches(["name"]))
assert rows == len(list(trace.events()))
assert summarise([trace.path]).events == trace.end.footer.events
assert "torch" not in sys.modules and "dftrace_ai.run" not in sys.modules
try:
    import dftrace_ai.run
except ImportError as error:
    print(error)
"""

WITHOUT_THE_READER = """
import sys
sys.modules["dftrace_ai._reader"] = None
import dftrace_ai
from dftrace_ai import ai
from typer.testing import CliRunner
from dftrace_ai.cli import app
done = CliRunner().invoke(app, ["why", "."])
print(done.exit_code, done.output)
"""


def run(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_each_room_imports_only_what_lies_below_it() -> None:
    assert upward(PACKAGE) == []


def test_the_parts_of_a_room_import_only_what_lies_below_them() -> None:
    assert inside(PACKAGE) == []


def test_the_parts_of_inspect_stand_above_each_other() -> None:
    parts = {path.stem for path in (PACKAGE / "inspect").iterdir()} - {"__init__", "__pycache__"}
    assert parts == set(INSIDE["inspect"])
    lower: set[str] = set()
    for part, below in INSIDE["inspect"].items():
        # In the order of the table nothing is below what comes later.
        assert below <= lower, part
        lower.add(part)


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert (
        run(f"import sys, dftrace_ai.annotation; print(sorted(set(sys.modules) & {HEAVY!r}))")
        == "[]"
    )


def test_traces_are_read_where_the_recorder_cannot_be_loaded(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    assert run(READ_WITHOUT_THE_CORE, str(path)) == "blocked"


def test_without_the_native_reader_reading_says_what_to_do() -> None:
    told = run(WITHOUT_THE_READER)
    assert told.startswith("2 dftrace: traces are read by dftrace_ai._reader, which cannot"), told
    assert "install a wheel" in told


def test_a_config_of_inspection_is_read_without_torch_and_without_a_run() -> None:
    names = "{'torch', 'dftrace_ai.run', 'dftrace_ai._native'}"
    assert (
        run(f"import sys, dftrace_ai.inspect.config; print(set(sys.modules) & {names})") == "set()"
    )


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(PACKAGE) == []


def test_files_have_a_size_that_one_takes_in() -> None:
    assert sizes(PACKAGE) == []
    assert sizes(ROOT / "tests") == []


def test_all_tests_can_be_run_at_once() -> None:
    """Files that are in no package are modules by their names alone."""
    files = (ROOT / "tests").rglob("test_*.py")
    names = [path.name for path in files if not path.with_name("__init__.py").exists()]
    assert sorted(names) == sorted(set(names))


def test_what_is_in_a_mapping_is_said_but_where_json_or_a_config_is_read() -> None:
    found = untyped(PACKAGE)
    assert len(found) <= MOST_UNTYPED, found


def test_only_leaves_stand_at_the_top() -> None:
    assert strays(PACKAGE) == []


def test_the_drawing_is_made_from_the_imports() -> None:
    assert rooms.DRAWING.read_text(encoding="utf-8") == rooms.drawing(), (
        "run: python docs/design/rooms.py"
    )


@pytest.mark.parametrize(
    ("path", "line", "rule"),
    [
        ("run/ending.py", "from dftrace_ai.annotation.tree import ai", upward),
        ("run/ending.py", "import dftrace_ai.cli", upward),
        ("analysis/reading/reader.py", "import dftrace_ai._native as _native", upward),
        ("analysis/reading/reader.py", "from dftrace_ai import _native", upward),
        ("run/ending.py", "from dftrace_ai import _reader", upward),
        ("errors.py", "from dftrace_ai.wording import counted", upward),
        ("trace_format/lines.py", "importlib.import_module('dftrace_ai.config.settings')", upward),
        ("trace_format/lines.py", "def late():\n    from dftrace_ai.run.run import Run", upward),
        ("trace_format/lines.py", "if TYPE_CHECKING:\n    import dftrace_ai.live", upward),
        ("spools/search.py", "from dftrace_ai import ai", upward),
        ("run/hooks.py", "from dftrace_ai.run.ending import end", circles),
        ("run/one.py", "\n" * 601, sizes),
        ("run/one.py", "def settle(given: dict[str, Any]) -> None: ...", untyped),
        ("another.py", "", strays),
        ("inspect/config/names.py", "from dftrace_ai.inspect.session import open_session", inside),
    ],
)
def test_a_planted_violation_is_found(
    tmp_path: Path, path: str, line: str, rule: Callable[[Path], Sequence[object]]
) -> None:
    package = tmp_path / "dftrace_ai"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    before = rule(package)
    with (package / path).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    assert len(rule(package)) > len(before)


def test_a_long_file_says_why_it_is_one_subject(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text('"""All of it."""\n' + "\n" * 600)
    assert sizes(tmp_path) == ["long.py: 601 lines"]
    file.write_text('"""All of it; one subject, since its parts share a state."""\n' + "\n" * 600)
    assert sizes(tmp_path) == []
