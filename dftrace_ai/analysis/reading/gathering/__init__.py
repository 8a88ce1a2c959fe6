"""What is read as traces and does not lie on the disk as such: patterns, archives, profiles."""
