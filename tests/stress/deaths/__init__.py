"""Processes that are killed, crash, fork and end, and who reads them meanwhile."""
