"""Disks, clocks, memory and numbers of threads that are not as one would wish."""
