"""What the tests start has the default actions for signals, however the tests were started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
