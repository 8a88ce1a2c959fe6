"""What runs in processes that have a tracker, and the module that tests and these share."""
