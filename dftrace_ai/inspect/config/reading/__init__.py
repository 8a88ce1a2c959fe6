"""From a file or a dict to sections, with everything that is wrong on the way."""
