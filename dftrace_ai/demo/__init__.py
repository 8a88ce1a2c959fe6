"""A small, real training with every phase annotated: what `dftrace demo` and the benchmark run."""
