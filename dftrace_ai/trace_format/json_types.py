"""What JSON is in Python, where it comes in or goes out and no model says more of it."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON; also the arguments by name of a call that is somebody else's."""
