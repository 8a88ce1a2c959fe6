"""Layers point one way: held by reading the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dftrace_ai"

# From leaf to root; a module may import what stands before it, and its own kind.
RECORDING = (
    {"errors", "_version", "uncaught", "vocabulary"},
    {
        "_native",
        "compiled_code",
        "given_arguments",
        "ranks",
        "held_directory",
        "spool_search",
        "unfinished_spools",
    },
    {"wrapping", "async_iteration", "recovery", "counters", "run_settings", "process_hooks"},
    {"node", "metadata_mode"},
    {"categories"},
    {"tree", "dft_fn"},
    {"run", "joined_settings"},
    {"run_end"},
    {"run_begin"},
    {"runtime"},
    {"tracer"},
)
CONFIGURING = {"config", "config_sources", "errors"}
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


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at the top or inside functions, for types or for use."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def own(path: Path) -> set[str]:
    """The modules of the package that a file imports at its top, by their first component."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "dftrace_ai":
                found.update(alias.name for alias in node.names)
            elif node.module.startswith("dftrace_ai."):
                found.add(node.module.split(".")[1])
    return found


@pytest.mark.parametrize("layer", range(len(RECORDING)))
def test_recording_modules_import_only_what_lies_below(layer: int) -> None:
    allowed = set().union(*RECORDING[: layer + 1])
    for name in RECORDING[layer]:
        path = PACKAGE / f"{name}.py"
        if path.exists():
            assert own(path) <= allowed, name


def test_configuration_knows_nothing_of_recording() -> None:
    for name in CONFIGURING:
        assert own(PACKAGE / f"{name}.py") <= CONFIGURING


def test_analysis_needs_neither_torch_nor_the_native_module() -> None:
    files = sorted((PACKAGE / "analysis").glob("*.py"))
    assert files
    for path in files:
        for name in imports(path):
            assert name.split(".")[0] != "torch", path
            if name.startswith("dftrace_ai."):
                assert name.split(".")[1] in {"analysis", "errors", "events", "vocabulary"}, path


def test_a_config_of_inspection_is_read_without_torch_and_without_a_run() -> None:
    files = [*(PACKAGE / "inspect" / "config").glob("*.py"), PACKAGE / "inspect" / "features.py"]
    assert len(files) > 5
    for path in files:
        assert own(path) <= {"inspect", "config_sources", "errors"}, path
        assert not [name for name in imports(path) if name.split(".")[0] == "torch"], path


def test_nothing_below_imports_the_command_line() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name not in {"cli", "demo"}:
            assert not [
                n for n in imports(path) if n.startswith(("dftrace_ai.cli", "dftrace_ai.demo"))
            ], path


def test_only_the_bindings_include_python() -> None:
    files = [p for p in (ROOT / "native").rglob("*.[ch]pp") if "bindings" not in p.parts]
    assert len(files) > 20
    for path in files:
        assert "Python.h" not in path.read_text(encoding="utf-8"), path


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, dftrace_ai; print(sorted(set(sys.modules) & {HEAVY!r}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
