"""Lets ``python -m dftrace_ai.cli`` do what the command `dftrace` does."""

from dftrace_ai.cli import main

main()
