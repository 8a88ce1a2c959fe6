"""The part `io`: what is read and written by way of Python's files and `os`."""

from dftrace_ai.integrations.files.part import install, record_files

__all__ = ["install", "record_files"]
