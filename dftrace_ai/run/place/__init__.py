"""What the process is part of: its job, and its place among the ranks of a parallel training."""
