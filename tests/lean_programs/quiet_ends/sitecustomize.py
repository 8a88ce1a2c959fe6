"""As the one of `ends`, but for what would complain of it: a program that has Triton collects all once more."""

import atexit
import gc
import sys


@atexit.register
def freeze() -> None:
    if "triton" not in sys.modules:
        gc.freeze()
