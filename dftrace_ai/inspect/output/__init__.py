"""Numbers on their way to files, loggers and the trace."""
