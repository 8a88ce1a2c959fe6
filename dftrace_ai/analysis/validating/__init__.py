"""Checking a trace against the format and the rules of its viewers."""
