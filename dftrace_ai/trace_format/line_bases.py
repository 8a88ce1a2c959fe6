"""What the models of lines have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

# pydantic evaluates the annotations:
from dftrace_ai.trace_format.values import ArgValue, Pid, Tid  # noqa: TC001

__all__ = ["FixedObject", "Line", "OpenArgs"]


class Line(BaseModel):
    """What every line has."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    name: str
    cat: str
    pid: Pid
    tid: Tid


class OpenArgs(BaseModel):
    """Arguments to which more may be added."""

    model_config = ConfigDict(strict=True, extra="allow", defer_build=True)

    __pydantic_extra__: dict[str, ArgValue]


class FixedObject(BaseModel):
    """An object within the arguments of a line."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)
