"""One of everything that is logged, and what it has to be when it is read back."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

LOSSES = [1.5, 0.1 + 0.2, 1e-300, -7.25, math.pi]
ODD = [math.nan, math.inf, -math.inf]
PARAMS = {
    # No float holds it: where it cannot be kept, the record is lost from there on.
    "huge": 10**400,
    "lr": 0.1,
    "steps": 7,
    "level": 3,
    "amsgrad": True,
    "note": "naïve ☃",
    "nothing": None,
    "model": {"width": 8, "act": {"name": "relu"}, "layers": [3, 5]},
}
VALUES = np.concatenate([np.linspace(-2.0, 3.0, 999), [0.5, math.nan]])
BINS = 16
STEP = 3
# Names that differ in what no path, and not every tracker, has in a name.
NAMED = {"of/it": 1.0, "of:it": 2.0, "of_it": 3.0, "损失一": 4.0, "损失二": 5.0, "of//it": 6.0}
IMAGE = np.random.default_rng(1).integers(0, 256, (12, 16, 3), np.uint8)
FRAMES = np.random.default_rng(2).integers(0, 256, (4, 8, 10, 3), np.uint8)
MESH = {
    "vertices": np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32),
    "faces": np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3]], np.int32),
    "colors": np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]], np.uint8),
}
FPS = 5.0
TEXT = "a naïve text ☃\nof two lines"
ARTIFACT = bytes(range(256))
VARIABLES = {
    "metric": ["loss", "odd"],
    "hist": ["acts"],
    "hparams": ["hparams"],
    "image": ["views/render"],
    "mesh": ["shape"],
    "video": ["clip"],
}


def log(loggers, folder) -> None:
    """Log one of everything, with tags, an alert, and files below a folder of the test's."""
    (folder / "weights.bin").write_bytes(ARTIFACT)
    (folder / "tree" / "leaf").mkdir(parents=True)
    (folder / "tree" / "a.bin").write_bytes(b"a")
    (folder / "tree" / "leaf" / "b.bin").write_bytes(b"b")
    for step, loss in enumerate(LOSSES):
        data = {"loss": loss, "unasked": 1.0}
        if step < len(ODD):
            data["odd"] = ODD[step]
        if step == STEP:
            data |= {
                "hparams": PARAMS,
                "acts": VALUES,
                "views/render": {"image": IMAGE, "caption": "a caption"},
                "clip": {"video": FRAMES, "fps": FPS},
                "shape": MESH,
            }
        loggers.log_iter(data)
    loggers.log_epoch()
    loggers.log_iter({"loss": 8.0}, step=100)
    loggers.log_epoch()
    loggers.log_metrics({"system/cpu_percent": 12.5}, step=40)
    loggers.log_metrics(NAMED, step=STEP)
    loggers.log_text("notes/said", TEXT, step=STEP)
    loggers.log_artifact(folder / "weights.bin")
    loggers.log_artifact(folder / "tree")
    loggers.alert("loss is high", "have a look", level="warning")
    # What is logged as files is not to be there any more when it is read.
    loggers.flush()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def expected() -> dict[str, Any]:
    """What is to be read back, as a tracker has it that keeps everything as it is."""
    from dftrace_ai.loggers.routines.mesh import glb_bytes
    from dftrace_ai.loggers.routines.pictures import gif_bytes

    losses = [[step, loss] for step, loss in enumerate(LOSSES)]
    first = {"last": LOSSES[-1], "mean": math.fsum(LOSSES) / 5, "min": -7.25, "max": math.pi}
    return plain(
        {
            "metrics": {
                "loss": [*losses, [100, 8.0]],
                "odd": [[step, odd] for step, odd in enumerate(ODD)],
                **{f"epoch/loss/{key}": [[0, value], [1, 8.0]] for key, value in first.items()},
                "epoch/odd/last": [[0, -math.inf]],
                "epoch/odd/non_finite": [[0, 3.0]],
                "system/cpu_percent": [[40, 12.5]],
                **{name: [[STEP, value]] for name, value in NAMED.items()},
            },
            "params": PARAMS | {"huge": str(PARAMS["huge"])},
            "histogram": histogram(),
            "image": {"step": STEP, "pixels": IMAGE.tolist(), "caption": "a caption"},
            "video": {"step": STEP, "sha": sha(gif_bytes(FRAMES, FPS))},
            "mesh": {"step": STEP, "sha": sha(glb_bytes(*MESH.values()))},
            "text": {"step": STEP, "text": TEXT},
            "files": {
                "weights.bin": sha(ARTIFACT),
                "tree/a.bin": sha(b"a"),
                "tree/leaf/b.bin": sha(b"b"),
            },
            "alert": ["loss is high", "have a look", "warning"],
            "run": {
                "project": "a project",
                "name": "kinds",
                "group": "a group",
                "tags": ["one", "two"],
                "status": "finished",
            },
        }
    )


KINDS = (
    *("metrics", "params", "histogram", "image", "video", "mesh"),
    *("text", "files", "alert", "run"),
)


def histogram() -> dict[str, Any]:
    """Counts and edges of the values."""
    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Point
    from dftrace_ai.loggers.routines.histogram import HistogramLogger

    logger = HistogramLogger(EntryConfig(bins=BINS))
    (made,) = logger.records("acts", logger.take(VALUES), Point(STEP))
    assert sum(made.counts) == 1000
    return {"step": STEP, "counts": list(made.counts), "edges": list(made.edges)}


def plain(value: Any) -> Any:
    """The same as JSON has it, with names for the numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def by_step(pairs: list[Any]) -> list[Any]:
    """Pairs of step and value in the order of the steps; those of one step as they came."""
    return sorted(pairs, key=lambda pair: pair[0])
