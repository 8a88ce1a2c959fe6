"""The page on pull requests: the action's steps run as GitHub's runner runs them, on a real repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import clean_environment

from docs.pages import DOCS, between, blocks, plain, table

PAGE = DOCS / "guide" / "pull-requests.md"
ACTION: dict[str, Any] = yaml.safe_load(
    (DOCS / "github-action" / "action.yml").read_text(encoding="utf-8")
)
# Times are given, so that nothing hangs on how busy the machine is.
TRAIN = """
import sys
import dftrace_ai
from dftrace_ai.run.emitting import complete, time_us

with dftrace_ai.tracing():
    begin = time_us()
    for step in range(40):
        at = begin + step * 40_000
        complete("forward", at + 100, FORWARD_US, category="compute")
        complete("step", at, FORWARD_US + 1_000, category="pipeline")
sys.exit(int(sys.argv[1]))
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one commit, as actions/checkout makes it: the training takes three times as long."""
    origin = tmp_path_factory.mktemp("origin")
    git(origin, "init", "-q", "-b", "main")
    (origin / "model dir").mkdir()
    for branch, forward_us in (("main", 5_000), ("slower", 15_000)):
        if branch != "main":
            git(origin, "checkout", "-q", "-b", branch)
        program = TRAIN.replace("FORWARD_US", str(forward_us))
        (origin / "model dir" / "train.py").write_text(program)
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", branch)
    there = tmp_path_factory.mktemp("runner") / "work"
    git(origin, "clone", "-q", "--depth=1", "-b", "slower", f"file://{origin}", str(there))
    return there


class Runner:
    """Runs the steps of the action: bash with the options that GitHub gives it, and its files."""

    def __init__(self, checkout: Path, temp: Path, **inputs: str) -> None:
        self.checkout, self.temp = checkout, temp
        known = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        assert set(inputs) <= set(known)
        self.inputs = {**known, "base": "main", **inputs}
        self.outputs: dict[str, dict[str, str]] = {}
        self.summary = temp / "summary.md"
        self.said = ""

    def filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            first, *rest = found[1].strip().split(".")
            return self.inputs[rest[0]] if first == "inputs" else self.outputs[rest[0]][rest[2]]

        return re.sub(r"\$\{\{(.*?)\}\}", value, text)

    def run(self) -> int:
        for step in ACTION["runs"]["steps"]:
            assert "${{" not in step["run"]  # what stands in an input is no script
            script, out = self.temp / f"{step['id']}.sh", self.temp / f"{step['id']}.out"
            script.write_text(step["run"])
            out.touch()
            environ = {
                **clean_environment(),
                **{name: self.filled(text) for name, text in step["env"].items()},
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "RUNNER_TEMP": str(self.temp),
                "GITHUB_OUTPUT": str(out),
                "GITHUB_STEP_SUMMARY": str(self.summary),
            }
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
                cwd=self.checkout / self.filled(step.get("working-directory", ".")),
                env=environ,
                capture_output=True,
                text=True,
                timeout=300,
            )
            self.said += done.stdout + done.stderr
            lines = out.read_text().splitlines()
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in lines)
            if done.returncode:
                return done.returncode
        return 0


def runner(checkout: Path, temp: Path, **inputs: str) -> Runner:
    given = {"command": "python train.py 0", "working-directory": "model dir", "repeats": "1"}
    return Runner(checkout, temp, **{**given, **inputs})


def test_a_slower_training_fails_and_is_told(checkout: Path, tmp_path: Path) -> None:
    """Twice each, from a checkout of one commit; nothing is left of the base."""
    made = runner(
        checkout,
        tmp_path,
        **{
            "fail-if": "\nstep p50 > +5%\n\ncompute.forward > +2ms\n",
            "repeats": "2",
            "prepare": "echo ready >> prepared",
        },
    )
    assert made.run() == 1, made.said
    assert "::error title=dftrace::a step became slower" in made.said
    told = made.summary.read_text()
    assert told.startswith("### SLOWER: a step took 6 ms in A, 16 ms in B: +166.7 %")
    assert "| `compute.forward > +2ms` | MET: 10 ms" in told
    outputs = made.outputs["compare"]
    assert outputs["verdict"] == "SLOWER"
    assert Path(outputs["markdown"]).read_text() == told
    traces = Path(made.outputs["record"]["traces"])
    assert sorted(str(one.parent.relative_to(traces)) for one in traces.rglob("*.pfw*")) == [
        *("base/1", "base/2", "this/1", "this/2"),
    ]
    assert (checkout / "model dir" / "prepared").read_text() == "ready\nready\n"
    (checkout / "model dir" / "prepared").unlink()
    assert git(checkout, "worktree", "list").count("\n") == 0
    assert git(checkout, "status", "--short") == ""


def test_what_is_not_met_in_one_comparison_does_not_fail(checkout: Path, tmp_path: Path) -> None:
    """The second recording of this commit is as fast as that of the base."""
    once = '[ -e ../../once ] && sed -i "s/15000/5000/g" train.py; touch ../../once'
    made = runner(checkout, tmp_path, **{"fail-if": "step > +5%", "repeats": "2", "prepare": once})
    try:
        assert made.run() == 0, made.said
    finally:
        git(checkout, "checkout", "-q", ".")
    assert "not met" in made.summary.read_text()


def test_what_cannot_be_done_is_said(checkout: Path, tmp_path: Path) -> None:
    cases = {
        "the training of base ended with 7": {"command": "python train.py 7"},
        "origin has no such branch": {"base": "no-such-branch"},
        "there is none to compare with": {"base": ""},
        "a number from 1 to 99 is needed": {"repeats": "$(touch never)"},
        "what prepares base ended with 3": {"prepare": "exit 3"},
    }
    for number, (said, inputs) in enumerate(cases.items()):
        temp = tmp_path / str(number)
        temp.mkdir()
        made = runner(checkout, temp, **inputs)
        assert made.run() == 2, made.said
        assert "::error title=dftrace::" in made.said
        assert said in made.said
        assert git(checkout, "worktree", "list").count("\n") == 0


def test_a_killed_job_and_a_wrong_condition_of_the_file(checkout: Path, tmp_path: Path) -> None:
    """Git knows the tree of a job that was killed, which is gone with the runner's folder."""
    tree = tmp_path / "dftrace-base"
    git(checkout, "worktree", "add", "-q", "--detach", "--lock", str(tree), "HEAD")
    shutil.rmtree(tree)
    project = checkout / "model dir" / "dftrace.toml"
    project.write_text('[diff]\nfail-if = ["compute.backwards > +2ms"]\n')
    made = runner(checkout, tmp_path)
    try:
        assert made.run() == 2, made.said
    finally:
        project.unlink()
    assert "::error title=dftrace::not everything could be judged" in made.said
    told = made.summary.read_text()
    assert told.startswith("### NOT JUDGED")
    assert "compute.backwards" in told
    outputs = made.outputs["compare"]
    assert outputs["verdict"] == "NOT JUDGED"
    assert Path(outputs["markdown"]).read_text() == told
    assert git(checkout, "worktree", "list").count("\n") == 0


def test_the_page_has_the_inputs_and_outputs() -> None:
    inputs = {
        plain(name): (default, about) for name, default, about in table(between(PAGE, "inputs"))
    }
    assert {name: about for name, (_, about) in inputs.items()} == {
        name: each["description"] for name, each in ACTION["inputs"].items()
    }
    outputs = {plain(name): about for name, about in table(between(PAGE, "outputs"))}
    assert outputs == {name: each["description"] for name, each in ACTION["outputs"].items()}
    (workflow,) = (yaml.safe_load(block.text) for block in blocks(PAGE, "yaml"))
    (step,) = (
        each
        for each in workflow["jobs"]["steps"]["steps"]
        if "github-action" in each.get("uses", "")
    )
    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, each in ACTION["inputs"].items() if each.get("required")} <= step[
        "with"
    ].keys()
