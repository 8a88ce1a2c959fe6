"""MLflow with its store in a file: everything that was logged is told by `MlflowClient`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import clean_environment

from dftrace_ai.loggers.names import told_apart
from trackers.programs import shuffled_steps, six_kinds
from trackers.tracker_runs import TrackerRuns, python_with

NAME, PACKAGE, OPTIONS, STEP_COUNT = "mlflow", "mlflow", {}, 1000

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

# A store is made in more than a thousand statements; after some of them it cannot be gone on with.
CUT_SHORT = """
import os
import sys
from pathlib import Path

from mlflow.tracking import MlflowClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

from dftrace_ai.loggers.interfaces.base import RunFacts
from dftrace_ai.loggers.interfaces.mlflow import MLFlowLogint
from dftrace_ai.loggers.records import Point

root = Path(sys.argv[1])
run = RunFacts(project="a project", run_name="run", log_dir=root, root=root)
done = 0

def count(*given):
    global done
    done += 1
    if done == 245:
        os._exit(9)

child = os.fork()
if not child:
    event.listen(Engine, "after_cursor_execute", count)
    MLFlowLogint(run).open()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
logint = MLFlowLogint(run)
logint.open()
logint.at = Point(3, time_s=1.0)
logint.log_metrics({"loss": 0.5}, 3)
logint.lull()
logint.finish("finished")
client = MlflowClient(tracking_uri=f"sqlite:///{root / 'mlflow.db'}")
(found,) = client.search_runs([client.get_experiment_by_name("a project").experiment_id])
print(found.data.metrics, found.info.status)
print(sorted(path.name for path in root.iterdir()))
"""

GREATEST = 1.7976931348623157e308
FLAT = {
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


@pytest.mark.parametrize("kind", six_kinds.KINDS)
def test_each_kind_is_read_back_as_it_was_logged(runs: TrackerRuns, kind: str) -> None:
    expected = six_kinds.expected()
    # Pictures have no captions; the store has the greatest number for an infinity.
    del expected["image"]["caption"]
    expected["metrics"]["odd"] = [[0, "nan"], [1, GREATEST], [2, -GREATEST]]
    expected["metrics"]["epoch/odd/last"] = [[0, -GREATEST]]
    # Letters that it does not accept; and it has no two slashes.
    for name, changed in {"of:it": "of_it", "of//it": "of/it"}.items():
        values = expected["metrics"].pop(name)
        expected["metrics"][told_apart(changed, name)] = values

    assert runs.kinds[kind] == expected[kind]


def test_hyper_parameters_stand_flat_as_well(runs: TrackerRuns) -> None:
    assert runs.kinds["flat_params"] == FLAT


@pytest.mark.sampled
def test_shuffled_steps_of_two_ranks_and_a_restart_keep_every_value(runs: TrackerRuns) -> None:
    assert [found["run"]["name"] for found in runs.steps] == ["steps-rank0", "steps-rank1"]
    for rank, found in enumerate(runs.steps):
        logged = shuffled_steps.all_values(rank, STEP_COUNT)
        # Values of one step come in no order.
        assert sorted(found["metrics"]["loss"]) == sorted(logged)


def test_the_run_is_told_how_it_ended(runs: TrackerRuns) -> None:
    assert [found["run"]["status"] for found in runs.steps] == ["finished", "killed"]


def test_nobody_asks_for_the_network_and_nothing_is_lost(runs: TrackerRuns) -> None:
    assert runs.attempts == []
    assert runs.lost == 0


def test_a_store_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    python = python_with(PACKAGE)
    if python is None:
        pytest.skip(f"{PACKAGE} is not installed: `make .venv-trackers/made`")
    done = subprocess.run(
        [python, "-c", CUT_SHORT, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "9",
        "{'loss': 0.5} FINISHED",
        "['.mlflow.lock', 'mlflow.db']",
    ], done.stderr
