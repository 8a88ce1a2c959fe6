"""The public API as type checkers see it: what is right passes, what is wrong is found."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dftrace_ai

USAGE = Path(__file__).with_name("usage.py")


def check(command: list[str], folder: Path) -> None:
    """Runs a type checker in the folder; what it says is the failure's text."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The usages alone, so that the checkers find the package as an installed one."""
    shutil.copy(USAGE, tmp_path)
    return tmp_path


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(dftrace_ai.__file__).parent / "py.typed").exists()


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_strict(folder: Path) -> None:
    options = ["--strict", "--no-incremental", "--warn-unreachable"]
    check([sys.executable, "-m", "mypy", *options, "usage.py"], folder)


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_strict(folder: Path) -> None:
    settings = {
        "include": ["usage.py"],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": True,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    check([sys.executable, "-m", "pyright", "--pythonpath", sys.executable], folder)
