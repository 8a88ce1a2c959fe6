"""Meshes and clouds of Open3D: of itself where it is installed, else of classes that look like its."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.routines.mesh import glb_bytes

VERTICES = np.random.default_rng(4).normal(size=(20, 3))
FACES = np.array([[a, a + 1, a + 2] for a in range(18)], np.int32)
NO_FACES = np.zeros((0, 3), np.int32)
COLORS = np.random.default_rng(5).integers(0, 256, (20, 3)).astype(np.uint8)


class Vectors(list):
    """What is seen of Vector3dVector: a sequence that NumPy makes an array of."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(list(self), dtype)


class TriangleMesh:
    def __init__(self, vertices: Any, triangles: Any) -> None:
        self.vertices, self.triangles, self.vertex_colors = vertices, triangles, Vectors()

    def has_vertex_colors(self) -> bool:
        return len(self.vertex_colors) > 0


class PointCloud:
    def __init__(self, points: Any = ()) -> None:
        self.points, self.colors = points, Vectors()

    def has_colors(self) -> bool:
        return len(self.colors) > 0


class LineSet(PointCloud):
    lines = Vectors()


class Tensor:
    """Of Open3D's own, from which NumPy by itself makes an array of objects."""

    def __init__(self, array: Any) -> None:
        self.cpu = lambda: SimpleNamespace(numpy=lambda: array)


def of_legacy(places: str) -> Any:
    """What makes an object of tensors from one with vectors."""

    def made(mesh: Any) -> Any:
        vectors = mesh.vertices if places == "vertex" else mesh.points
        colors = mesh.vertex_colors if places == "vertex" else mesh.colors
        found = {"positions": Tensor(np.float32(vectors))}
        if len(colors):
            found["colors"] = Tensor(np.float32(colors))
        one = SimpleNamespace(**{places: found})
        if places == "vertex":
            one.triangle = {"indices": Tensor(np.int64(mesh.triangles))}
        return one

    return SimpleNamespace(from_legacy=made)


LIKE_OPEN3D = SimpleNamespace(
    utility=SimpleNamespace(Vector3dVector=Vectors, Vector3iVector=Vectors),
    geometry=SimpleNamespace(TriangleMesh=TriangleMesh, PointCloud=PointCloud, LineSet=LineSet),
    t=SimpleNamespace(
        geometry=SimpleNamespace(TriangleMesh=of_legacy("vertex"), PointCloud=of_legacy("point"))
    ),
)


def test_meshes_and_clouds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    o3d = import_module("open3d") if find_spec("open3d") else LIKE_OPEN3D
    of_floats = o3d.utility.Vector3dVector
    plain = o3d.geometry.TriangleMesh(of_floats(VERTICES), o3d.utility.Vector3iVector(FACES))
    colored = o3d.geometry.TriangleMesh(of_floats(VERTICES), o3d.utility.Vector3iVector(FACES))
    colored.vertex_colors = of_floats(COLORS / 255)
    cloud = o3d.geometry.PointCloud(of_floats(VERTICES))
    colored_cloud = o3d.geometry.PointCloud(of_floats(VERTICES))
    colored_cloud.colors = of_floats(COLORS / 255)
    lines = o3d.geometry.LineSet()
    lines.points = of_floats(VERTICES)
    tensors = o3d.t.geometry
    wanted = [(FACES, None), (FACES, COLORS), (NO_FACES, None), (NO_FACES, COLORS)]
    given = [plain, colored, cloud, colored_cloud]
    given += [tensors.TriangleMesh.from_legacy(mesh) for mesh in given[:2]]
    given += [tensors.PointCloud.from_legacy(points) for points in given[2:4]]

    config = entry(tmp_path, "mesh", tracked_variables={"mesh": ["it"]})
    with make_loggers({"local": config}) as loggers:
        for mesh in [*given, lines]:
            loggers.log_iter({"it": mesh})

    kept = Kept(tmp_path)
    found = [kept.file(line).read_bytes() for line in kept.of("f")]
    assert found == [glb_bytes(np.float32(VERTICES), *parts) for parts in wanted * 2]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "mesh it cannot be logged: a set of lines" in said
