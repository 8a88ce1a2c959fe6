"""What tracing costs the step of a training, in the processor time of all threads."""
