"""What experiment logging costs."""
