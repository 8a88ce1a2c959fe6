"""Trackio, with its database beside the runs: everything that was logged is told by its storage."""

from __future__ import annotations

from typing import Any

from dftrace_ai.loggers.names import told_apart

NAME, PACKAGE = "trackio", "trackio"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = ("each value", "as they are", "as they are", "as it is", "PNG, caption", "as it is", "GLB")

READER = """
os.environ.update(TRACKIO_DIR=str(FOLDER / "runs" / "trackio"), HF_HUB_OFFLINE="1")
import trackio
from trackio.sqlite_storage import SQLiteStorage

PROJECT = "a_project-8d24f5bc0a"
media = FOLDER / "runs" / "trackio" / "media"

def read(run):
    metrics, others = {}, {}
    for row in SQLiteStorage.get_logs(PROJECT, run.name, run_id=run.id):
        for key, value in row.items():
            if key in ("step", "timestamp"):
                continue
            if isinstance(value, float | int):
                metrics.setdefault(key, []).append([row["step"], float(value)])
            else:
                others[key] = [row["step"], value]
    config = run.config
    return {
        "id": run.id,
        "metrics": {key: six_kinds.by_step(pairs) for key, pairs in metrics.items()},
        "run": {"project": PROJECT, "name": run.name, "group": config["_Group"], "tags": config["tags"], "status": config["status"]},
        "params": {key: value for key, value in config.items() if key in six_kinds.PARAMS},
    }, others, run

found = [read(run) for run in trackio.Api().runs(PROJECT)]
((kinds, others, run), *steps) = sorted(found, key=lambda found: found[0]["run"]["name"])
step, histogram = others["acts"]
kinds["histogram"] = {"step": step, "counts": histogram["values"], "edges": histogram["bins"]}
step, image = others["views/render"]
kinds["image"] = {"step": step, "pixels": pixels(media / image["file_path"]), "caption": image["caption"]}
for kind, name in (("video", "clip"), ("mesh", "shape")):
    step, one = others[name]
    kinds[kind] = {"step": step, "sha": six_kinds.sha((media / one["file_path"]).read_bytes())}
step, text = others["notes/said"]
kinds["text"] = {"step": step, "text": text["_value"]}
(alert,) = run.alerts()
kinds["alert"] = [alert["title"], alert["text"], alert["level"]]
kinds["files"] = {}
trackio.init(project=PROJECT, name="reader", embed=False, auto_log_cpu=False, auto_log_gpu=False)
for name in ("weights.bin", "tree"):
    root = Path(trackio.use_artifact(name).download(FOLDER / "downloads" / name))
    for path in sorted(root.rglob("*")):
        if path.is_file():
            part = path.relative_to(root).as_posix()
            kinds["files"][part if name == part else f"{name}/{part}"] = six_kinds.sha(path.read_bytes())
tell_found(kinds, [found for found, _, _ in steps])
"""


def as_kept(expected: dict[str, Any]) -> None:
    expected["alert"][2] = "warn"
    # Trackio itself leaves out what is no letter, digit, _ or -, and so makes one of two projects.
    expected["run"]["project"] = told_apart("a_project", "a project")
