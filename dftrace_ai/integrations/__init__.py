"""Frameworks that trace themselves: a training is recorded without a change of its code."""
