"""Work that an interpreter of its own does, beside the program."""
