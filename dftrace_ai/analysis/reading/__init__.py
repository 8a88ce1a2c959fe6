"""Finding, opening and decoding trace files."""
