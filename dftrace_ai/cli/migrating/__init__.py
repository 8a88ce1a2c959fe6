"""`dftrace migrate`: programs that import dftracer import `dftrace_ai.compat.dftracer` instead."""
