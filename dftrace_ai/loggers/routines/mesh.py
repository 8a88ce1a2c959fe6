"""Meshes: vertices, faces and colours, objects of Open3D and trimesh, as GLB."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.records import MeshRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.loggers.routines.pictures import array_of, as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

MAGIC, VERSION = 0x46546C67, 2
JSON_CHUNK, BINARY_CHUNK = 0x4E4F534A, 0x004E4942
FLOAT, UNSIGNED_INT, UNSIGNED_BYTE = 5126, 5125, 5121
VERTEX_DATA, INDICES = 34962, 34963
POINTS, TRIANGLES = 0, 4


# As trimesh shows what has none.
WITHOUT_COLOR = 102


class _Taken(NamedTuple):
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    colors: NDArray[np.uint8] | None


class MeshLogger(BaseLogger):
    """Logs triangle meshes and clouds of points."""

    key: ClassVar[str] = "mesh"
    packages: ClassVar[tuple[str, ...]] = ("numpy",)
    accepts: ClassVar[str] = (
        "a mapping with `vertices` (V x 3), `faces` (F x 3, indices; without, they are points) and "
        "`colors` (V x 3, floats from 0 to 1 or whole numbers from 0 to 255), a mesh or point "
        "cloud of Open3D or trimesh, a scene of trimesh, or V x 3 points"
    )

    def take(self, value: Any) -> Any:
        """Copy a mesh as it is now."""
        import numpy as np

        vertices, faces, colors = (None if one is None else array_of(one) for one in _parts(value))
        if vertices is None or not vertices.size:
            raise ValueError("a mesh without vertices")
        if vertices.ndim == 3 and vertices.shape[0] == 1:
            # A batch of one, as SummaryWriter takes it.
            vertices = vertices[0]
            faces = faces[0] if faces is not None and faces.ndim == 3 else faces
            colors = colors[0] if colors is not None and colors.ndim == 3 else colors
        if vertices.ndim != 2 or vertices.shape[1] != 3:
            raise ValueError(f"vertices of shape {vertices.shape}")
        if not np.isfinite(vertices).all():
            raise ValueError("vertices that are not finite")
        if faces is None or not faces.size:
            faces = np.zeros((0, 3), np.int32)
        if faces.ndim != 2 or faces.shape[1] != 3 or faces.dtype.kind not in "ui":
            raise ValueError(f"faces of {faces.dtype} and shape {faces.shape}")
        if faces.size and not 0 <= int(faces.min()) <= int(faces.max()) < len(vertices):
            raise ValueError(f"faces with indices beyond {len(vertices)} vertices")
        if colors is not None and not colors.size:
            colors = None
        if colors is not None:
            if (
                colors.ndim != 2
                or colors.shape[0] != len(vertices)
                or colors.shape[1] not in (3, 4)
            ):
                raise ValueError(f"colors of shape {colors.shape} for {len(vertices)} vertices")
            colors = as_bytes(colors[:, :3])
        return _Taken(vertices.astype(np.float32), faces.astype(np.int32), colors)

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a GLB file."""
        yield MeshRecord(name, glb_bytes(*taken), taken.vertices, taken.faces, taken.colors, at)


def _parts(value: Any) -> tuple[Any, Any, Any]:
    """Return vertices, faces and colours, None where there are none."""
    if isinstance(value, Mapping):
        return value.get("vertices"), value.get("faces"), value.get("colors")
    if hasattr(value, "lines") or hasattr(value, "line"):  # Open3D's LineSet
        raise ValueError("a set of lines")
    if hasattr(value, "triangle"):  # a TriangleMesh of Open3D's tensors
        vertices, faces = value.vertex, _tensor(value.triangle, "indices")
        return _tensor(vertices, "positions"), faces, _tensor(vertices, "colors")
    if hasattr(value, "point"):  # a PointCloud of them
        return _tensor(value.point, "positions"), None, _tensor(value.point, "colors")
    if hasattr(value, "has_vertex_colors"):  # Open3D's TriangleMesh
        colors = value.vertex_colors if value.has_vertex_colors() else None
        return value.vertices, value.triangles, colors
    if hasattr(value, "has_colors"):  # its PointCloud
        return value.points, None, value.colors if value.has_colors() else None
    if hasattr(value, "geometry") and hasattr(value, "dump"):  # a Scene of trimesh
        return _of_scene(value)
    if hasattr(value, "vertices"):
        return _of_trimesh(value)
    return value, None, None


def _of_trimesh(value: Any) -> tuple[Any, Any, Any]:
    """Return what a mesh or cloud of trimesh is made of."""
    import numpy as np

    if hasattr(value, "entities"):
        raise ValueError("a path of lines")
    faces = getattr(value, "faces", None)
    visual: Any = getattr(value, "visual", None)
    kind = getattr(visual, "kind", None)
    if kind == "face" and faces is not None:
        # Colours are those of corners in the file: each face has its own three.
        corners = np.asarray(value.vertices)[np.asarray(faces)].reshape(-1, 3)
        own = np.arange(len(corners)).reshape(-1, 3)
        return corners, own, np.repeat(np.asarray(visual.face_colors), 3, axis=0)
    if kind == "texture":
        visual, kind = visual.to_color(), "vertex"
    colors = visual.vertex_colors if kind == "vertex" else None
    return value.vertices, faces, colors if colors is not None and len(colors) else None


def _of_scene(value: Any) -> tuple[Any, Any, Any]:
    """Return the meshes and clouds of a scene, where they stand in it; lines are left out."""
    import numpy as np

    parts = [
        _of_trimesh(one) for one in value.dump(concatenate=False) if not hasattr(one, "entities")
    ]
    if not parts:
        raise ValueError("a scene without a mesh or points")
    has_colors = any(colors is not None for _, _, colors in parts)
    vertices, faces, all_colors, before = [], [], [], 0
    for points, corners, colors in parts:
        vertices.append(np.asarray(points))
        if corners is not None:
            faces.append(np.asarray(corners) + before)
        if has_colors:
            own = np.full((len(points), 3), WITHOUT_COLOR, np.uint8) if colors is None else colors
            all_colors.append(np.asarray(own)[:, :3])
        before += len(points)
    return (
        np.concatenate(vertices),
        np.concatenate(faces) if faces else None,
        np.concatenate(all_colors) if has_colors else None,
    )


def _tensor(attributes: Any, name: str) -> Any:
    """Return a tensor of Open3D's, which may be on a GPU, as an array; None if there is none."""
    return attributes[name].cpu().numpy() if name in attributes else None


def glb_bytes(
    vertices: NDArray[np.float32], faces: NDArray[np.int32], colors: NDArray[np.uint8] | None
) -> bytes:
    """Encode vertices, V x 3, and faces, F x 3, or points where there are none, as binary glTF.

    The format is that of "glTF 2.0 Specification", Khronos Group, sections 4 and 3.6.
    """
    import numpy as np

    binary = bytearray()
    views: list[dict[str, int]] = []
    accessors: list[dict[str, str | float | list[float]]] = []

    def add(data: bytes, target: int, **accessor: str | float | list[float]) -> int:
        views.append(
            {"buffer": 0, "byteOffset": len(binary), "byteLength": len(data), "target": target}
        )
        binary.extend(data + b"\0" * (-len(data) % 4))
        accessors.append({"bufferView": len(views) - 1, **accessor})
        return len(accessors) - 1

    corners = {"min": vertices.min(axis=0).tolist(), "max": vertices.max(axis=0).tolist()}
    places = vertices.astype("<f4").tobytes()
    attributes = {
        "POSITION": add(
            places, VERTEX_DATA, componentType=FLOAT, count=len(vertices), type="VEC3", **corners
        )
    }
    if colors is not None:
        # With an alpha, so that each colour begins at a multiple of four bytes, as it must.
        rgba = np.concatenate([colors, np.full((len(colors), 1), 255, np.uint8)], axis=1)
        attributes["COLOR_0"] = add(
            rgba.tobytes(),
            VERTEX_DATA,
            componentType=UNSIGNED_BYTE,
            normalized=True,
            count=len(colors),
            type="VEC4",
        )
    primitive: dict[str, int | dict[str, int]] = {"attributes": attributes, "mode": POINTS}
    if len(faces):
        primitive["mode"] = TRIANGLES
        primitive["indices"] = add(
            faces.astype("<u4").tobytes(),
            INDICES,
            componentType=UNSIGNED_INT,
            count=faces.size,
            type="SCALAR",
        )
    text = json.dumps(
        {
            "asset": {"version": "2.0", "generator": "dftrace_ai"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": [{"mesh": 0}],
            "meshes": [{"primitives": [primitive]}],
            "buffers": [{"byteLength": len(binary)}],
            "bufferViews": views,
            "accessors": accessors,
        },
        separators=(",", ":"),
    ).encode()
    text += b" " * (-len(text) % 4)
    length = 12 + 8 + len(text) + 8 + len(binary)
    return b"".join(
        (
            struct.pack("<III", MAGIC, VERSION, length),
            struct.pack("<II", len(text), JSON_CHUNK),
            text,
            struct.pack("<II", len(binary), BINARY_CHUNK),
            bytes(binary),
        )
    )
