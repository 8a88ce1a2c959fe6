"""Frameworks that drive a training and take no callback: they are heard of by `auto` alone."""
