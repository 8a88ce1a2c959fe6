"""Neptune, offline: everything that was logged is in the files that `neptune sync` reads."""

from __future__ import annotations

from typing import Any

from dftrace_ai.loggers.names import told_apart
from trackers.tracker_runs import TrackerRuns

NAME, PACKAGE = "neptune", "neptune"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "each value",
    "as texts, in non_finite/...",
    "flat; as JSON",
    "as JSON",
    "PNG, caption",
    "as a file",
    "as a file",
)

# A run that goes on is one more, of the same id.
FURTHER = True

READER = """
import base64, io, threading
from neptune.core.components.queue.disk_queue import DiskQueue
from neptune.internal.operation import Operation

def read(folder):
    queue = DiskQueue(folder, lambda one: one.to_dict(), Operation.from_dict, threading.RLock())
    series, values, files, images, strings = {}, {}, {}, {}, {}
    while True:
        batch = queue.get_batch(1000)
        if not batch:
            break
        for element in batch:
            one = element.obj.to_dict()
            path = "/".join(one["path"])
            if one["type"] == "LogFloats":
                series.setdefault(path, []).extend([int(v["step"]), v["value"]] for v in one["values"])
            elif one["type"] == "LogStrings":
                strings.setdefault(path, []).extend([int(v["step"]), v["value"]] for v in one["values"])
            elif one["type"] == "LogImages":
                ((image),) = one["values"]
                images[path] = [int(image["step"]), image["value"]["description"], base64.b64decode(image["value"]["data"])]
            elif one["type"] == "UploadFileContent":
                files[path] = [base64.b64decode(one["file_content"]), one["ext"]]
            elif one["type"] == "UploadFile":
                files[path] = [(folder / "upload_path" / one["tmp_file_name"]).read_bytes(), one["ext"]]
            elif "values" in one:
                values[path] = sorted(one["values"])
            elif "value" in one:
                values[path] = one["value"]
    metrics = dict(series)
    for path, pairs in strings.items():
        if path.startswith("non_finite/"):
            metrics.setdefault(path.removeprefix("non_finite/"), []).extend([step, float(v)] for step, v in pairs)
    return {
        "id": values["run/custom_id"],
        "metrics": {key: six_kinds.by_step(pairs) for key, pairs in metrics.items()},
        "values": values,
        "run": {"project": values["run/project"], "name": values["sys/name"], "group": values.get("sys/group_tags", [None])[0], "tags": values["sys/tags"], "status": values["status"]},
        "failed": values["sys/failed"],
    }, files, images, strings

def of(run):
    folders = sorted((FOLDER / "runs" / "a project" / run / "neptune" / "offline").glob("*"))
    return sorted(map(read, folders), key=lambda found: (found[0]["run"]["name"], found[0]["run"]["status"]))

((kinds, files, images, strings),) = of("kinds")
kinds["params"] = json.loads(files["files/hparams/000000003"][0])
found = json.loads(files["files/acts/000000003"][0])
kinds["histogram"] = {"step": 3, "counts": found["counts"], "edges": found["edges"]}
step, caption, data = images["views/render"]
kinds["image"] = {"step": step, "pixels": pixels(io.BytesIO(data)), "caption": caption}
for kind, name, ext in (("video", "clip", "gif"), ("mesh", "shape", "glb")):
    data, kept = files[f"files/{name}/000000003"]
    assert kept == ext
    kinds[kind] = {"step": 3, "sha": six_kinds.sha(data)}
((step, text),) = strings["notes/said"]
kinds["text"] = {"step": step, "text": text}
((_, alert),) = strings["alerts"]
level, _, said = alert.partition(": ")
kinds["alert"] = [*said.splitlines(), level]
kinds["files"] = {name.removeprefix("artifacts/"): six_kinds.sha(data) for name, (data, _) in files.items() if name.startswith("artifacts/")}
tell_found(kinds, [found[0] for found in of("steps")])
"""


def as_kept(expected: dict[str, Any]) -> None:
    metrics = expected["metrics"]
    metrics[told_apart("of/it", "of//it")] = metrics.pop("of//it")


def check_own(runs: TrackerRuns) -> None:
    parameters = {"model/act/name": "relu", "model/layers": "[3, 5]", "nothing": "null", "steps": 7}
    flat = {f"parameters/{name}": value for name, value in parameters.items()}
    assert flat.items() <= runs.kinds["values"].items()
    assert [found["failed"] for found in runs.steps] == [True, False, True]
    assert "the tracker neptune: Neptune's service ended in March 2026" in runs.said
