"""The interface to MLflow: a tracking server, or a store in one file beside the runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.names import accepted_name, flattened
from dftrace_ai.loggers.trackers.base import BaseLogint, RunFacts, picture_of
from dftrace_ai.loggers.trackers.file_paths import lent_file, one_at_a_time
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.records import ImageRecord, Params, Status

RUN_TAG, GROUP_TAG, CHANGED_TAG = "dftrace.run", "dftrace.group", "dftrace.changed."
STATUSES = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
# What one request may hold, by MLflow's own limits.
MOST_METRICS, MOST_PARAMS, MOST_LETTERS = 1000, 100, 6000
MOST_NAMED, MOST_OF_EXPERIMENT = 240, 500
UNMADE = ".mlflow-unmade-"
UNNAMED = re.compile(r"[^\w./ -]")


class MLFlowLogint(BaseLogint):
    """Logs to MLflow.

    To the store that ``options: {tracking_uri: ...}`` or ``MLFLOW_TRACKING_URI`` names, else to
    ``mlflow.db`` in the directory of all runs, with files in ``mlartifacts`` beside it; neither
    needs a network. Of ``options``, ``experiment_name`` and ``artifact_location`` say what the run
    belongs to and where files go, ``run_id`` goes on with that run, and all others go to
    `MlflowClient.create_run`. MLflow's telemetry is switched off.

    Metrics that came meanwhile are written in one request.
    """

    name: ClassVar[str] = "mlflow"
    packages: ClassVar[tuple[str, ...]] = ("mlflow",)
    extra: ClassVar[str] = "mlflow"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._metrics: list[Any] = []
        self._params: dict[str, str] = {}
        self._files: dict[str, int] = {}
        self._id = ""

    def open(self) -> None:
        """Begin a run, or go on with the one of that name, if it must or must not be there."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        run, options = self.run, dict(self.run.options)
        uri = options.pop("tracking_uri", None) or os.environ.get("MLFLOW_TRACKING_URI")
        place = options.pop("artifact_location", None)
        store = run.root / "mlflow.db"
        own = f"sqlite:///{store}"
        if not uri:
            uri = own
            place = place or (run.root / "mlartifacts").as_uri()
        name = options.pop(
            "experiment_name", accepted_name(run.project, run.project, MOST_OF_EXPERIMENT)
        )
        # Ranks that make a store of one file at once are in each other's way.
        with one_at_a_time(run.root / ".mlflow.lock"):
            if uri == own and not store.exists():
                _make_store(store)
            client = self.experiment = MlflowClient(tracking_uri=uri)
            experiment = _experiment(client, name, place)
        self._id = options.pop("run_id", None) or self._found(experiment)
        if self._id:
            client.update_run(self._id, status="RUNNING")
            self._params = dict(client.get_run(self._id).data.params)
            return
        tags = {**dict.fromkeys(run.tags, ""), RUN_TAG: run.identity(32)}
        if run.group:
            tags[GROUP_TAG] = run.group
        given = {"run_name": run.title, **options, "tags": tags | options.get("tags", {})}
        self._id = client.create_run(experiment, **given).info.run_id

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep numbers until the next lull."""
        from mlflow.entities import Metric

        now_ms = round(self.at.time_s * 1000)
        self._metrics += [
            Metric(_path(name), float(value), now_ms, step) for name, value in metrics.items()
        ]

    def lull(self) -> None:
        """Write numbers, so many a request as MLflow takes."""
        while self._metrics:
            some, self._metrics = self._metrics[:MOST_METRICS], self._metrics[MOST_METRICS:]
            self.experiment.log_batch(self._id, metrics=some)

    def log_params(self, params: Params) -> None:
        """Log them flat, as texts, and as a JSON file with what they were.

        MLflow does not change a parameter: a new value becomes a tag.
        """
        from mlflow.entities import Param

        flat = {_path(name): str(value) for name, value in flattened(params).items()}
        new = [Param(k, v[:MOST_LETTERS]) for k, v in flat.items() if k not in self._params]
        for start in range(0, len(new), MOST_PARAMS):
            self.experiment.log_batch(self._id, params=new[start : start + MOST_PARAMS])
        for name, value in flat.items():
            if self._params.setdefault(name, value) != value:
                self.experiment.set_tag(self._id, CHANGED_TAG + name, value[:MOST_LETTERS])
        text = json.dumps(params, indent=2, default=str)
        self.log_file("hparams", text.encode(), "json", round(self.at.time_s * 1000))

    def log_image(self, image: ImageRecord) -> None:
        """Log a picture by name and step."""
        self.experiment.log_image(
            self._id,
            picture_of(image),
            key=_path(image.name),
            step=image.at.step,
            timestamp=round(image.at.time_s * 1000),
            synchronous=True,
        )

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file among the run's artifacts, by name and step."""
        folder = _path(name)
        again = self._files[f"{folder} {step}"] = self._files.get(f"{folder} {step}", 0) + 1
        file = f"{step:09}{'' if again == 1 else f'-{again}'}"
        with lent_file(data, suffix, file) as path:
            self.experiment.log_artifact(self._id, str(path), folder)

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a file or directory among the run's artifacts."""
        if path.is_dir():
            self.experiment.log_artifacts(self._id, str(path), f"artifacts/{_path(name)}")
        elif path.name == name:
            self.experiment.log_artifact(self._id, str(path), "artifacts")
        else:
            stem, _, suffix = name.rpartition(".")
            with lent_file(path.read_bytes(), suffix, stem or name) as copy:
                self.experiment.log_artifact(self._id, str(copy), "artifacts")

    def flush(self) -> None:
        """Write what is left."""
        self.lull()

    def finish(self, status: Status) -> None:
        """End the run: FINISHED, FAILED or KILLED."""
        self.experiment.set_terminated(self._id, STATUSES[status])

    def _found(self, experiment: str) -> str:
        run = self.run
        asked = f"tags.`{RUN_TAG}` = '{run.identity(32)}'"
        found = self.experiment.search_runs(
            [experiment], asked, max_results=1, order_by=["attributes.start_time DESC"]
        )
        if found and run.resume == "never":
            raise ConfigError(f"resume: never, and MLflow has a run {quoted(run.title)}")
        if not found and run.resume == "must":
            raise ConfigError(f"resume: must, and MLflow has no run {quoted(run.title)}")
        return found[0].info.run_id if found else ""


def _make_store(path: Path) -> None:
    """Make a store of one file: whole, or not at all."""
    # MLflow makes it in many steps, and where it is killed in between, as at the end of a run
    # that is shorter than that, nobody can open it any more.
    from mlflow.tracking import MlflowClient

    for left in path.parent.glob(f"{UNMADE}*/"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=UNMADE) as folder:
        made = Path(folder) / path.name
        MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments(max_results=1)
        made.replace(path)


def _experiment(client: Any, name: str, place: str | None) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except MlflowException:
            # Somebody on another machine has made it meanwhile.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _path(name: str) -> str:
    """Return a name as MLflow accepts it: the letters that it knows, and no path out of it."""
    parts = [UNNAMED.sub("_", part) for part in name.split("/") if part]
    path = "/".join(part if part.strip(".") else f"_{part}" for part in parts) or "_"
    return accepted_name(name, path, MOST_NAMED)
