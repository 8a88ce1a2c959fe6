"""The parts for PyTorch: each is installed alone and taken out again, and torch is as it was."""
