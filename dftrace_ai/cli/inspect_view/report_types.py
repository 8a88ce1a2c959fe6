"""What `dftrace inspect check --json` prints, as types."""

from __future__ import annotations

# That of `typing` does not tell pydantic enough before Python 3.12.
from typing_extensions import TypedDict

__all__ = [
    "DueSteps",
    "GemmReport",
    "ModifiedTensor",
    "ProblemReport",
    "Report",
    "SectionReport",
    "StatisticsReport",
]


class DueSteps(TypedDict):
    """The iterations in which something is done."""

    rule: str
    first: list[int]
    more: bool
    """There are others behind the first."""
    count: int | None
    """How many of `steps`; None where nobody said how long the training is."""
    steps: int | None


class StatisticsReport(TypedDict):
    """The statistics of a tensor."""

    feature: str
    tensor: str
    stats: list[str]
    due: DueSteps


class ModifiedTensor(TypedDict):
    """What is done with a tensor on its way into a GEMM."""

    feature: str
    format: str | None
    margin: float


class GemmReport(TypedDict):
    """A GEMM in which anything is done."""

    gemm: str
    fp8: bool
    modified: dict[str, ModifiedTensor]


class SectionReport(TypedDict):
    """A section of the config."""

    name: str
    layers: str
    selected: list[str] | None
    """Names of layers; None where there is no model."""
    gemms: list[GemmReport]
    statistics: list[StatisticsReport]
    explicit_statistics: list[StatisticsReport]
    custom_features: list[str]


class ProblemReport(TypedDict):
    """Something that is wrong."""

    severity: str
    where: str
    text: str
    error: str | None
    """Name of the exception that a training would get; None for a warning."""


class Report(TypedDict):
    """What a config does."""

    config: str
    sections: list[SectionReport]
    disabled: list[str]
    layers_in_no_section: list[str] | None
    problems: list[ProblemReport]
