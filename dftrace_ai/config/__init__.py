"""The settings of a run: what they are, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.config.loading import load_config as load_config
    from dftrace_ai.config.model import Config as Config

__all__ = ["Config", "load_config"]


# A run is begun without the model where plain code can check what it was given.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dftrace_ai.config.loading import load_config
    from dftrace_ai.config.model import Config

    found = {"Config": Config, "load_config": load_config}
    globals().update(found)
    return found[name]
