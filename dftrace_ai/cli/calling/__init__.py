"""From the words of a call to a command: which is meant, and what its options are given."""
