"""A command that holds no copy in memory: what archives and profiles hold goes to `TMPDIR`."""

from __future__ import annotations

import sys

PROGRAM = """
import sys
from dftrace_ai.analysis.reading.importing import copies
from dftrace_ai.cli import main
copies.MOST_MEMORY_BYTES = 0
sys.argv[0] = "dftrace"
main()
"""

COMMAND = (sys.executable, "-c", PROGRAM)
