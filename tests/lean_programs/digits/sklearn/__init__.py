"""Stands for scikit-learn, of which trainings have the digits: to import all of it takes them over a second."""
