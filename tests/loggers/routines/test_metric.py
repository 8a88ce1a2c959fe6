"""Numbers of iterations, and what they come to in an epoch."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import Logger, make_loggers
from dftrace_ai.loggers.records import SoFar


def test_an_epoch_is_what_its_iterations_come_to(tmp_path):
    drawn = random.Random(3)
    epochs = [[drawn.uniform(-1e6, 1e6) for _ in range(257)] for _ in range(3)]
    with make_loggers({"local": entry(tmp_path, "metric", windows=[10, 1000])}) as loggers:
        for values in epochs:
            for value in values:
                loggers.log_iter({"loss": value})
            loggers.log_epoch()
    kept = Kept(tmp_path)
    flat = [value for values in epochs for value in values]
    assert kept.metric("loss") == list(enumerate(flat))
    for epoch, values in enumerate(epochs):
        mean = math.fsum(values) / len(values)
        assert kept.metric("epoch/loss/mean")[epoch] == (epoch, pytest.approx(mean, rel=1e-15))
        assert kept.metric("epoch/loss/min")[epoch] == (epoch, min(values))
        assert kept.metric("epoch/loss/max")[epoch] == (epoch, max(values))
        assert kept.metric("epoch/loss/last")[epoch] == (epoch, values[-1])
        last = flat[: 257 * (epoch + 1)]
        assert kept.metric("epoch/loss/mean_10")[epoch][1] == pytest.approx(np.mean(last[-10:]))
        assert kept.metric("epoch/loss/mean_1000")[epoch][1] == pytest.approx(np.mean(last[-1000:]))
    assert kept.status == "finished"


def test_every_kind_of_number_is_the_number_of_that_moment(tmp_path):
    tensor = torch.tensor(1.5, requires_grad=True)
    array = np.array([2.5])
    data = {
        "tensor": tensor,
        "array": array,
        "bf16": torch.tensor([[0.1]], dtype=torch.bfloat16),
        "int": 10**400,
        "bool": True,
        "nan": float("nan"),
        "inf": torch.tensor(-math.inf),
        "numpy": np.float32(0.1),
    }
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        loggers.log_iter(data)
        with torch.no_grad():
            tensor.fill_(9.0)
        array[0] = 9.0
        loggers.log_epoch()
    kept = Kept(tmp_path)
    found = {name: kept.metric(name)[0][1] for name in data if name != "int"}
    assert found["tensor"] == 1.5
    assert found["array"] == 2.5
    assert found["bf16"] == float(torch.tensor(0.1, dtype=torch.bfloat16))
    assert found["bool"] == 1.0
    assert math.isnan(found["nan"])
    assert found["inf"] == -math.inf
    assert found["numpy"] == float(np.float32(0.1))
    assert kept.metric("int")[0][1] == math.inf
    assert kept.metric("epoch/nan/non_finite") == [(0, 1.0)]
    assert kept.metric("epoch/nan/mean") == []


def test_what_is_no_number_and_what_is_missing_is_said_once_by_name(tmp_path, caplog):
    names = ["loss", "shape", "text", "complex", "los"]
    config = entry(tmp_path, tracked_variables={"metric": names})
    with make_loggers({"local": config}) as loggers:
        for _ in range(5):
            loggers.log_iter(
                {"loss": 1, "shape": torch.ones(3), "text": "x", "complex": torch.tensor(1j)}
            )
        loggers.log_epoch()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert sum("(3,)" in line and "accepted: a number" in line for line in said) == 1
    assert any("los " in line and "did you mean loss?" in line for line in said)
    assert Kept(tmp_path).metric("loss") == [(step, 1.0) for step in range(5)]


def test_each_interface_gets_its_own_variables_and_a_value_is_taken_once(tmp_path):
    class Counted:
        asked = 0

        def __float__(self):
            Counted.asked += 1
            return 4.0

    one = entry(tmp_path / "a", tracked_variables={"metric": ["x", "y"]})
    two = entry(tmp_path / "b", tracked_variables={"metric": ["y", "z"]})
    with make_loggers({"local": one, "trace": two}) as loggers:
        assert [logger.name for logger in loggers] == ["local", "trace"]
        loggers.log_iter({"x": 1.0, "y": Counted(), "z": 3.0, "w": 4.0})
        loggers.log_epoch()
    assert Counted.asked == 1
    (line,) = [line for line in Kept(tmp_path / "a").of("m") if line["a"] == "i"]
    assert line["v"] == {"x": 1.0, "y": 4.0}
    epochs = [line["v"] for line in Kept(tmp_path / "a").of("m") if line["a"] == "e"]
    assert {name.split("/")[1] for values in epochs for name in values} == {"x", "y"}


def test_steps_go_on_from_one_that_is_given(tmp_path):
    logger = Logger({"local": entry(tmp_path)})
    for step in (None, 100, None, 7, None):
        logger.log_iter({"x": 1.0}, step=step)
    logger.end_log()
    logger.end_log()
    assert [step for step, _ in Kept(tmp_path).metric("x")] == [0, 100, 101, 7, 8]


def gpu_metrics(tmp_path):
    with make_loggers({"local": entry(tmp_path, "metric", gpu=True)}) as loggers:
        loggers.log_iter({"loss": 1.0})
    kept = Kept(tmp_path)
    assert kept.metric("loss") == [(0, 1.0)]
    names = ("allocated_bytes", "reserved_bytes", "peak_bytes", "utilization")
    return {name: kept.metric(f"gpu/{name}") for name in names}


@pytest.mark.parametrize("has_library", [True, False], ids=["nvml", "no-nvml"])
def test_memory_and_utilisation_of_a_gpu_are_logged_where_asked_for(
    tmp_path, monkeypatch, has_library
):
    """By a stand-in for torch's functions, which is all that there is without a GPU."""

    def utilization():
        if has_library:
            return 37
        raise ModuleNotFoundError("pynvml")

    told = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "memory_allocated": lambda: 1 << 30,
        "memory_reserved": lambda: 3 << 30,
        "max_memory_allocated": lambda: 2 << 30,
        "utilization": utilization,
    }
    for name, function in told.items():
        monkeypatch.setattr(torch.cuda, name, function)
    assert gpu_metrics(tmp_path) == {
        "allocated_bytes": [(0, float(1 << 30))],
        "reserved_bytes": [(0, float(3 << 30))],
        "peak_bytes": [(0, float(2 << 30))],
        "utilization": [(0, 37.0)] if has_library else [],
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_there_are_no_figures_of_one(tmp_path):
    assert not any(gpu_metrics(tmp_path).values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_figures_are_those_of_the_gpu(tmp_path):
    held = torch.zeros(1 << 20, device="cuda")
    found = gpu_metrics(tmp_path)
    ((_, allocated),) = found["allocated_bytes"]
    assert allocated >= held.nbytes
    assert found["reserved_bytes"][0][1] >= allocated


def test_what_a_framework_has_taken_over_the_epoch_so_far(tmp_path):
    """Of an epoch it has one value, its last one; the iterations keep what was told of each."""
    epochs = [[4.0, 3.0, 2.5], [1.0, math.nan, 2.0], [math.nan, math.nan]]
    with make_loggers({"local": entry(tmp_path, "metric", windows=[2])}) as loggers:
        for values in epochs:
            for value in values:
                loggers.log_iter({"loss": SoFar(value), "own": value})
            loggers.log_epoch()
    kept = Kept(tmp_path)
    flat = [value for values in epochs for value in values]
    np.testing.assert_equal([value for _, value in kept.metric("loss")], flat)
    for figure in ("mean", "min", "max"):
        assert kept.metric(f"epoch/loss/{figure}") == [(0, 2.5), (1, 2.0)]
    np.testing.assert_equal(kept.metric("epoch/loss/last"), [(0, 2.5), (1, 2.0), (2, math.nan)])
    assert kept.metric("epoch/loss/mean_2") == [(0, 2.5), (1, 2.25), (2, 2.25)]
    assert kept.metric("epoch/own/mean_2") == [(0, 2.75), (1, 1.5), (2, 1.5)]


def test_mappings_of_numbers_are_metrics_by_their_names(tmp_path, caplog):
    deep = inner = {}
    for _ in range(20):
        inner["down"] = inner = {}
    inner["x"] = 1.0
    cyclic = {"a": 1.0}
    cyclic["self"] = cyclic
    evaluated = {"acc": 0.25, "f1": np.float32(0.5), "of": {"x": torch.tensor(2), 3: True}}
    wrong = {"none": None, "array": np.zeros(3), "text": "x", "empty": {}}
    values = {"eval": evaluated | wrong, "loss": 1.0, "deep": deep, "cyclic": cyclic, "a/b": 1}
    media = {"mesh": {"vertices": np.eye(3), "k": 1.0}, "hparams": {"lr": 0.5}, "track": {"x": 1}}
    expected = {"eval/acc": 0.25, "eval/f1": 0.5, "eval/of/x": 2.0, "eval/of/3": 1.0, "loss": 1.0}
    expected |= {"cyclic/a": 1.0, "a/b": 1.0}
    tracked = {"metric": ["eval/of", "eval/acc", "cyclic", "a/b"], "hist": ["track"]}
    with (
        Logger({"local": entry(tmp_path / "direct")}) as direct,
        Logger({"local": entry(tmp_path / "all")}) as every,
        Logger(
            {"local": entry(tmp_path / "some", "metric", "hist", tracked_variables=tracked)}
        ) as some,
    ):
        direct.log(values | {"a": {"b": 2}}, step=1)
        every.log_iter(values | media, step=1)
        every.log_epoch()
        some.log_iter(values | {"track": {"x": torch.ones(3)}}, step=1)
        some.log_epoch()
    for name in ("direct", "all"):
        (found, *epoch) = (line["v"] for line in Kept(tmp_path / name).of("m"))
        found.pop("track/x", None)
        assert found == expected
        assert all(line["epoch/eval/acc/last"] == 0.25 for line in epoch)
    found, epoch = (line["v"] for line in Kept(tmp_path / "some").of("m"))
    assert found == {
        "eval/of/x": 2.0,
        "eval/of/3": 1.0,
        "eval/acc": 0.25,
        "cyclic/a": 1.0,
        "a/b": 1.0,
    }
    told = [record.getMessage() for record in caplog.records]
    for name in ("eval/none", "eval/array", "eval/text", "cyclic/self", "a/b"):
        assert any(f"metric {name} cannot be logged" in line for line in told), name
    assert any("mappings deeper than 16" in line for line in told)
    assert not any("was in no data" in line for line in told)
