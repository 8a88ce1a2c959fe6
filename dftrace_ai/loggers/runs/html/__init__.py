"""Runs on a page of HTML."""
