"""What routines make of logged values, and interfaces take: plain numbers, texts and bytes.

Everything here can be pickled and holds no tensor, so that it reaches a tracker in another process
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, SupportsFloat, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

Axis = Literal["iteration", "epoch", "time"]
ITERATION: Axis = "iteration"
EPOCH: Axis = "epoch"
MOST_STEP = (1 << 63) - 1
"""Of databases and of readers of JSON; also of what is less than 0."""

Level = Literal["info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("info", "warning", "error")
Status = Literal["running", "finished", "failed", "killed"]
ENDINGS: tuple[Status, ...] = ("finished", "failed", "killed")


class SoFar(float):
    """A number that a framework has taken over all of the epoch so far; the last one is its own."""

    __slots__ = ()


class Point(NamedTuple):
    """When something was logged."""

    step: int
    # What `step` counts; for the system's metrics seconds since the run began.
    axis: Axis = ITERATION
    # By the wall clock, since 1970.
    time_s: float = 0.0
    # Place in the trace, as of `dftrace_ai.run.emitting.moment`; None where no trace is written.
    moment: tuple[int, int, int, int] | None = None


class MetricsRecord(NamedTuple):
    """Numbers by name; those that are not finite are among them."""

    values: Mapping[str, float]
    at: Point


Param: TypeAlias = "str | int | float | bool | list[Param] | dict[str, Param] | None"
Params: TypeAlias = "Mapping[str, Param]"


Metrics: TypeAlias = "Mapping[str, SupportsFloat | Metrics]"
"""Numbers, or tensors of one element, by name; mappings of them."""


class ParamsRecord(NamedTuple):
    """Hyper-parameters: mappings and lists of them, texts, numbers, booleans and None."""

    values: Params
    at: Point


class HistogramRecord(NamedTuple):
    """How many values lie in each bin."""

    name: str
    # Ascending, one more than there are bins. An edge belongs to the bin that lies farther from
    # zero, the first and the last to the only one there is.
    edges: tuple[float, ...]
    # Of finite values, as are the next four, which are 0 where there are none.
    counts: tuple[int, ...]
    minimum: float
    maximum: float
    total: float
    total_squares: float
    non_finite: int
    # By the share (0 to 1) that lies below, as exact as the bins are.
    quantiles: Mapping[float, float]
    at: Point


class ImageRecord(NamedTuple):
    """A picture, in pixels, as the bytes of a PNG file."""

    name: str
    png: bytes
    width: int
    height: int
    channels: int  # 1 grey, 3 RGB, 4 RGBA
    caption: str  # what stands below, or ""
    at: Point


class VideoRecord(NamedTuple):
    """A clip, in pixels, as the bytes of a file."""

    name: str
    data: bytes
    suffix: str  # "gif" or "mp4"
    frames: int
    width: int
    height: int
    fps: float
    at: Point


class MeshRecord(NamedTuple):
    """A triangle mesh, or points where `faces` has none; also as a binary glTF 2.0 file."""

    name: str
    glb: bytes
    vertices: NDArray[np.float32]  # V x 3
    faces: NDArray[np.int32]  # F x 3, indices of vertices
    colors: NDArray[np.uint8] | None  # V x 3
    at: Point


class TextRecord(NamedTuple):
    """A text."""

    name: str
    text: str
    at: Point


class Artifact(NamedTuple):
    """A file or directory to be kept with the run; it is read when it is delivered."""

    name: str
    path: str
    at: Point


class Alert(NamedTuple):
    """Something that somebody should look at."""

    title: str
    text: str
    level: Level
    at: Point


Record = (
    MetricsRecord
    | ParamsRecord
    | HistogramRecord
    | ImageRecord
    | VideoRecord
    | MeshRecord
    | TextRecord
    | Artifact
    | Alert
)
