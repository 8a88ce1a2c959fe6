"""What is read as traces: each format a module, chosen in `registry` by the head of a file."""
