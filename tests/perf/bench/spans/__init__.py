"""The cost of a span: contestants that take turns, and instructions that are counted."""
