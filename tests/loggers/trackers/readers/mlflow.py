"""MLflow with its store in a file: everything that was logged is told by `MlflowClient`."""

from __future__ import annotations

from typing import Any

from dftrace_ai.loggers.names import told_apart
from trackers.tracker_runs import TrackerRuns

NAME, PACKAGE = "mlflow", "mlflow"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "each value",
    "infinities as the greatest number",
    "flat, as texts; as JSON",
    "as JSON",
    "PNG",
    "as a file",
    "as a file",
)

READER = """
from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=f"sqlite:///{FOLDER / 'runs' / 'mlflow.db'}")
downloads = FOLDER / "downloads"

def read(run):
    id = run.info.run_id
    root = Path(client.download_artifacts(id, "", str(downloads / id)))
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    tags = run.data.tags
    return {
        "id": id,
        "metrics": {
            key: six_kinds.by_step([[one.step, one.value] for one in client.get_metric_history(id, key)])
            for key in run.data.metrics
        },
        "flat_params": run.data.params,
        "tags": tags,
        "run": {
            "project": client.get_experiment(run.info.experiment_id).name,
            "name": run.info.run_name,
            "group": tags.get("dftrace.group"),
            "tags": [key for key, value in sorted(tags.items()) if value == ""],
            "status": run.info.status.lower(),
        },
    }, files

def of(name, group):
    experiment = client.get_experiment_by_name("a project")
    runs = client.search_runs([experiment.experiment_id], f"tags.`dftrace.group` = '{group}'")
    return sorted(map(read, runs), key=lambda found: found[0]["run"]["name"])

((kinds, files),) = of("kinds", "a group")
(params,) = [path for name, path in files.items() if name.startswith("hparams/")]
kinds["params"] = json.loads(params.read_text())
histogram = json.loads(files["acts/000000003.json"].read_text())
kinds["histogram"] = {"step": 3, "counts": histogram["counts"], "edges": histogram["edges"]}
(image,) = [name for name in files if name.startswith("images/") and name.endswith(".png")]
name, _, step, *_ = image.split("+")
assert name == "images/views~render"
kinds["image"] = {"step": int(step), "pixels": pixels(files[image])}
kinds["video"] = {"step": 3, "sha": six_kinds.sha(files["clip/000000003.gif"].read_bytes())}
kinds["mesh"] = {"step": 3, "sha": six_kinds.sha(files["shape/000000003.glb"].read_bytes())}
kinds["text"] = {"step": 3, "text": files["notes/said/000000003.txt"].read_text()}
kinds["files"] = {
    name.removeprefix("artifacts/"): six_kinds.sha(path.read_bytes())
    for name, path in files.items() if name.startswith("artifacts/")
}
(alert,) = [path.read_text() for name, path in files.items() if name.startswith("alerts/")]
level, _, rest = alert.partition(": ")
kinds["alert"] = [*rest.splitlines(), level]
tell_found(kinds, [found for found, _ in of("steps", "steps")])
"""


GREATEST = 1.7976931348623157e308
FLAT = {
    "huge": str(10**400),
    "lr": "0.1",
    "steps": "7",
    "level": "3",
    "amsgrad": "True",
    "note": "naïve ☃",
    "nothing": "None",
    "model/width": "8",
    "model/act/name": "relu",
    "model/layers": "[3, 5]",
}


def as_kept(expected: dict[str, Any]) -> None:
    # Pictures have no captions; the store has the greatest number for an infinity.
    del expected["image"]["caption"]
    expected["metrics"]["odd"] = [[0, "nan"], [1, GREATEST], [2, -GREATEST]]
    expected["metrics"]["epoch/odd/last"] = [[0, -GREATEST]]
    # Letters that it does not accept; and it has no two slashes.
    for name, changed in {"of:it": "of_it", "of//it": "of/it"}.items():
        values = expected["metrics"].pop(name)
        expected["metrics"][told_apart(changed, name)] = values


def check_own(runs: TrackerRuns) -> None:
    assert runs.kinds["flat_params"] == FLAT
