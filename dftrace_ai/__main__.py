"""`python -m dftrace_ai` is the command `dftrace`, where no script of its name is on the path."""

from dftrace_ai.cli import main

main()
