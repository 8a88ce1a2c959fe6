"""Spools, traces and numbers of files that were cut, removed, changed or closed."""
