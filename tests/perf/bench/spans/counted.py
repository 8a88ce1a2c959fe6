"""Runs one subject's loop under an instruction counter: `counted MODULE MODE SUBJECT PART N DIR`.

PART is "loop" or "baseline". The process ends at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys


def main() -> None:
    """Run the loop once, N iterations."""
    module, mode, subject, part, n, workdir = sys.argv[1:7]
    contestant = importlib.import_module(f"bench.contestants.{module}").Contestant(mode, workdir)
    chosen = contestant.subjects()[subject]
    gc.disable()
    (chosen.loop if part == "loop" else chosen.baseline)(int(n))
    # Not closed: what ends a trace would be counted as if it were part of the spans.
    os._exit(0)


if __name__ == "__main__":
    main()
