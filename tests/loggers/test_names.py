"""Names that a path cannot have: what is logged under two names stays two things, as they are called."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from loggers.local_lines import Kept, entry
from loggers.runs.made_logs import Log, by_key
from safety.commands import invoke

from dftrace_ai import ConfigError
from dftrace_ai.loggers import Logger, make_loggers
from dftrace_ai.loggers.names import accepted_name, safe_name
from dftrace_ai.loggers.runs.reading import read_runs
from dftrace_ai.loggers.trackers import mlflow, swanlab, trackio, wandb
from dftrace_ai.loggers.trackers.base import RunFacts

LONG = "sweep-" + "lr=0.001," * 40
NAMES = (
    *("实验一", "实验二", "a/b", "a:b", "a_b", "a//b", "A/B", "..", ".", "../a", "_.."),
    *(f"{LONG}a", f"{LONG}b", "x\n", "x\t", "plain-1", "lr=0.1", "with space"),
)
KEPT_AS_THEY_ARE = ("plain-1", "lr=0.1", "with space", "a_b", "_..")


def log_to(folder: Path, value: float, **config: object) -> None:
    with make_loggers({"local": entry(folder, **config)}) as loggers:
        loggers.log_hyperparams({"value": value})
        for _ in range(3):
            loggers.log_iter({"loss": value})


@pytest.mark.parametrize("what", ["run_name", "project"])
def test_runs_of_different_names_are_different_runs(tmp_path: Path, what: str) -> None:
    logged = tmp_path / "logged"
    for value, name in enumerate(NAMES):
        log_to(logged, value, **{"project": "p", "run_name": "r", what: name})

    runs = read_runs(logged)
    assert not runs.notes
    other = "p/{}" if what == "run_name" else "{}/r"
    assert set(by_key(runs)) == {other.format(name) for name in NAMES}
    found = {run.name if what == "run_name" else run.project: run for run in runs}
    for value, name in enumerate(NAMES):
        run = found[name]
        figures = run.metrics["loss"]
        assert (run.params, run.rows) == ({"value": value}, 3)
        assert (figures.min, figures.mean, figures.max) == (value, value, value)

    parts = {path.parent for path in logged.rglob("*.jsonl")}
    named = {path.name if what == "run_name" else path.parent.name for path in parts}
    assert len(named) == len(NAMES)
    assert set(KEPT_AS_THEY_ARE) <= named
    assert named == {safe_name(name) for name in NAMES}
    assert all(name.isascii() and name.isprintable() and len(name) <= 120 for name in named)

    done = invoke("runs", str(logged), "--to", "csv", "--out", str(tmp_path / "tables"))
    assert done.status == 0, done.err
    with (tmp_path / "tables" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(NAMES)
    assert {row["run"] for row in rows} == {run.key for run in runs}
    page = tmp_path / "page.html"
    assert invoke("runs", str(logged), "--to", "html", "--out", str(page)).status == 0
    assert "实验一" in page.read_text(encoding="utf-8")
    listed = invoke("runs", str(logged))
    assert "实验一" in listed.out
    assert "a:b" in listed.out


def test_runs_from_before_go_on_where_they_are(tmp_path: Path) -> None:
    # As they lay: letters that a path does not have were one letter, and names were cut.
    Log(tmp_path, "p/___", name="实验一", number=1).metrics(0, loss=1.0).end()
    Log(tmp_path, "p/___", name="实验二", number=2).metrics(0, loss=2.0).end()
    Log(tmp_path, f"p_q/{LONG[:120].replace(',', '_')}", project="p:q", name=LONG).metrics(
        0, loss=3.0
    ).end()
    Log(tmp_path, "p/a_b").metrics(0, loss=4.0).end()
    Log(tmp_path, "p/moved", name="was").metrics(0, loss=5.0).end()
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}

    assert set(by_key(read_runs(tmp_path))) == {
        *("p/实验一", "p/实验二", f"p:q/{LONG}", "p/a_b", "p/moved"),
    }
    assert set(by_key(read_runs(tmp_path / "p" / "___"))) == {"实验一", "实验二"}
    begun = (("p", "实验一"), ("p", "实验二"), ("p:q", LONG), ("p", "a_b"), ("p", "moved"))
    for number, (project, name) in enumerate(begun, 11):
        log_to(tmp_path, number, project=project, run_name=name, resume="must")
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
    runs = read_runs(tmp_path)
    assert sorted((run.name, run.rows, run.metrics["loss"].last) for run in runs) == sorted(
        (name, 4, number) for number, (_, name) in enumerate(begun, 11)
    )

    log_to(tmp_path, 20.0, project="p", run_name="实验三")
    assert by_key(read_runs(tmp_path))["p/实验三"].metrics["loss"].mean == 20.0
    with pytest.raises(ConfigError, match="resume: must, and there is no run"):
        Logger({"local": entry(tmp_path, project="p", run_name="实验四", resume="must")})
    # Nor is a run whose name is what another one's had to be changed to.
    changed = safe_name("实验三")
    log_to(tmp_path, 30.0, project="p", run_name=changed)
    assert by_key(read_runs(tmp_path))[f"p/{changed}"].metrics["loss"].max == 30.0


def test_a_file_system_that_knows_no_cases_holds_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As such a file system has it: the other name leads to the directory, which is listed once.
    log_to(tmp_path, 1.0, project="p", run_name="Exp")
    (tmp_path / "p" / "exp").symlink_to("Exp")
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: (p for p in listed(path) if p.name != "exp"))
    for _ in range(2):
        log_to(tmp_path, 2.0, project="p", run_name="exp")
    monkeypatch.undo()

    runs = by_key(read_runs(tmp_path))
    assert {key: (run.rows, run.metrics["loss"].mean) for key, run in runs.items()} == {
        "p/Exp": (3, 1.0),
        "p/exp": (6, 2.0),
    }


def test_files_of_different_names_are_different_files(tmp_path: Path) -> None:
    source = tmp_path / "weights.pt"
    with make_loggers({"local": entry(tmp_path / "out")}) as loggers:
        for value, name in enumerate(NAMES):
            source.write_bytes(name.encode())
            loggers.log_artifact(source, name)
            loggers.log_artifact(source, f"{name}.pt")
            loggers.log_image(name, [[value, 255]])
            loggers.flush()

    kept = Kept(tmp_path / "out")
    artifacts = {line["name"]: kept.file(line) for line in kept.of("a")}
    assert {name: path.read_bytes().decode() for name, path in artifacts.items()} == {
        called: name for name in NAMES for called in (name, f"{name}.pt")
    }
    assert all(artifacts[f"{name}.pt"].suffix == ".pt" for name in NAMES)
    pictures = {line["name"]: line["file"] for line in kept.of("f")}
    assert set(pictures) == set(NAMES)
    assert len({str(Path(file).parent) for file in pictures.values()}) == len(NAMES)


def test_each_tracker_has_a_project_and_a_run_for_each_name(tmp_path: Path) -> None:
    # What trackers change by themselves is in the last: Trackio leaves out the points.
    names = (*NAMES, "v1.1", "v11", "v1 1")
    ids = {
        RunFacts(project=project, run_name=name, log_dir=tmp_path, root=tmp_path).identity(16)
        for project in names
        for name in names
    }
    assert len(ids) == len(names) ** 2
    assert len({mlflow._path(name) for name in names}) == len(names)
    for refused in (wandb.REFUSED, swanlab.UNNAMED):
        accepted = {accepted_name(name, refused.sub("-", name), 100) for name in names}
        assert len(accepted) == len(names), refused
    databases = {"".join(c for c in trackio._project(n) if c.isalnum() or c in "-_") for n in names}
    assert len(databases) == len(names)


def test_a_parameter_and_one_within_another_of_its_name_are_two(tmp_path: Path) -> None:
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        loggers.log_hyperparams({"a/b": 1, "a": {"b": 2}, 1: "number", "1": "text"})

    (run,) = read_runs(tmp_path)
    assert sorted(map(str, run.params.values())) == ["1", "2", "number", "text"]
    assert set(run.params) == {"a/b", "a/b (2)", "1", "1 (2)"}
