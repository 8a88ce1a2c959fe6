"""What a program has imported it does not collect once more as it ends: with torch that takes half a second."""

import atexit
import gc

atexit.register(gc.freeze)
