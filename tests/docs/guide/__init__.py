"""The pages of the guide held against the code."""
