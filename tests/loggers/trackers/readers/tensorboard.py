"""TensorBoard: everything that was logged is told by its `EventAccumulator`."""

from __future__ import annotations

from typing import Any

import numpy as np

from trackers.programs import six_kinds

NAME, PACKAGE = "tensorboard", "tensorboard"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "each value",
    "as they are",
    "as JSON, and flat",
    "as it is",
    "PNG",
    "GIF; others as files",
    "vertices, faces, colours",
)

READER = """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

ALL = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}
runs = FOLDER / "runs" / "a project"

def opened(folder):
    events = EventAccumulator(str(folder), size_guidance=ALL)
    events.Reload()
    return events

def read(events):
    return {"metrics": {tag: six_kinds.by_step([[one.step, one.value] for one in events.Scalars(tag)]) for tag in events.Tags()["scalars"]}}

def text_of(events, tag):
    (*_, one) = events.Tensors(f"{tag}/text_summary")
    (text,) = tensor_util.make_ndarray(one.tensor_proto)
    return one.step, text.decode()

events = opened(runs / "kinds" / "tensorboard")
kinds = read(events)
kinds["params"] = json.loads(text_of(events, "hparams")[1].removeprefix("```json").removesuffix("```"))
(one,) = events.Histograms("acts")
found = one.histogram_value
kinds["histogram"] = {"step": one.step, "counts": found.bucket, "edges": [found.min, *found.bucket_limit]}
(one,) = events.Images("views/render")
kinds["image"] = {"step": one.step, "pixels": pixels(io.BytesIO(one.encoded_image_string))}
(one,) = events.Images("clip")
kinds["video"] = {"step": one.step, "sha": six_kinds.sha(one.encoded_image_string)}
kinds["mesh"] = {}
for part in ("VERTEX", "FACE", "COLOR"):
    (one,) = events.Tensors(f"shape_{part}")
    kinds["mesh"] |= {"step": one.step, part: tensor_util.make_ndarray(one.tensor_proto)[0].tolist()}
step, text = text_of(events, "notes/said")
kinds["text"] = {"step": step, "text": text}
def kept(name):
    folder, _, suffix = name.rpartition(".")
    path = runs / "kinds" / "tensorboard" / "files" / folder / f"000000100.{suffix}"
    assert text_of(events, folder) == (100, str(path))
    return six_kinds.sha(path.read_bytes())

kinds["files"] = {name: kept(name) for name in ("weights.bin", "tree/a.bin", "tree/leaf/b.bin")}
(path,) = (runs / "kinds" / "tensorboard" / "files" / "alerts").rglob("*.txt")
level, _, said = path.read_text().partition(": ")
kinds["alert"] = [*said.splitlines(), level]
kinds["run"] = {"status": text_of(events, "status")[1]}
steps = []
for rank in (0, 1):
    events = opened(runs / "steps" / "tensorboard" / f"rank{rank}")
    told = "status/text_summary" in events.Tags()["tensors"]
    steps.append({**read(events), "run": {"status": text_of(events, "status")[1] if told else None}})
tell_found(kinds, steps)
"""


def as_kept(expected: dict[str, Any]) -> None:
    del expected["image"]["caption"]
    with np.errstate(under="ignore"):
        expected["metrics"] = {
            name: [
                [step, six_kinds.plain(float(np.float32(float(value))))] for step, value in pairs
            ]
            for name, pairs in expected["metrics"].items()
        }
    parts = {
        key: array.tolist()
        for key, array in zip(("VERTEX", "FACE", "COLOR"), six_kinds.MESH.values(), strict=True)
    }
    # What a run is called and belongs to is told by where its files lie.
    expected["run"] = {"status": "finished"}
    expected["mesh"] = {"step": six_kinds.STEP, **parts}
