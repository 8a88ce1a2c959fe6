"""One page over all runs, for one person at one machine: its server, and what it answers with."""
