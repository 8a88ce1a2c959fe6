"""Spools in memory: finding them, and completing the traces of processes that died."""
