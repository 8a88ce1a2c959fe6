"""What a program loads that imports the package, begins a run, records a span and ends the run."""

from __future__ import annotations

import pytest
from conftest import RunScript

# Each takes milliseconds that every process of a training would pay.
NOT_LOADED = {
    *("pydantic", "pydantic_core", "psutil", "yaml", "typer", "rich", "orjson", "numpy", "torch"),
    *("typing_extensions", "annotated_types", "zstandard", "duckdb"),
    *("json", "tempfile", "secrets", "random", "shutil", "platform", "subprocess", "dataclasses"),
    *("inspect", "difflib", "hashlib", "signal", "ctypes", "asyncio", "decimal", "datetime"),
}

PROGRAM = """
import sys
before = set(sys.modules)
{begin}
with ai.compute.forward:
    pass
dftrace_ai.finalize()
print(str(sorted({names!r} & (set(sys.modules) - before))).replace("'", '"'))
"""

KEYWORDS = """
import os
import dftrace_ai
from dftrace_ai import ai
dftrace_ai.initialize(log_file=os.environ.pop("DFTRACE_LOG_FILE"), compression="none", rank=3,
                      world_size=8, flush_interval_ms=50, finalize_timeout_s=10, data_dir="data")
"""
VARIABLES = """
import dftrace_ai
from dftrace_ai import ai
dftrace_ai.initialize()
"""


@pytest.mark.parametrize(
    ("begin", "env"),
    [
        (KEYWORDS, {}),
        (VARIABLES, {}),
        (VARIABLES, {"DFTRACE_RANK": "3", "DFTRACE_ARGS": "off", "DFTRACER_LOG_LEVEL": "INFO"}),
    ],
    ids=["keywords", "log file alone", "variables"],
)
def test_a_run_loads_no_package_and_no_slow_module(
    run_script: RunScript, begin: str, env: dict[str, str]
) -> None:
    done = run_script(PROGRAM.format(begin=begin, names=NOT_LOADED), env=env)
    assert done.said == [[]]
    assert done.trace().names == {"forward": 1}


def test_the_tree_alone_loads_nothing_that_begins_a_run(run_script: RunScript) -> None:
    done = run_script("""
        import sys
        before = set(sys.modules)
        from dftrace_ai import ai
        slow = {"pathlib", "dftrace_ai.config", "dftrace_ai.run.core_settings", "dftrace_ai.spools"}
        print(len(slow & (set(sys.modules) - before)))
    """)
    assert done.said == [0]


PARENT = """
import subprocess, sys
import dftrace_ai
with dftrace_ai.tracing():
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
CHILD = """
from dftrace_ai import ai
import dftrace_ai
"""


def test_nor_does_a_process_that_goes_on_with_the_run(run_script: RunScript) -> None:
    """It reads what its parent has settled."""
    child = PROGRAM.format(begin=CHILD, names=NOT_LOADED - {"json"})
    done = run_script(PARENT, args=[child])
    assert done.said == [[]]
    assert done.trace().names == {"forward": 1}
