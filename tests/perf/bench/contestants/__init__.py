"""One module per contestant; each builds the subjects that a worker process times."""
