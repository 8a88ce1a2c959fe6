"""Weights & Biases, offline: everything that was logged is in the file that `wandb sync` reads."""

from __future__ import annotations

from typing import Any

from trackers.programs import six_kinds
from trackers.tracker_runs import TrackerRuns

NAME, PACKAGE = "wandb", "wandb"

# wandb has no public reader of an offline run: frames of LevelDB's log, records of its protobuf.
# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = ("each value", "as they are", "as they are", "as it is", "PNG, caption", "as it is", "GLB")

# A run that goes on is one more, of the same id.
FURTHER = True

READER = """
import struct
from wandb.proto import wandb_internal_pb2 as pb

def records(path):
    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield pb.Record.FromString(whole)
            whole = b""

def value(item):
    return json.loads(item.value_json)

def nested(into, path, value):
    for part in path[:-1]:
        into = into.setdefault(part, {})
    into[path[-1]] = value

def read(file):
    metrics, media, config, axes, found = {}, {}, {}, {}, {"file": file.name}
    folder = file.parent / "files"
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            row = {}
            for item in record.history.item:
                nested(row, list(item.nested_key) or [item.key], value(item))
            ((axis, step),) = [pair for pair in row.items() if pair[0].startswith("step/")]
            for key, one in row.items():
                if isinstance(one, dict):
                    media[key] = {"step": step, **one}
                elif isinstance(one, str) and one not in ("NaN", "Infinity", "-Infinity"):
                    media[key] = {"step": step, "text": one}
                elif not key.startswith(("_", "step/")):
                    metrics.setdefault(key, []).append([step, float(one)])
                    axes.setdefault(key, []).append(axis)
        elif kind in ("config", "run"):
            for item in record.config.update if kind == "config" else record.run.config.update:
                nested(config, list(item.nested_key) or [item.key], value(item))
            if kind == "run":
                run = record.run
                found["id"] = run.run_id
                found["run"] = {"project": run.project, "name": run.display_name, "group": run.run_group, "tags": list(run.tags)}
        elif kind == "metric" and record.metric.step_metric:
            found.setdefault("asked_axes", {})[record.metric.name] = record.metric.step_metric
        elif kind == "alert":
            found["alert"] = [record.alert.title, record.alert.text, record.alert.level]
        elif kind == "summary":
            for item in record.summary.update:
                if item.key == "status":
                    found["run"]["status"] = value(item)
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    found["metrics"] = {key: six_kinds.by_step(pairs) for key, pairs in metrics.items()}
    found["axes"] = {key: sorted(set(asked)) for key, asked in axes.items()}
    found["params"] = {key: one for key, one in config.items() if key != "_wandb"}
    if "acts" in media:
        histogram, image = media["acts"], media["views/render"]
        found["histogram"] = {"step": histogram["step"], "counts": histogram["values"], "edges": histogram["bins"]}
        found["image"] = {"step": image["step"], "pixels": pixels(folder / image["path"]), "caption": image["caption"]}
        for kind, name in (("video", "clip"), ("mesh", "shape")):
            path = folder / media[name]["path"]
            found[kind] = {"step": media[name]["step"], "sha": six_kinds.sha(path.read_bytes())}
        found["text"] = media["notes/said"]
    found["all_files"] = {str(path.relative_to(folder)): six_kinds.sha(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    found["files"] = {name.removeprefix("artifacts/"): sha for name, sha in found["all_files"].items() if name.startswith("artifacts/")}
    return found

def of(run):
    files = (FOLDER / "runs" / "a project" / run).glob("wandb/offline-run-*/run-*.wandb")
    return sorted(map(read, sorted(files)), key=lambda found: found["run"]["name"])

kinds, = of("kinds")
tell_found(kinds, of("steps"))
"""


def as_kept(expected: dict[str, Any]) -> None:
    expected["alert"][2] = "WARN"


def check_own(runs: TrackerRuns) -> None:
    axes = runs.kinds["axes"]
    assert axes["loss"] == ["step/iteration"]
    assert axes["epoch/loss/mean"] == ["step/epoch"]
    assert axes["system/cpu_percent"] == ["step/seconds"]
    assert {name: [axis] for name, axis in runs.kinds["asked_axes"].items()}.items() >= axes.items()
    assert [found["exit"] for found in runs.steps] == [1, 0, 255]
    assert {found["run"]["group"] for found in runs.steps} == {"steps"}
    # Nothing else is collected.
    assert set(runs.kinds["all_files"]) == {
        *(f"artifacts/{name}" for name in six_kinds.expected()["files"]),
        *(name for name in runs.kinds["all_files"] if name.startswith("media/")),
    }
