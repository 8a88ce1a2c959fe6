"""Commands that start a program."""
