"""The documentation held against the code: examples, tables, blocks and links."""
