"""What traces say of themselves: heads of blocks, and index lines."""
