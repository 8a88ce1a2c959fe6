"""What `dftrace runs --json` prints, as types."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic evaluates it
from typing import Literal, TypeAlias

# That of `typing` does not tell pydantic enough before Python 3.12.
from typing_extensions import TypedDict

Number: TypeAlias = "float | str"
"""Numbers that are not finite go by their names."""


class FigureReport(TypedDict):
    """What a metric came to."""

    last: Number
    min: Number
    max: Number
    mean: Number
    count: int
    non_finite: int


class RunFacts(TypedDict):
    """A run."""

    run: str
    """Path below the directory that was searched."""
    project: str
    name: str
    status: str
    group_name: str | None
    tags: list[str]
    hosts: list[str]
    processes: int
    started_s: float | None
    """Seconds since 1970."""
    last_s: float | None
    duration_s: float | None
    step: int
    """The greatest number of an iteration; -1 without one."""
    rows: int
    media: int
    unreadable: int
    """Lines that are not as the format has them."""
    path: str


class RunReport(RunFacts):
    """A run, with all that was logged of it once."""

    params: Mapping[str, object]
    metrics: dict[str, FigureReport]
    notes: list[str]


class RunsReport(TypedDict):
    """The runs that were chosen, in their order."""

    kind: Literal["dftrace runs"]
    runs: list[RunReport]


class ComparisonReport(TypedDict):
    """Runs side by side: what `--compare` prints."""

    kind: Literal["dftrace runs --compare"]
    runs: list[RunFacts]
    params: dict[str, list[object]]
    """By name a value for each run; null where a run has none."""
    params_alike: int
    metrics: dict[str, list[FigureReport | None]]
