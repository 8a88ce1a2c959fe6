"""Runs listed, chosen, sorted and put side by side by the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from loggers.runs.made_logs import BEGUN_S, Log
from printed_json import checked
from safety.commands import Done, acting, at_terminal, invoke

from dftrace_ai.conditions import holds
from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.runs.conditions import Condition


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two projects that differ in all that one chooses by."""
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "vision/a": dict(lr=0.1, opt="adam", loss=[3.0, 1.0, 2.0], group="g1", tags=["x"]),
        "vision/b": dict(lr=0.01, opt="sgd", loss=[5.0, 4.0], group="g1", tags=["x", "y"]),
        "text/c": dict(lr=1, opt="adam", loss=[math.nan], group="", tags=[], amp=True),
        "text/d": dict(lr="auto", loss=[], group="g2", tags=["y"], amp=None),
    }
    for number, (key, has) in enumerate(made.items()):
        loss, group, tags = has.pop("loss"), has.pop("group"), has.pop("tags")
        log = Log(folder, key, t=BEGUN_S + 10 * (3 - number), group=group, tags=tags)
        log.add("p", v={"model": {"width": 8}, **has})
        for step, value in enumerate(loss):
            log.metrics(
                step, **{"val/loss": "NaN" if math.isnan(value) else value, "system/cpu": 1}
            )
        log.end("failed" if key == "text/d" else "finished")
    return folder


def listed(root: Path, *words: object) -> list[str]:
    done = invoke("runs", root, "--json", *words)
    assert done.status == 0, done.err
    return [run["run"].rpartition("/")[2] for run in checked(done.out, "runs")["runs"]]


CHOICES = {
    ("--project", "vision"): "ab",
    ("--project", "vis*", "--project", "nothing"): "ab",
    ("--name", "[bc]"): "bc",
    ("--name", "text/*"): "cd",
    ("--group", "g1"): "ab",
    ("--group", "g*"): "abd",
    ("--tag", "x"): "ab",
    ("--tag", "x", "--tag", "y"): "b",
    ("--status", "failed"): "d",
    ("--status", "failed", "--status", "running"): "d",
    ("--where", "lr > 0.01"): "ac",
    ("--where", "lr>=0.01"): "abc",
    ("--where", "lr = 7 or " * 1500 + "lr > 0.01"): "ac",
    ("--where", "lr = 1.0"): "c",
    ("--where", "lr != 1"): "abd",
    ("--where", "lr = auto"): "d",
    ("--where", "opt = adam"): "ac",
    ("--where", "opt == 'adam'", "--where", "lr < 0.5"): "a",
    ("--where", "opt != adam"): "b",
    ("--where", "amp = true"): "c",
    ("--where", "amp = null"): "d",
    ("--where", "amp != null"): "c",
    ("--where", "val/loss < 3"): "a",
    ("--where", "val/loss.min <= 1"): "a",
    ("--where", '"val/loss".max > 2.5'): "ab",
    ("--where", '"val/loss" > 0'): "ab",
    ("--where", "val/loss.mean = 2"): "a",
    ("--where", "val/loss != 7"): "abc",
    ("--where", "model/width = 8"): "abcd",
    ("--where", "status = failed"): "d",
    ("--where", "group = g2"): "d",
    ("--where", "step >= 1"): "ab",
}


def test_runs_are_chosen_by_what_they_are_and_have(root: Path) -> None:
    for words, want in CHOICES.items():
        assert sorted(listed(root, *words)) == list(want), words


SORTED = {
    (): "dcba",  # by when they began
    ("--sort", "run"): "cdab",
    ("--sort", "lr"): "bacd",  # numbers before texts
    ("--sort", "val/loss"): "abdc",  # what has none, and NaN, come last
    ("--sort", "val/loss", "--reverse"): "badc",
    ("--sort", "val/loss.max", "--where", "lr < 1"): "ab",
}


def test_runs_are_sorted_by_anything(root: Path) -> None:
    for words, want in SORTED.items():
        found = "".join(listed(root, *words))
        assert found[:2] == want[:2], words
        assert sorted(found) == sorted(want), words


def test_json_has_everything_exactly(root: Path) -> None:
    (run,) = json.loads(invoke("runs", root, "--json", "--name", "a").out)["runs"]
    assert run["params"] == {"lr": 0.1, "opt": "adam", "model/width": 8}
    assert run["metrics"]["val/loss"] == {
        "last": 2.0,
        "min": 1.0,
        "max": 3.0,
        "mean": 2.0,
        "count": 3,
        "non_finite": 0,
    }
    assert (run["status"], run["duration_s"], run["tags"]) == ("finished", 5.0, ["x"])
    (run,) = json.loads(invoke("runs", root, "--json", "--name", "c").out)["runs"]
    assert run["metrics"]["val/loss"] == {
        "last": "NaN",
        "min": "NaN",
        "max": "NaN",
        "mean": "NaN",
        "count": 0,
        "non_finite": 1,
    }


def cells(done: Done, *first: str) -> list[str]:
    """The cells of the row that begins with these."""
    rows = [line.split() for line in done.out.splitlines()]
    (row,) = [row for row in rows if row[: len(first)] == list(first)]
    return row[len(first) :]


def test_the_list_shows_what_was_asked_for(root: Path) -> None:
    done = invoke("runs", root, "--where", "lr < 1", "--metric", "val/*")
    assert cells(done, "run") == ["status", "tags", "started", "duration", "step", "lr", "val/loss"]
    assert cells(done, "vision/a")[-3:] == ["2", "0.1", "2"]
    assert "2 runs" in done.out


def test_a_comparison_shows_what_differs_and_what_metrics_came_to(root: Path) -> None:
    done = invoke("runs", root, "--compare", "--project", "vision", "--sort", "run")
    assert cells(done, "lr") == ["0.1", "0.01"]
    assert cells(done, "opt") == ["adam", "sgd"]
    assert cells(done, "val/loss", "last") == ["2", "4"]
    assert [cells(done, name) for name in ("min", "max", "mean")] == [
        *[["1", "4"], ["3", "5"], ["2", "4.5"]]
    ]
    assert "model/width" not in done.out
    assert "system/cpu" not in done.out
    assert "1 param alike in 2 runs" in done.out
    for name, said in (("a", "1 run; two are needed to compare"), ("no", "0 runs; two are needed")):
        out = invoke("runs", root, "--compare", "--name", name).out
        assert said in out
        assert "alike" not in out
    out = invoke("runs", root, "--compare", "--json", "--sort", "run").out
    found = checked(out, "runs-compare")
    assert found["params"] == {
        "lr": [1, "auto", 0.1, 0.01],
        "opt": ["adam", None, "adam", "sgd"],
        "amp": [True, None, None, None],
    }
    assert [one and one["count"] for one in found["metrics"]["val/loss"]] == [0, None, 3, 2]


WRONG = {
    ("--where", "lr"): "'lr' is not accepted at its end; accepted: comparisons",
    ("--where", "> 3"): "is not accepted",
    ("--where", "lr >"): "is not accepted",
    (
        "--where",
        "lrr > 1",
    ): "no run has a param, metric or fact of the name 'lrr'; did you mean 'lr'?",
    ("--sort", "los"): "no run has a param, metric or fact of the name 'los'",
    ("--status", "done"): "--status done is not accepted; accepted: running, finished,",
    ("--to", "csv"): "give both or neither",
    ("--out", "x"): "give both or neither",
    ("--compare", "--sql", "x"): "--compare and --sql do not go together",
    (
        "--to",
        "html",
        "--out",
        "/nowhere/x.html",
    ): "/nowhere/x.html: cannot be written: No such file",
}


def test_a_wrong_call_is_told_in_a_line(root: Path) -> None:
    for words, want in WRONG.items():
        done = invoke("runs", root, *words)
        assert (done.status, done.out) == (2, ""), words
        assert want in done.err
        assert len(done.err.splitlines()) == 1
    done = invoke("runs", root / "nowhere")
    assert (done.status, "cannot be read" in done.err) == (2, True)


def test_conditions_are_read_as_they_are_meant() -> None:
    meant: list[tuple[str, str, object, object]] = [
        ("a<=1", "a", 1.0, 2),
        ('"a < b" > -1e-3', "a < b", 0, -1),
        (" a b.c/d  =  x y ", "a b.c/d", "x y", "x"),
        ("a! = 2024-01-01", "a!", "2024-01-01", 2024),
        ("a = '1'", "a", "1", 1),
        ("a = adam", "a", "adam", "sgd"),
        ("a = True", "a", True, "True"),
        ("a = none", "a", None, "none"),
        ("a < inf", "a", 1e300, "1"),
        ('"val/loss".min in (1, 2)', "val/loss.min", 2, 3),
        ("not (val/loss.min > 3 or val/loss.min = 1)", "val/loss.min", 2, 1),
        ("a like 'ad%' and a != adamw", "a", "adam", "adamw"),
    ]
    for text, name, met, unmet in meant:
        condition = Condition.of(text)
        assert set(condition.names) == {name}, text
        assert holds(condition.meant, lambda _, value=met: value), text
        assert not holds(condition.meant, lambda _, value=unmet: value), text
    for text in ("a ~ b", "a = 1 and b <", "a = bread and butter", "a in 1"):
        with pytest.raises(ConfigError):
            Condition.of(text)


EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b2Jb\u202egnp.exe\u2028\r|\nforged  line <script>alert(1)</script>../.."


def test_a_terminal_obeys_no_name(tmp_path: Path) -> None:
    for number in range(2):
        log = Log(tmp_path, f"p/r\x1b[2J{number}", name=EVIL, project=EVIL, group=EVIL, host=EVIL)
        log.add("p", v={EVIL: EVIL, f"{EVIL}{number}": [EVIL]})
        log.metrics(0, **{EVIL: 1.0}).raw(b"torn\n").end(EVIL)
    for words in (
        *(["--metric", "*"], ["--compare"], ["--to", "html", "--out", tmp_path / "\x1b[2J" / "x"]),
        *(["--sql", "select * from runs, params"], ["--sql", f"select '{EVIL}' from"]),
    ):
        _, text = at_terminal("runs", tmp_path, *words)
        assert acting(text) == set(), words
        assert "forged  line" not in [line.strip() for line in text.splitlines()]
