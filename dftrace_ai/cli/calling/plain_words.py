"""Words of a call that are plainly what an option wants, taken without a library of models.

Typer has pydantic look at each of them from 0.29 on, and to load that takes longer than to sum up
an indexed trace. It still looks at those that are not plain, and words what is wrong with them.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand

__all__ = ["QuickCommand", "quickly"]


def quickly(params: list[Any]) -> list[Any]:
    """Return parameters of typer's, made to convert plain words by themselves."""
    for param in params:
        wanted = getattr(param, "type_descriptor", None)
        # Older versions load nothing for it.
        if wanted is not None and not isinstance(param.process_value, _Quickly):
            param.process_value = _Quickly(param, wanted.annotation)
    return params


class QuickCommand(TyperCommand):
    """A command that converts plain words by itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, that for the help among them."""
        return quickly(super().get_params(ctx))


class _Quickly:
    """What a parameter makes of the words given for it."""

    def __init__(self, param: Any, wanted: Any) -> None:
        self._param = param
        self._wanted = wanted
        self._thoroughly = param.process_value

    def __call__(self, ctx: Any, value: Any) -> Any:
        param = self._param
        plain, is_plain = self._converted(value)
        if not is_plain or (param.required and plain in (None, (), [])):
            return self._thoroughly(ctx, value)
        return param.callback(ctx, param, plain) if param.callback else plain

    def _converted(self, value: Any) -> tuple[Any, bool]:
        several = self._param.multiple or self._param.nargs == -1
        if value is None:
            return (() if several else None), True
        if not several:
            plain = self._plain(self._wanted, value)
            return plain, plain is not None
        if get_origin(self._wanted) is not list or not isinstance(value, (list, tuple)):
            return None, False
        (kind,) = get_args(self._wanted)
        each = [self._plain(kind, item) for item in value]
        return each, None not in each

    def _plain(self, kind: Any, word: Any) -> Any:
        """Return what a word stands for; None where it is not plain."""
        if not isinstance(kind, type):
            return None
        if not isinstance(word, str):
            # A default, which has its type.
            return word if type(word) is kind else None
        if issubclass(kind, Enum):
            return next((one for one in kind if one.value == word), None)
        if kind is str:
            return word
        if kind is Path:
            # Typer refuses what is there and cannot be read.
            return Path(word) if os.access(word, os.R_OK) else None
        if kind in (int, float) and word.isascii() and word.replace(".", "", 1).isdigit():
            if kind is int and not word.isdigit():
                return None
            number = kind(word)
            least, most = self._param.min, self._param.max
            within = (least is None or number >= least) and (most is None or number <= most)
            return number if within else None
        return None
