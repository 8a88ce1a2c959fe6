"""The folders that a text of the settings names."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote

__all__ = ["EVERYWHERE", "folders_of"]

EVERYWHERE: Final = "all"
"""As a list of folders: every file."""


def folders_of(text: str | None) -> tuple[str, ...]:
    """Return the absolute paths of the folders that a setting names.

    Args:
        text: paths with colons between them, also such as ``file:///data``; ``all`` for every
            file. Folders that are not on this machine (``s3://...``) are left out.
    """
    if not text:
        return ()
    if text == EVERYWHERE:
        return ("/",)
    whole = os.path.exists(text)  # noqa: PTH110 - of a text that may be no path
    found: dict[str, None] = {}
    for one in [text] if whole else re.split(r":(?!//)", text):
        scheme, mark, rest = one.partition("://")
        if mark and scheme != "file":
            continue
        path = "/" + unquote(rest).partition("/")[2] if mark else one
        if path:
            found[os.path.abspath(os.path.expanduser(path))] = None  # noqa: PTH100, PTH111
    return tuple(found)
