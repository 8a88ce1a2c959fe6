"""What is done when a run is over and its trace complete."""
