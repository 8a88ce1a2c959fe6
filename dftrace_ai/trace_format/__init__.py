"""What a trace is: its lines, its names, the facts in its first and last line."""
