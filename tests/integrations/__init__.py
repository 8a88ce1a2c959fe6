"""Tests of what frameworks trace by themselves."""
