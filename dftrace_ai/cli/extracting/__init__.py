"""The commands that take events out of traces: answers to SQL, files for other tools."""
