"""From the text of a trace to columns: natively where that was built, else in Python."""
