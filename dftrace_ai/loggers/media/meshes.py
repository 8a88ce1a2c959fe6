"""Meshes as binary glTF.

The format is that of "glTF 2.0 Specification", Khronos Group, sections 4 (GLB) and 3.6 (buffers).
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["glb_bytes"]

MAGIC, VERSION = 0x46546C67, 2
JSON_CHUNK, BINARY_CHUNK = 0x4E4F534A, 0x004E4942
FLOAT, UNSIGNED_INT, UNSIGNED_BYTE = 5126, 5125, 5121
VERTEX_DATA, INDICES = 34962, 34963
POINTS, TRIANGLES = 0, 4


def glb_bytes(
    vertices: NDArray[np.float32], faces: NDArray[np.int32], colors: NDArray[np.uint8] | None
) -> bytes:
    """Encode a mesh, or points where there are no faces.

    Args:
        vertices: V x 3.
        faces: F x 3, indices of vertices.
        colors: V x 3, 0 to 255, or None.

    Returns:
        A file that any viewer of glTF opens.
    """
    import numpy as np

    binary = bytearray()
    views: list[JsonObject] = []
    accessors: list[JsonObject] = []

    def add(data: bytes, target: int, **accessor: Any) -> int:
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
    primitive: JsonObject = {"attributes": attributes, "mode": POINTS}
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
