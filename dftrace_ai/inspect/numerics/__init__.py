"""Statistics of tensors, and their emulation in 8-bit floating-point formats."""
