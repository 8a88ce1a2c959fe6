"""Samples of Python stacks: read from traces, laid into spans, and which line has most of them."""
