"""Scenarios through the public API, read back from the files it wrote."""
