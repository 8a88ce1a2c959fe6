"""MLflow's store in one file, of which the making was cut short."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import clean_environment

from trackers.readers.mlflow import PACKAGE
from trackers.tracker_runs import python_with

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
