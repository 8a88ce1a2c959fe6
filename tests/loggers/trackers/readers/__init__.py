"""What is particular to a tracker: what it keeps in which form, and a program that reads it back."""
