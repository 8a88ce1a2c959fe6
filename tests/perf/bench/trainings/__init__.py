"""What tracing costs a real training."""
