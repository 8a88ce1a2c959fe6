"""What `dftrace inspect` shows: a config held against a model, and the report."""
