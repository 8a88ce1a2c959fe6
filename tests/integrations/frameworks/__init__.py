"""Trainings of the frameworks on top of torch."""
