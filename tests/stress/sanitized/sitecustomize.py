"""Lets the module built with sanitizers, on PYTHONPATH, go before the one that is installed."""

import sys

sys.meta_path[:] = [
    finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"
]
