"""What `dftrace top` shows: its screen, its page and its table."""
