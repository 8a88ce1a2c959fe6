"""SwanLab, offline: everything that was logged is in the files that `swanlab sync` reads."""

from __future__ import annotations

from typing import Any

from dftrace_ai.loggers.names import told_apart
from trackers.tracker_runs import TrackerRuns

NAME, PACKAGE = "swanlab", "swanlab"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "the first",
    "as they are",
    "as they are, None as a text",
    "as bars, named by their edges",
    "PNG, caption",
    "GIF; others as files",
    "GLB",
)

# A run that goes on is one more, of the same id.
FURTHER = True

READER = """
import yaml
from swanlab.sdk.internal.core_python.store import DataStoreReader
from swanlab.proto.swanlab.record.v1.record_pb2 import Record

def records(path):
    reader = DataStoreReader()
    reader.open(str(path))
    while (data := reader.scan()) is not None:
        yield Record.FromString(data)

def read(file):
    folder = file.parent
    metrics, media, found = {}, {}, {}
    for record in records(file):
        if record.HasField("scalar"):
            scalar = record.scalar
            metrics.setdefault(scalar.key, []).append([scalar.step, scalar.value.number])
        elif record.HasField("media"):
            (item,) = record.media.value.items
            (path,) = (folder / "media").glob(f"*/{item.filename}")
            if record.media.key not in media:
                media[record.media.key] = [record.media.step, path, item.caption]
        elif record.HasField("start"):
            start = record.start
            found["id"] = start.id
            found["run"] = {"project": start.project, "name": start.name, "group": start.group, "tags": list(start.tags)}
        elif record.HasField("finish"):
            found["run"]["status"] = {1: "finished", 2: "failed", 3: "killed"}[record.finish.state]
    found["metrics"] = {key: six_kinds.by_step(pairs) for key, pairs in metrics.items()}
    found["files"] = sorted(path.name for path in (folder / "files").iterdir())
    return found, media, folder

def of(run):
    files = sorted((FOLDER / "runs" / "a project" / run / "swanlab").glob("run-*/*.swanlab"))
    return sorted(map(read, files), key=lambda found: (found[0]["run"]["name"], found[0]["run"]["status"]))

((kinds, media, folder),) = of("kinds")
kinds["own_files"] = kinds.pop("files")
config = yaml.safe_load((folder / "files" / "config.yaml").read_text())
kinds["params"] = {key: one["value"] for key, one in config.items()}
step, path, _ = media["acts"]
chart = json.loads(path.read_text())
edges = [label.split(" to ") for label in chart["xAxis"][0]["data"]]
kinds["histogram"] = {"step": step, "counts": [one["value"] if isinstance(one, dict) else one for one in chart["series"][0]["data"]], "edges": [float(lower) for lower, _ in edges] + [float(edges[-1][1])]}
step, path, caption = media["views/render"]
kinds["image"] = {"step": step, "pixels": pixels(path), "caption": caption}
for kind, name in (("video", "clip"), ("mesh", "shape")):
    kinds[kind] = {"step": media[name][0], "sha": six_kinds.sha(media[name][1].read_bytes())}
step, path, _ = media["notes/said"]
kinds["text"] = {"step": step, "text": path.read_text()}
kept = folder / "files"
kinds["files"] = {
    path.relative_to(kept / "artifacts").as_posix(): six_kinds.sha(path.read_bytes())
    for path in sorted((kept / "artifacts").rglob("*")) if path.is_file()
}
(alert,) = [path.read_text() for path in (kept / "alerts").rglob("*.txt")]
level, _, said = alert.partition(": ")
kinds["alert"] = [*said.splitlines(), level]
tell_found(kinds, [found for found, _, _ in of("steps")])
"""


def as_kept(expected: dict[str, Any]) -> None:
    # Letters that SwanLab does not accept in the name of a project.
    expected["run"]["project"] = told_apart("a-project", "a project")
    expected["params"]["nothing"] = "None"


def check_own(runs: TrackerRuns) -> None:
    # Nothing else is collected.
    for found in runs.steps:
        assert found["files"] == ["config.yaml", "swanlab-metadata.json"]
