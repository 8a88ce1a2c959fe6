"""Code of the user that `dftrace inspect` is given: models, and features of their own."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.arguments import executed
from dftrace_ai.inspect.errors import InspectError, InspectValueError
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from dftrace_ai.inspect.config.layers import LayerInfo

__all__ = ["layers_made_by", "register_features_in"]


def layers_made_by(factory: str) -> list[LayerInfo]:
    """Return the layers of the model that a function makes.

    Args:
        factory: module and function, such as ``train:make_model``. The current directory is
            searched first. What the function prints goes to the standard error stream.

    Raises:
        InspectValueError: there is no such function, it fails, or it makes no model.
    """
    module, colon, path = factory.partition(":")
    if not (module and colon and path):
        raise InspectValueError(
            f"--model {factory!r} is not accepted; accepted: module:function, "
            "such as train:make_model"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            made: Any = importlib.import_module(module)
            for name in path.split("."):
                made = getattr(made, name)
            made = made()
        # It is the user's code: anything may come out of it.
        except Exception as error:
            raise InspectValueError(f"--model {factory}: {_described_in_line(error)}") from error
    from torch import nn

    from dftrace_ai.inspect.naming import layers_of

    if not isinstance(made, nn.Module):
        raise InspectValueError(
            f"--model {factory}: gives a {type(made).__name__}; a torch.nn.Module is needed"
        )
    return [layer.info for layer in layers_of(made)]


def register_features_in(directories: list[str]) -> None:
    """Execute the Python files of directories, as `initialize(feature_dirs=...)` does.

    What they print goes to the standard error stream.

    Raises:
        InspectError: a directory does not exist, or a file fails.
    """
    with contextlib.redirect_stdout(sys.stderr):
        try:
            executed(directories)
        except InspectError:
            raise
        # It is the user's code: anything may come out of it.
        except Exception as error:
            raise InspectValueError(f"--feature-dirs: {_described_in_line(error)}") from error


def _described_in_line(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{described(error)} ({last.filename}:{last.lineno})"
