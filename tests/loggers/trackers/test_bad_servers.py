"""Trackers whose servers hang, refuse, answer with errors or die: the training does not feel it."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from sampling import times

from trackers.programs import bad_servers
from trackers.tracker_runs import LIMIT_S, python_with, without_network

# By the names of their packages.
TRACKERS = {
    **{name: name for name in ("wandb", "mlflow", "aim", "neptune", "trackio", "swanlab")},
    "comet": "comet_ml",
}
MODES = ("hangs", "refuses", "answers 500", "dies")
UNSURE = "may not have kept or sent all of them"
GIVEN = bad_servers.STEPS + 1  # and what the epoch comes to


@pytest.mark.sampled
@pytest.mark.parametrize("shift", range(times(len(MODES), 0.25)))
def test_training_is_unharmed_and_the_loss_is_told(tmp_path: Path, shift: int) -> None:
    pythons = {name: python_with(package) for name, package in TRACKERS.items()}
    names = sorted(name for name, python in pythons.items() if python)
    if not names:
        pytest.skip("no tracker is installed: `make .venv-trackers/made`")
    modes = {name: MODES[(index + shift) % len(MODES)] for index, name in enumerate(names)}
    done = subprocess.run(
        [str(pythons[names[0]]), "-m", "bad_servers", json.dumps(modes)],
        cwd=tmp_path,
        env=without_network(tmp_path, *TRACKERS),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == names
    run = tmp_path / "runs" / "default" / "run"
    (log,) = run.glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    numbers = [line["v"]["loss"] for line in lines if line["k"] == "m" and line["a"] == "i"]
    assert numbers == [float(step) for step in range(bad_servers.STEPS)]
    assert lines[-1]["status"] == "finished"
    told = re.findall(r"the tracker (\w+) lost (\d+) of (\d+) records?: (.*)", done.stderr)
    assert len({name for name, *_ in told}) == len(told), done.stderr
    lost = {name: (int(count), why) for name, count, given, why in told if given == str(GIVEN)}
    assert len(lost) == len(told), done.stderr
    assert kept_elsewhere(tmp_path) == []
    for name in names:
        count, why = lost.get(name, (0, ""))
        if name == "trackio":
            # It keeps what a server has not taken, for the next run that finds one.
            assert count + kept_by_trackio(tmp_path) == GIVEN or UNSURE in why, done.stderr
        else:
            assert count == GIVEN, done.stderr


def kept_elsewhere(folder: Path) -> list[Path]:
    """Files of trackers, other than Trackio's, that hold anything of what was logged."""
    files = [path for path in (folder / "runs").rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix != ".jsonl" and path.parent.name != "trackio"]
    return [path for path in others if b"epoch/loss" in path.read_bytes()]


def kept_by_trackio(folder: Path) -> int:
    """How many records there are in its database."""
    path = folder / "runs" / "trackio" / "default.db"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as database:
        asked = "select count(*) from metrics where cast(metrics as text) like '%loss%'"
        ((count,),) = database.execute(asked)
    return int(count)
