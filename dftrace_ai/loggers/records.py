"""What routines make of logged values, and interfaces take: plain numbers, texts and bytes.

Everything here can be pickled and holds no tensor, so that it reaches a tracker in another process
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ENDINGS",
    "EPOCH",
    "ITERATION",
    "LEVELS",
    "MOST_STEP",
    "Alert",
    "Artifact",
    "Axis",
    "HistogramRecord",
    "ImageRecord",
    "Level",
    "MeshRecord",
    "MetricsRecord",
    "Param",
    "Params",
    "ParamsRecord",
    "Point",
    "Record",
    "SoFar",
    "Status",
    "TextRecord",
    "VideoRecord",
]

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
    """When something was logged.

    Attributes:
        step: number on its axis.
        axis: what `step` counts: iterations, epochs, or for the system's metrics seconds since
            the run began.
        time_s: seconds since the epoch (1970), by the wall clock.
        moment: place in the trace, as of `dftrace_ai.run.emitting.moment`; None where no trace
            is written.
    """

    step: int
    axis: Axis = ITERATION
    time_s: float = 0.0
    moment: tuple[int, int, int, int] | None = None


class MetricsRecord(NamedTuple):
    """Numbers by name; those that are not finite are among them."""

    values: Mapping[str, float]
    at: Point


Param: TypeAlias = "str | int | float | bool | list[Param] | dict[str, Param] | None"
Params: TypeAlias = "Mapping[str, Param]"


class ParamsRecord(NamedTuple):
    """Hyper-parameters: mappings and lists of them, texts, numbers, booleans and None."""

    values: Params
    at: Point


class HistogramRecord(NamedTuple):
    """How many values lie in each bin.

    Attributes:
        name: what it is of.
        edges: of the bins, ascending, one more than there are bins. An edge belongs to the bin
            that lies farther from zero, the first and the last to the only one there is.
        counts: of finite values, by bin.
        minimum: of the finite values; 0 where there are none, as are the next three.
        maximum: of the finite values.
        total: their sum.
        total_squares: sum of their squares.
        non_finite: how many values are not finite, and in no bin.
        quantiles: values by the share (0 to 1) that lies below, as exact as the bins are.
        at: when it was logged.
    """

    name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    minimum: float
    maximum: float
    total: float
    total_squares: float
    non_finite: int
    quantiles: Mapping[float, float]
    at: Point


class ImageRecord(NamedTuple):
    """A picture.

    Attributes:
        name: of what.
        png: the bytes of a PNG file.
        width: in pixels.
        height: in pixels.
        channels: 1 grey, 3 RGB, 4 RGBA.
        caption: what stands below, or "".
        at: when it was logged.
    """

    name: str
    png: bytes
    width: int
    height: int
    channels: int
    caption: str
    at: Point


class VideoRecord(NamedTuple):
    """A clip, encoded.

    Attributes:
        name: of what.
        data: the bytes of the file.
        suffix: ``"gif"`` or ``"mp4"``.
        frames: how many.
        width: in pixels.
        height: in pixels.
        fps: frames a second.
        at: when it was logged.
    """

    name: str
    data: bytes
    suffix: str
    frames: int
    width: int
    height: int
    fps: float
    at: Point


class MeshRecord(NamedTuple):
    """A triangle mesh, or points where `faces` has none.

    Attributes:
        name: of what.
        glb: the bytes of a binary glTF 2.0 file.
        vertices: V x 3, float32.
        faces: F x 3, indices of vertices, int32.
        colors: V x 3, 0 to 255, uint8; None without.
        at: when it was logged.
    """

    name: str
    glb: bytes
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    colors: NDArray[np.uint8] | None
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
