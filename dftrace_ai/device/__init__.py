"""Time on accelerators: intervals of their streams, on the timeline of the host."""
