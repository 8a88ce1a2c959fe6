"""What stands under `logger:`, in every form, and what is said where it is wrong."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from loggers.local_lines import Kept, entry

from dftrace_ai import ConfigError, LogDirectoryError
from dftrace_ai.loggers import BaseLogger, BaseLogint, Logger, make_loggers
from dftrace_ai.loggers.config import EntryConfig, entries_of
from dftrace_ai.loggers.records import TextRecord


def test_the_same_config_in_every_form(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    plain = {"local": entry(tmp_path, tracked_variables={"metric": ["x"]})}
    whole = {"defaults": ["base"], "logger": plain, "trainer": {"epochs": 3}}
    files = [tmp_path / "plain.yaml", tmp_path / "whole.yaml"]
    files[0].write_text(yaml.safe_dump(plain))
    files[1].write_text(yaml.safe_dump(whole))
    interpolated = copy.deepcopy(whole)
    interpolated["logger"]["local"]["config"]["run_name"] = "${name}"
    interpolated["name"] = "run"
    forms = [plain, whole, *files, str(files[1]), omegaconf.OmegaConf.create(plain)]
    forms += [omegaconf.OmegaConf.create(interpolated)]
    before = repr(forms)
    for step, form in enumerate(forms):
        with make_loggers(form) as loggers:
            loggers.log_iter({"x": 1.0, "y": 2.0}, step)
    assert repr(forms) == before
    kept = Kept(tmp_path)
    assert sorted(kept.metric("x")) == [(step, 1.0) for step in range(len(forms))]
    assert kept.metric("y") == []


WRONG = {
    "loggers.local.config.logers: unknown key; did you mean 'loggers'?": {
        "local": {"config": {"logers": []}}
    },
    "no logging interface 'tensorbord' (did you mean 'tensorboard'?); known: aim, comet, ": {
        "tensorbord": {}
    },
    "no logging routine 'metrics' (did you mean 'metric'?); known: ": {
        "local": {"config": {"loggers": ["metrics"]}}
    },
    "local.config.resume: 'perhaps' is not accepted": {"local": {"config": {"resume": "perhaps"}}},
    "local.config.windows.0: 0 is not accepted: Input should be greater than or equal to 1": {
        "local": {"config": {"windows": [0]}}
    },
    "local.configs: unknown key; did you mean 'config'?": {"local": {"configs": {}}},
    "tracked_variables of 'image', which is not among its loggers": {
        "local": {"config": {"tracked_variables": {"image": ["x"]}}}
    },
    "[] is not accepted; accepted: a mapping of interfaces": [],
    "logger: None is not accepted; accepted: a mapping of interfaces": {"logger": None},
    "resume: must, and there is no run": {
        "local": {"config": {"resume": "must", "run_name": "nowhere", "log_dir": "{dir}"}}
    },
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_named(said, tmp_path):
    config = WRONG[said]
    if "must" in said:
        config["local"]["config"]["log_dir"] = str(tmp_path)
    with pytest.raises(ConfigError) as caught:
        make_loggers(config)
    assert said.removeprefix("loggers.") in str(caught.value)


def test_what_is_not_installed_is_named_with_its_extra():
    class Missing(BaseLogint):
        name = "missing-tracker"
        packages = ("no_such_tracker_anywhere",)
        extra = "missing"

        def log_metrics(self, metrics, step):
            raise NotImplementedError

        def log_file(self, name, data, suffix, step):
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"pip install 'dftrace-ai\[missing\]'"):
        Logger({"missing-tracker": {}})


def test_a_run_of_a_name_is_gone_on_with_or_refused(tmp_path):
    for resume in ("never", "allow", "must"):
        with Logger({"local": entry(tmp_path, resume=resume)}) as logger:
            logger.log_iter({"x": 1.0})
    assert len(Kept(tmp_path).metric("x")) == 3
    with pytest.raises(ConfigError, match="resume: never, and there is a run"):
        Logger({"local": entry(tmp_path, resume="never")})


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirectoryError, match="cannot be made"):
        Logger({"local": entry(tmp_path / "file")})


def test_ones_own_interface_and_routine_are_known_when_they_are_defined(tmp_path):
    class TextLogger(BaseLogger):
        key = "text"
        accepts = "any object with a str()"

        def take(self, value):
            return str(value)

        def records(self, name, taken, at):
            yield TextRecord(name, taken, at)

    class Collector(BaseLogint):
        name = "collector"
        own_process = False
        seen: list = []

        def log_metrics(self, metrics, step):
            self.seen.append((step, dict(metrics)))

        def log_file(self, name, data, suffix, step):
            self.seen.append((step, name, data, suffix))

    config = entry(tmp_path, "metric", "text", tracked_variables={"metric": ["x"], "text": ["t"]})
    with make_loggers({"collector": config}) as loggers:
        loggers.log_iter({"x": 1, "t": "hello"})
        loggers.alert("look", "here", "warning")
        loggers.log_hyperparams({"lr": 0.1})
    assert Collector.seen == [
        (0, {"x": 1.0}),
        (0, "t", b"hello", "txt"),
        (0, "alerts/look", b"warning: look\nhere\n", "txt"),
        (0, "hparams", b'{"lr": 0.1}', "json"),
    ]


def test_only_the_first_rank_logs_unless_all_do(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        loggers.log_iter({"x": 1.0})
        loggers.log_epoch()
        loggers.alert("nobody hears this")
        assert loggers[0].log_dir is None
    assert not list(tmp_path.iterdir())
    with make_loggers({"local": entry(tmp_path, ranks="all")}) as loggers:
        loggers.log_iter({"x": 2.0})
    kept = Kept(tmp_path)
    assert kept.metric("x") == [(0, 2.0)]
    assert (kept.of("run")[0]["rank"], kept.of("run")[0]["group"]) == (1, "run")


GIVEN: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 64, 4096, 4097, 0.5, 0.1, 0.05, 1000, 1000.5, 3600, 3601),
    *(10_000_001, 5.0, 1.5, "", "x", "all", "zero", "gif", "allow", "must", "3", "64", "4097", "0"),
    *("0.0", "0.05", "0.5", "1000", "1000.0", "1000.1", "yes", "TRUE", "on", "0640", " 7 "),
    *(["metric"], ["x", 1], [], [1, 2], [0], ["3"], [True], [1.5], ["trace"], {}, {"a": None}),
    *({"metric": ["loss"]}, {"metric": "loss"}, {"metric": [1]}),
]


def test_the_schema_takes_what_the_reader_takes():
    path = Path(__file__).parents[2] / "schemas" / "loggers.schema.json"
    schema = Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    choose, taken = random.Random(29), 0
    names = sorted(EntryConfig.model_fields)
    for _ in range(2_000):
        settings = {
            name: choose.choice(GIVEN) for name in choose.sample(names, choose.randint(0, 3))
        }
        if choose.random() < 0.03:
            settings["foo"] = 1
        rare = choose.choice([None, {}, {"config": None}, {"conf": settings}, [], 3])
        entry = rare if choose.random() < 0.1 else {"config": settings}
        config = {"logger": choose.choice([{}, None, []] + [{"local": entry, "trace": None}] * 30)}
        try:
            entries_of(config)
            fault = ""
        except ConfigError as error:
            fault = str(error)
        taken += not fault
        assert schema.is_valid(config) == (not fault), (config, fault)
    assert taken > 400
