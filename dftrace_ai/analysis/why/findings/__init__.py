"""What makes a step slow, a rule for each finding: by shares, phases, patterns and counters."""
