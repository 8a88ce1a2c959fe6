"""Interpreters and programs of other shapes: a tracker's process finds what the training has found."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipapp
from pathlib import Path

import pytest
from conftest import clean_environment

from .cases import HERE, LIMIT_S

PROGRAM = """\
import sys
{first}
sys.path.insert(0, {place!r})
from dftrace_ai.loggers import make_loggers
config = {{"config": {{"run_name": "run", "status_line": False, "limit_s": 20.0}}}}
logs = make_loggers({{"local": config, {tracker!r}: config}})
for step in range(3):
    logs.log_iter({{"loss": float(step)}})
"""
TRACKER = """\
from dftrace_ai.loggers import BaseLogint

class Kept(BaseLogint):
    name = "kept"

    def log_metrics(self, metrics, step):
        self.say(step)

    def log_file(self, *args):
        pass

    def finish(self, status):
        self.say(status)

    def say(self, what):
        import os
        with open(self.run.log_dir / "kept.txt", "a") as file:
            print(os.getpid(), what, file=file)
"""


def run(command: list[str], folder: Path) -> tuple[list[str], str, int]:
    """Run a program; returns what its tracker has kept, what it told, and its number."""
    process = subprocess.Popen(
        command, cwd=folder, env=clean_environment(), stderr=subprocess.PIPE, text=True
    )
    _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, told
    kept = (folder / "runs" / "default" / "run" / "kept.txt").read_text().splitlines()
    return kept, told, process.pid


def assert_kept_apart(kept: list[str], told: str, number: int) -> None:
    assert [line.partition(" ")[2] for line in kept] == ["0", "1", "2", "finished"]
    assert str(number) not in {line.partition(" ")[0] for line in kept}, "it is the same process"
    assert told == ""


@pytest.mark.parametrize("flags", ["-I", "-S", "-s -B -W error"])
def test_flags_of_the_interpreter(tmp_path: Path, flags: str) -> None:
    place = tmp_path / "modules"
    place.mkdir()
    (place / "keeping.py").write_text(TRACKER)
    script = tmp_path / "script.py"
    site = "import site; site.main()" if flags == "-S" else ""
    program = PROGRAM.format(first=site, place=str(place), tracker="kept")
    script.write_text(program.replace("from dftrace", "import keeping\nfrom dftrace", 1))
    found = run([sys.executable, *flags.split(), str(script)], tmp_path)
    assert_kept_apart(*found)


def test_program_in_an_archive(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    program = PROGRAM.format(first="", place=str(HERE), tracker="kept")
    (source / "__main__.py").write_text(program.replace("from dft", "import keeping\nfrom dft", 1))
    (source / "keeping.py").write_text(TRACKER)
    zipapp.create_archive(source, tmp_path / "program.pyz")
    assert_kept_apart(*run([sys.executable, "program.pyz"], tmp_path))


def test_interface_of_another_package(tmp_path: Path) -> None:
    place = tmp_path / "packages"
    facts = place / "keeping-1.0.dist-info"
    facts.mkdir(parents=True)
    (place / "keeping.py").write_text(TRACKER)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: keeping\nVersion: 1.0\n")
    points = "[dftrace_ai.logints]\nkept = keeping:Kept\n"
    (facts / "entry_points.txt").write_text(textwrap.dedent(points))
    script = place / "script.py"
    script.write_text(PROGRAM.format(first="", place=str(place), tracker="kept"))
    # The program does not find these, for it lies elsewhere.
    for name in ("json", "pickle", "signal", "struct", "tempfile"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    assert_kept_apart(*run([sys.executable, str(script)], tmp_path))


def test_class_of_the_script_stays_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    program = PROGRAM.format(first="", place=str(HERE), tracker="kept")
    script.write_text(TRACKER + program)
    kept, told, number = run([sys.executable, str(script)], tmp_path)
    assert kept == [f"{number} {what}" for what in (0, 1, 2, "finished")]
    assert told == ""
