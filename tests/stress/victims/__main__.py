"""A victim in an interpreter of its own: python -m stress.victims NAME FOLDER OPTIONS."""

from __future__ import annotations

import json
import sys

from stress.victims import run

if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
