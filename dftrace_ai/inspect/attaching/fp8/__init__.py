"""Emulated FP8: its recipes, and the amax and scales of delayed scaling."""
