"""Where a value that is not finite was seen first."""
