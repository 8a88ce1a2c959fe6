"""The bench suite: dftrace_ai beside its peers, in interleaved rounds, as ratios."""
