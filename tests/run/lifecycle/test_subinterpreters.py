"""A subinterpreter cannot record, and is told so; the main interpreter goes on."""

from __future__ import annotations

import pytest
from conftest import RunScript

PROGRAM = """
import json, os, sys

def made():
    if sys.version_info >= (3, 13):
        import _interpreters
        return _interpreters, _interpreters.create("legacy")
    import _xxsubinterpreters
    # Not isolated: such a one may import every extension, unless that refuses by itself.
    return _xxsubinterpreters, _xxsubinterpreters.create(isolated=False)

first = sys.argv[1] == "main"
if first:
    import dftrace_ai
    from dftrace_ai import ai
    dftrace_ai.initialize()
    with ai.compute.forward:
        pass
interpreters, other = made()
interpreters.run_string(other, '''
import os
for name in ("dftrace_ai.annotation", "dftrace_ai._native", "dftrace_ai.run"):
    try:
        __import__(name)
        said = "imported"
    except ImportError as error:
        said = str(error)
    os.write(1, (said + "\\\\n").encode())
''')
interpreters.destroy(other)
import dftrace_ai
from dftrace_ai import ai
dftrace_ai.initialize()
with ai.compute.forward:
    pass
dftrace_ai.finalize()
"""


@pytest.mark.parametrize("first", ["main", "other"])
def test_the_import_is_refused_with_a_reason(run_script: RunScript, first: str) -> None:
    done = run_script(PROGRAM, args=[first])
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("dftrace_ai cannot be imported in a subinterpreter")
    assert done.trace(perfetto=False).names == {"forward": 2 if first == "main" else 1}
