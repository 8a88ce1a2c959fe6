"""What becomes of events: the drain, recovery, sizes of files, and a reader of them."""
