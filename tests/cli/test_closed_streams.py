"""Commands that are called without streams: they do their work, and say what they can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from analysis.trace_lines import small_trace
from conftest import clean_environment

# Each in a child of its own that has closed some of its streams, as `>&-` does.
PROGRAM = """
import os, sys
from dftrace_ai.cli import main

for words in sys.argv[2:]:
    for closed in ((1,), (2,), (0, 1, 2)):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(write, 9)
            for number in closed:
                os.close(number)
                setattr(sys, ("stdin", "stdout", "stderr")[number], None)
            sys.argv = ["dftrace", *words.split(), sys.argv[1]]
            try:
                main()
            except SystemExit as end:
                os._exit(end.code or 0)
            except BaseException as error:
                os.write(9, repr(error).encode())
                os._exit(99)
        os.close(write)
        said = os.read(read, 1000)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(words, closed, status, said)
        sys.stdout.flush()
"""


# Without a query.
WRONG = "sql --csv"


def test_a_closed_stream_is_no_fault(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(dropped=12)
    path = trace.write(tmp_path / "t.pfw.gz")
    before = path.read_bytes()
    commands = ["summary", "why --json", WRONG, "info", "validate", "report --json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, *commands],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line for line in done.stdout.splitlines() if line.endswith("b''")]
    statuses = {row.rpartition(" b")[0] for row in rows}
    assert statuses == {
        f"{words} {closed} {2 if words == WRONG else 0}"
        for words in commands
        for closed in ("(1,)", "(2,)", "(0, 1, 2)")
    }, done.stdout
    assert path.read_bytes() == before
