"""Comet, offline: everything that was logged is in the archive that `comet upload` reads."""

from __future__ import annotations

from trackers.programs import six_kinds
from trackers.tracker_runs import TrackerRuns

NAME, PACKAGE = "comet", "comet_ml"

# Comet has no public reader of an archive: it is a zip of files and of messages, a line each.
# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "each value",
    "as they are",
    "flat; as JSON",
    "in Comet's bins; as JSON",
    "PNG, caption",
    "as it is",
    "as a file",
)

# A run that goes on is one more, of the same id.
FURTHER = True

READER = """
import zipfile

def read(path):
    archive = zipfile.ZipFile(path)
    about = json.loads(archive.read("experiment.json"))
    metrics, params, others, uploads = {}, {}, {}, []
    for line in archive.read("messages.json").splitlines():
        message = json.loads(line)
        kind, payload = message["type"], message["payload"]
        if kind == "metric_msg":
            metric = payload["metric"]
            metrics.setdefault(metric["metricName"], []).append([metric["step"], float(metric["metricValue"])])
        elif kind == "parameter_msg":
            param = payload.get("param") or payload["params"]
            params[param["paramName"]] = param["paramValue"]
        elif kind == "log_other":
            others[payload["key"]] = payload["value"]
        elif kind == "file_upload":
            data = archive.read(payload["file_path"])
            uploads.append([payload["upload_type"], payload["additional_params"], payload["metadata"], data])
    return {
        "id": about["offline_id"],
        "metrics": {key: six_kinds.by_step(pairs) for key, pairs in metrics.items() if key != "process duration"},
        "flat_params": params,
        "run": {"project": about["project_name"], "name": others["Name"], "group": others.get("group"), "tags": sorted(about["tags"]), "status": others["status"]},
    }, uploads

def of(run):
    files = sorted((FOLDER / "runs" / "a project" / run / "comet").glob("*.zip"))
    return sorted(map(read, files), key=lambda found: (found[0]["run"]["name"], found[0]["run"]["status"]))

((kinds, uploads),) = of("kinds")
files = {about["fileName"]: [about["step"], data] for kind, about, _, data in uploads if kind in ("asset", "video")}
kinds["params"] = json.loads(files["hparams/000000003.json"][1])
step, data = files["acts/000000003.json"]
found = json.loads(data)
kinds["histogram"] = {"step": step, "counts": found["counts"], "edges": found["edges"]}
(own,) = [[about["step"], json.loads(data)] for kind, about, _, data in uploads if kind == "histogram3d" and about["fileName"] == "acts"]
kinds["own_histogram"] = [own[0], sum(count for _, count in own[1]["index_values"])]
((about, facts, data),) = [upload[1:] for upload in uploads if upload[0] == "visualization"]
kinds["image"] = {"step": about["step"], "pixels": pixels(io.BytesIO(data)), "caption": facts["caption"]}
for kind, name in (("video", "clip.gif"), ("mesh", "shape/000000003.glb")):
    kinds[kind] = {"step": files[name][0], "sha": six_kinds.sha(files[name][1])}
text, alert = [upload[1:] for upload in uploads if upload[0] == "text-sample"]
kinds["text"] = {"step": text[0]["step"], "text": text[2].decode()}
kinds["text_name"] = text[1]["name"]
kinds["alert"] = [alert[2].decode(), alert[1]["text"], alert[1]["level"]]
kinds["files"] = {name.removeprefix("artifacts/"): six_kinds.sha(data) for name, (_, data) in files.items() if name.startswith("artifacts/")}
tell_found(kinds, [found for found, _ in of("steps")])
"""


def check_own(runs: TrackerRuns) -> None:
    assert runs.kinds["text_name"] == "notes/said"
    assert runs.kinds["own_histogram"] == [six_kinds.STEP, 1000]
    flat = {"model/act/name": "relu", "model/layers": [3, 5], "nothing": None, "lr": 0.1}
    assert flat.items() <= runs.kinds["flat_params"].items()
