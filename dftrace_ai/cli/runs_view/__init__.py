"""How runs and answers about them are printed."""
