"""The extension of IPython and Jupyter: cells that are traced."""
