"""Plots as SVG, drawn without a library."""
