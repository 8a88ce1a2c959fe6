"""The session that is open in this process, if one is, and what is chosen for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dftrace_ai.inspect.session.session import Session

__all__ = ["session", "weights_are_reduced"]

session: Session | None = None
"""The open session."""

weights_are_reduced = True
"""Whether statistics of weights are merged over the tensor-parallel group."""
