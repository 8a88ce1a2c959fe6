"""Functions of Python's own, and others in their place."""
