"""Which step, epoch and evaluation a training is in, and whether it is one that is recorded."""
