"""Lines of a trace, without those at which a native reader has looked already."""
