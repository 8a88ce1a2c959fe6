"""What lies between `initialize` and `end_debug`."""
