"""From the text of a trace to columns, by the native reader."""
