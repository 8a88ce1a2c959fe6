"""What traces say of themselves: heads of blocks, index lines, and whether clocks were right."""
