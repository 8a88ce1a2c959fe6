"""Pictures, clips and meshes, read back by libraries that did not write them."""

from __future__ import annotations

import math
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from loggers.local_lines import Kept, entry
from PIL import Image

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.routines.mesh import glb_bytes


def logged(folder, kind, *values, **settings):
    config = entry(folder, kind, tracked_variables={kind: ["it"]}, **settings)
    with make_loggers({"local": config}) as loggers:
        for value in values:
            loggers.log_iter({"it": value})
    kept = Kept(folder)
    return [(line, kept.file(line)) for line in kept.of("f")]


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


GREY = np.arange(48, dtype=np.uint8).reshape(6, 8)
RGB = np.random.default_rng(2).integers(0, 256, (6, 8, 3), np.uint8)
RGBA = np.random.default_rng(3).integers(0, 256, (6, 8, 4), np.uint8)

PICTURES = {
    "HW": (GREY, GREY),
    "HWC": (RGB, RGB),
    "HW4": (RGBA, RGBA),
    "CHW tensor": (torch.from_numpy(RGB).permute(2, 0, 1), RGB),
    "floats": (torch.from_numpy(RGB).permute(2, 0, 1).float() / 255, RGB),
    "float HWC": (RGB / 255.0, RGB),
    "1HW": (torch.from_numpy(GREY)[None], GREY),
    "bool": (GREY > 20, (GREY > 20).astype(np.uint8) * 255),
    "picture of Pillow": (Image.fromarray(RGB), RGB),
    "beyond": (np.array([[-1.0, 2.0], [math.nan, 0.5]]), np.array([[0, 255], [0, 128]], np.uint8)),
    "3x3x3 tensor": (torch.from_numpy(RGB[:3, :3]).permute(2, 0, 1), RGB[:3, :3]),
    "3x3x3 array": (RGB[:3, :3], RGB[:3, :3]),
    "needs a gradient": ((torch.from_numpy(RGB).float() / 255).requires_grad_(), RGB),
}


def test_pictures_are_the_same_pixels(tmp_path):
    for (line, path), (name, (_, wanted)) in zip(
        logged(tmp_path, "image", *(given for given, _ in PICTURES.values())),
        PICTURES.items(),
        strict=True,
    ):
        assert np.array_equal(pixels(path), wanted), name
        assert (line["height"], line["width"]) == wanted.shape[:2]


def test_several_pictures_are_a_grid(tmp_path):
    batch = torch.rand(5, 3, 4, 6)
    ((_, path),) = logged(tmp_path, "image", batch)
    found = pixels(path)
    assert found.shape == (2 * 4 + 2, 3 * 6 + 2 * 2, 3)
    for index, picture in enumerate(batch):
        top, left = index // 3 * 6, index % 3 * 8
        wanted = np.rint(picture.permute(1, 2, 0).double().numpy() * 255)
        assert np.array_equal(found[top : top + 4, left : left + 6], wanted)


def test_a_mask_lies_over_its_picture(tmp_path):
    mask = torch.zeros(6, 8, dtype=torch.int64)
    mask[2:4, 1:5] = 2
    ((line, path),) = logged(tmp_path, "image", {"image": RGB, "mask": mask, "caption": "two"})
    found = pixels(path)
    assert np.array_equal(found[mask.numpy() == 0], RGB[mask.numpy() == 0])
    assert not np.array_equal(found[2:4, 1:5], RGB[2:4, 1:5])
    assert line["caption"] == "two"


def test_wrong_shapes_are_told_with_what_is_accepted(tmp_path, caplog):
    wrong = (np.zeros((2, 3, 4, 5, 6)), np.zeros((5, 6, 7)), np.zeros(3), "text", np.zeros((0, 3)))
    assert logged(tmp_path, "image", *wrong, RGB)[0][0]["s"] == len(wrong)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "image it cannot be logged" in said
    assert "H x W x C" in said


def test_clips_keep_their_frames_and_time(tmp_path):
    few_colors = np.zeros((7, 10, 12, 3), np.uint8)
    for index in range(7):
        few_colors[index, index : index + 3, 2:9] = (30 * index, 200, 255 - 30 * index)
    given = [few_colors, torch.from_numpy(few_colors).permute(0, 3, 1, 2)]
    given += [{"video": few_colors / 255.0, "fps": 5}]
    for (line, path), fps in zip(logged(tmp_path, "video", *given), (10, 10, 5), strict=True):
        with Image.open(path) as clip:
            assert (clip.n_frames, line["frames"], line["fps"]) == (7, 7, fps)
            for index in range(7):
                clip.seek(index)
                assert clip.info["duration"] == 1000 / fps
                found = np.asarray(clip.convert("RGB")).astype(int)
                assert np.abs(found - few_colors[index]).max() <= 8


def test_a_frame_of_a_gif_is_shown_as_long_as_there_is_room_for(tmp_path):
    frames = np.random.default_rng(6).integers(0, 256, (3, 5, 7, 3), np.uint8)
    given = [{"video": frames, "fps": fps} for fps in (1000, 33, 0.5, 1e-3)]
    found = [path for _, path in logged(tmp_path, "video", *given)]
    shown_ms = [20, 30, 2000, 655_350]
    for path, wanted in zip(found, shown_ms, strict=True):
        with Image.open(path) as clip:
            assert (clip.n_frames, clip.info["duration"]) == (3, wanted)


# How large, how many frames, at how many a second.
MP4S = (
    *((48, 64, 7, 10.0), (47, 63, 3, 5.0), (48, 64, 1, 10.0), (1, 1, 2, 12.5)),
    *((48, 64, 4, 30000 / 1001), (48, 64, 4, 1 / 3), (18, 16, 3, 1 / 2000), (18, 16, 3, 1000.0)),
)


def ramps(height, width, count):
    """Frames whose colours change slowly, as those do that an encoder is made for."""
    down, right = np.mgrid[0 : max(2, height), 0 : max(2, width)][:, :height, :width]
    frames = [
        (right / right.max(initial=1), down / down.max(initial=1), right * 0 + n / 8)
        for n in range(count)
    ]
    return np.rint(np.moveaxis(np.array(frames), 1, -1) * 255).astype(np.uint8)


def test_mp4_keeps_frames_and_time(tmp_path):
    av = pytest.importorskip("av", reason="writes and reads MP4")
    given = [{"video": ramps(*size), "fps": fps} for *size, fps in MP4S]
    given.append(
        {"video": torch.from_numpy(ramps(48, 64, 5)[..., :1]).permute(0, 3, 1, 2), "fps": 2}
    )
    sizes = [*MP4S, (48, 64, 5, 2.0)]
    found = logged(tmp_path, "video", *given, video="mp4")
    for (line, path), (height, width, count, fps), one in zip(found, sizes, given, strict=True):
        wanted = np.asarray(one["video"])
        wanted = wanted if wanted.shape[-1] == 3 else np.moveaxis(wanted, 1, -1)
        assert (line["frames"], line["fps"], path.suffix) == (count, fps, ".mp4")
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
            assert math.isclose(stream.average_rate, fps, rel_tol=1e-9)
            assert math.isclose(stream.duration * stream.time_base, count / fps, rel_tol=0.01)
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert len(frames) == count
        for got, frame in zip(frames, wanted, strict=True):
            # Padded to even numbers, for the colours of four pixels are one.
            assert got.shape == (height + height % 2, width + width % 2, 3)
            assert np.abs(got[:height, :width].astype(int) - frame).mean() < 10


def test_mp4_without_its_extra_is_told_with_the_way_to_it(tmp_path, monkeypatch):
    from dftrace_ai.loggers import entry

    monkeypatch.setattr(entry, "find_spec", lambda package: None)
    with pytest.raises(
        ConfigError, match=r"video: mp4 needs av, .* pip install 'dftrace-ai\[mp4\]'"
    ):
        logged(tmp_path, "video", ramps(8, 8, 2), video="mp4")


def test_everything_of_trimesh_comes_back_from_glb(tmp_path):
    trimesh = pytest.importorskip("trimesh", reason="makes the meshes, and reads GLB")
    drawn = np.random.default_rng(6)
    points = drawn.normal(size=(5, 3)).astype(np.float32)
    colors = drawn.integers(0, 256, (12, 4), np.uint8)
    box, faced = trimesh.creation.box(), trimesh.creation.box()
    faced.visual.face_colors = colors
    textured = trimesh.creation.box()
    textured.visual = trimesh.visual.TextureVisuals(uv=drawn.random((8, 2)))
    cloud = trimesh.PointCloud(points, colors=colors[:5])
    scene = trimesh.Scene([box, cloud])
    scene.add_geometry(faced, transform=trimesh.transformations.translation_matrix([7, 0, 0]))
    scene.add_geometry(trimesh.load_path(np.array([[0, 0, 0], [1, 1, 1.0]])))
    mesh = {"vertices": torch.from_numpy(VERTICES), "faces": FACES, "colors": COLORS}
    given = [
        (mesh, 20, 18),
        (trimesh.Trimesh(VERTICES, FACES, vertex_colors=COLORS, process=False), 20, 18),
        (trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], process=False), 3, 1),
        (box, 8, 12),
        (trimesh.primitives.Sphere(), 642, 1280),
        (trimesh.creation.icosphere(1), 42, 80),
        (faced, 36, 12),
        (textured, 8, 12),
        (trimesh.PointCloud(points), 5, 0),
        (cloud, 5, 0),
        (scene, 8 + 5 + 36, 24),
    ]
    lines = logged(tmp_path, "mesh", *(mesh for mesh, _, _ in given))
    assert [(line["vertices"], line["faces"]) for line, _ in lines] == [
        (vertices, faces) for _, vertices, faces in given
    ]
    found = [trimesh.load(path, process=False) for _, path in lines]
    for one in found[:2]:
        (back,) = one.geometry.values()
        assert np.array_equal(back.vertices, np.float32(VERTICES))
        assert np.array_equal(back.faces, FACES)
        assert np.array_equal(back.visual.vertex_colors[:, :3], COLORS)
    found = found[2:]
    (back,) = found[4].geometry.values()
    assert np.array_equal(back.triangles, faced.triangles.astype(np.float32))
    assert np.array_equal(back.visual.vertex_colors, np.repeat(colors | [0, 0, 0, 255], 3, axis=0))
    (back,) = found[7].geometry.values()
    assert np.array_equal(back.vertices, points)
    assert np.array_equal(back.colors[:, :3], colors[:5, :3])
    (back,) = found[8].geometry.values()
    assert back.bounds[1][0] == 7.5
    assert np.array_equal(back.visual.vertex_colors[8:13, :3], colors[:5, :3])
    assert np.array_equal(back.visual.vertex_colors[:8, :3], np.full((8, 3), 102))


VERTICES = np.random.default_rng(4).normal(size=(20, 3))
FACES = np.array([[a, a + 1, a + 2] for a in range(18)], np.int32)
NO_FACES = np.zeros((0, 3), np.int32)
COLORS = np.random.default_rng(5).integers(0, 256, (20, 3), np.uint8)


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

    found = [path.read_bytes() for _, path in logged(tmp_path, "mesh", *given, lines)]
    assert found == [glb_bytes(np.float32(VERTICES), *parts) for parts in wanted * 2]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "mesh it cannot be logged: a set of lines" in said


def test_meshes_that_are_none(tmp_path, caplog):
    good = np.eye(3, dtype=np.float32)
    wrong = (
        {"vertices": good, "faces": [[0, 1, 3]]},
        {"vertices": good * math.nan},
        {"vertices": np.zeros((3, 2))},
        {"faces": [[0, 1, 2]]},
        {"vertices": good, "colors": np.zeros((2, 3))},
    )
    ((line, _),) = logged(tmp_path, "mesh", *wrong, good)
    assert line["faces"] == 0
    assert len(caplog.records) == 1
