"""Stands for moviepy, which encodes videos for some trackers, and tells who asks for it."""

from __future__ import annotations

import os

with open(os.environ["ATTEMPTS"], "a") as attempts:
    attempts.write("moviepy is asked for\n")
