"""The victims: what is done to spans while something happens to their process."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from stress.account import Place


def run(name: str, folder: str, options: dict[str, Any]) -> None:
    """Be the victim `name`, such as ``endings.os_exit``."""
    module, _, function = name.partition(".")
    getattr(importlib.import_module(f"stress.victims.{module}"), function)(
        Place(Path(folder)), **options
    )
