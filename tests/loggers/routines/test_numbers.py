"""Numbers, histograms and hyper-parameters: what a training hands over is what is kept."""

from __future__ import annotations

import math
import random
import sys
import types
from argparse import Namespace
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch
from loggers.local_lines import Kept, entry
from pydantic import BaseModel

from dftrace_ai import Config
from dftrace_ai.loggers import Logger, make_loggers
from dftrace_ai.loggers.config import EntryConfig
from dftrace_ai.loggers.records import Point, SoFar
from dftrace_ai.loggers.registry import routine_class
from dftrace_ai.loggers.routines.hyperparameters import plain_params
from dftrace_ai.loggers.runs.conditions import Choice, Condition, chosen
from dftrace_ai.loggers.runs.reading import read_runs
from dftrace_ai.loggers.runs.tables import RunTables
from dftrace_ai.run.late_import import loaded_torch


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


def logged(folder, *values, **settings):
    with make_loggers(
        {"local": entry(folder, "hist", tracked_variables={"hist": ["h"]}, **settings)}
    ) as log:
        for value in values:
            log.log_iter({"h": value})
        log.log_epoch()
    return Kept(folder).of("h")


def counted(numbers, edges):
    """Counts where an edge belongs to the bin on the side away from zero, as records have it."""
    edges = np.array(edges)
    below = np.searchsorted(edges, numbers, side="left") - 1
    above = np.searchsorted(edges, numbers, side="right") - 1
    places = np.where(np.signbit(numbers), below, above).clip(0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1).tolist()


CASES = {
    "normal": lambda: torch.randn(100_003),
    "bf16": lambda: torch.randn(5000).to(torch.bfloat16),
    "half, transposed": lambda: torch.randn(64, 33).half().T,
    "fp64 array": lambda: np.random.default_rng(1).lognormal(0, 8, 20_000),
    "whole numbers": lambda: torch.arange(-500, 1500),
    "booleans": lambda: torch.rand(1000) > 0.3,
    "one value": lambda: torch.full((77,), 0.1),
    "zeros": lambda: torch.zeros(10),
    "with others": lambda: torch.tensor([1.0, -2.0, math.nan, math.inf, -math.inf, 3.0]),
    "list": lambda: [1, 2, 2.5, -7],
    "needs a gradient": lambda: torch.randn(10, requires_grad=True),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_between_the_edges(case, tmp_path):
    torch.manual_seed(5)
    value = CASES[case]()
    line, _ = logged(tmp_path, value)
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
    numbers = tensor.detach().to(torch.float32).double().numpy().reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    assert line["counts"] == counted(finite, line["edges"])
    assert sum(line["counts"]) == finite.size
    assert line["non_finite"] == numbers.size - finite.size
    assert (line["minimum"], line["maximum"]) == (finite.min(), finite.max())
    assert line["total"] == pytest.approx(finite.sum(), rel=1e-6, abs=1e-6)
    assert line["total_squares"] == pytest.approx((finite**2).sum(), rel=1e-5)
    assert len(line["counts"]) <= 64
    assert all(low < high for low, high in zip(line["edges"], line["edges"][1:], strict=False))


def test_quantiles_are_as_exact_as_the_fine_bins(tmp_path):
    torch.manual_seed(6)
    value = torch.randn(1_000_000).exp()
    line, _ = logged(tmp_path, value)
    for share, found in line["quantiles"].items():
        assert found == pytest.approx(float(np.quantile(value.numpy(), float(share))), rel=0.03)


def test_a_histogram_of_an_epoch_is_the_sum_of_its_iterations(tmp_path):
    torch.manual_seed(7)
    parts = [torch.randn(1000) * 10**power for power in range(-3, 4)]
    lines = logged(tmp_path, *parts)
    whole = lines[-1]
    everything = torch.cat(parts).double().numpy()
    assert whole["name"] == "epoch/h"
    assert whole["counts"] == counted(everything, whole["edges"])
    assert [line["s"] for line in lines] == [*range(len(parts)), 0]


def test_a_model_gives_weights_and_gradients(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model(torch.ones(5, 3)).sum().backward()
    wanted = {n: p.detach().clone() for n, p in model.named_parameters()}
    lines = logged(tmp_path, model, bins=8)
    found = {line["name"]: line for line in lines}
    for name, parameter in wanted.items():
        assert sum(found[f"h/{name}"]["counts"]) == parameter.numel()
        assert found[f"h/{name}.grad"]["maximum"] >= found[f"h/{name}.grad"]["minimum"]
        assert found[f"h/{name}"]["maximum"] == float(parameter.max())


def test_nothing_and_what_has_no_numbers(tmp_path, caplog):
    lines = logged(tmp_path, torch.zeros(0), torch.tensor([math.nan]), torch.tensor([1j]))
    assert [(line["counts"], line["non_finite"]) for line in lines] == [
        ([0], 0),
        ([0], 1),
        ([0], 1),
    ]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "complex" in said


class Mode(Enum):
    FAST = "fast"


@dataclass
class Inner:
    width: int = 8
    act: type = torch.nn.ReLU


@dataclass
class Outer:
    lr: float = 0.1
    inner: Inner = field(default_factory=Inner)


class Model(BaseModel):
    depth: int = 3


class Silent:
    def __str__(self):
        raise RuntimeError


def test_nested_and_typed(tmp_path):
    given = {
        "outer": Outer(),
        "model": Model(),
        "run": Config(rank=1, world_size=2),
        "space": Namespace(a=1, b=[True, None]),
        "mode": Mode.FAST,
        "path": Path("data/x"),
        "dtype": torch.bfloat16,
        "tensor": torch.tensor([1.0, 2.0]),
        "set": {3, 1, 2},
        "nan": float("nan"),
        "silent": Silent(),
        5: "five",
    }
    before = repr(given["outer"])
    with make_loggers({"local": entry(tmp_path, "hparams")}) as loggers:
        for _ in range(3):
            loggers.log_iter({"hparams": given})
        loggers.log_iter({"hparams": {"lr": 0.2}})
        loggers.log_hyperparams({"late": 1})
    assert repr(given["outer"]) == before
    first, second, third = (line["v"] for line in Kept(tmp_path).of("p"))
    assert first == {
        "outer": {"lr": 0.1, "inner": {"width": 8, "act": "torch.nn.modules.activation.ReLU"}},
        "model": {"depth": 3},
        "run": {**dict(Config(rank=1, world_size=2)), "log_file": "trace"},
        "space": {"a": 1, "b": [True, None]},
        "mode": "fast",
        "path": "data/x",
        "dtype": "torch.bfloat16",
        "tensor": [1.0, 2.0],
        "set": [1, 2, 3],
        "nan": "NaN",
        "silent": "a Silent",
        "5": "five",
    }
    assert (second, third) == ({"lr": 0.2}, {"late": 1})


def test_what_knows_itself_is_taken_once_on_each_way(tmp_path):
    # By ways the first has some millions of values, the third 2 ** 60.
    config = types.SimpleNamespace(lr=1.0)
    for name in ("model", "data", "optim"):
        setattr(config, name, types.SimpleNamespace(parent=config))
    twice = {"lr": 1}
    twice |= {"a": twice, "b": [twice]}
    ways = {"end": 1}
    for _ in range(60):
        ways = {"a": ways, "b": ways}
    shared = {"x": 1}
    given = {"config": config, "twice": twice, "shared": [shared, shared]}
    with make_loggers({"local": entry(tmp_path, "hparams")}) as loggers:
        loggers.log_hyperparams(given)
        loggers.log_iter({"hparams": given})
    first, second = (line["v"] for line in Kept(tmp_path).of("p"))
    parent = {"parent": "a SimpleNamespace that holds this"}
    assert (
        first
        == second
        == {
            "config": {"lr": 1.0, "model": parent, "data": parent, "optim": parent},
            "twice": {"lr": 1, "a": "a dict that holds this", "b": ["a dict that holds this"]},
            "shared": [{"x": 1}, {"x": 1}],
        }
    )
    text = str(plain_params({"ways": ways, "behind": 1}))
    assert text.count("left out from here on: more than 100,000 values") == 1
    assert "nested too deeply" in text
    assert "behind" not in text


@dataclass
class Numbers:
    inner: object = np.float32(0.1)


class Broken(dict):
    def items(self):
        raise RuntimeError

    __str__ = items


def test_scalars_of_numpy_and_torch_are_numbers(tmp_path):
    # Each is the number that a metric of it is: fp32's 0.1 is 0.10000000149011612.
    given = {
        "f64": (np.float64(0.1), 0.1),
        "f32": (np.float32(0.1), 0.10000000149011612),
        "f16": (np.float16(0.1), 0.0999755859375),
        "long": (np.longdouble("0.1"), 0.1),
        "i64": (np.int64(2**63 - 1), 2**63 - 1),
        "wide": (2**64, 2**64),
        "u8": (np.uint8(255), 255),
        "bool": (np.bool_(True), True),
        "array": (np.array(5), 5),
        "tensor": (torch.tensor(0.123456789), 0.12345679104328156),
        "bf16": (torch.tensor(0.1, dtype=torch.bfloat16), 0.10009765625),
        "half": (torch.tensor(0.1, dtype=torch.half), 0.0999755859375),
        "fp8": (torch.tensor(0.5).to(torch.float8_e4m3fn), 0.5),
        "whole": (torch.tensor(7), 7),
        "flag": (torch.tensor(False), False),
        "parameter": (torch.nn.Parameter(torch.tensor(2.5)), 2.5),
        "list": ([np.float32(0.5), torch.tensor(3), [np.int8(1)]], [0.5, 3, [1]]),
        "set": ({np.int64(1)}, [1]),
        "dataclass": (Numbers(), {"inner": 0.10000000149011612}),
        "space": (Namespace(a=torch.tensor(1)), {"a": 1}),
        "names": (types.SimpleNamespace(a=np.int8(3)), {"a": 3}),
        "decimal": (Decimal("0.25"), 0.25),
        "object": (np.array({"q": np.int8(3)}, dtype=object), {"q": 3}),
        # And these are none.
        "complex": (torch.tensor(1j), "1j"),
        "date": (np.datetime64("2020-01-01"), "2020-01-01"),
        "large": (10**400, str(10**400)),
        "too large": ([-(10**5000)], ["a int"]),
        "moment": (np.datetime64("2020-01-01", "ns"), "2020-01-01T00:00:00.000000000"),
        "moments": (np.array([0], dtype="M8[ns]"), ["1970-01-01T00:00:00.000000000"]),
        "text": (np.str_("x"), "x"),
        # What cannot be asked costs none of the others.
        "no number": (Decimal("sNaN"), "sNaN"),
        "too large a part": (Fraction(10**400), str(10**400)),
        "no parts": (Broken(), "a Broken"),
        "shape": (torch.empty((), device="meta"), "tensor(..., device='meta', size=())"),
    }
    params = {name: value for name, (value, _) in given.items()}
    with make_loggers({"local": entry(tmp_path, "hparams", "metric")}) as loggers:
        loggers.log_hyperparams(params)
        loggers.log_iter({"hparams": {"nested": params}})
        for name in ("f32", "bf16", "tensor", "u8", "bool"):
            loggers.log_metrics({name: given[name][0]})
    kept = Kept(tmp_path)
    expected = {name: value for name, (_, value) in given.items()}
    direct, nested = (line["v"] for line in kept.of("p"))
    assert direct == expected
    assert nested == {"nested": expected}
    assert all(type(direct[name]) is type(value) for name, value in expected.items())
    for name in ("f32", "bf16", "tensor", "u8", "bool"):
        assert kept.metric(name)[0][1] == expected[name]
    for condition, is_so in (
        *(("f32 > 0.1", True), ("i64 > 32", True), ("u8 = 255", True), ("tensor < 0.2", True)),
        *(("bool = true", True), ("flag = true", False), ("nested/space/a = 1", True)),
    ):
        assert len(chosen(read_runs(tmp_path), Choice(where=[Condition.of(condition)]))) == is_so
    (run,) = read_runs(tmp_path)
    with RunTables([run.folder]) as tables:
        numbers = dict(tables.query("select name, number from params").rows)
    assert (numbers["f32"], numbers["bf16"], numbers["bool"]) == (
        0.10000000149011612,
        0.10009765625,
        None,
    )


def test_a_reference_that_leads_nowhere_costs_none_of_the_others(tmp_path):
    given = {"lr": 0.1, "path": "${nowhere}/x", "twice": "${lr}"}
    config = pytest.importorskip("omegaconf").OmegaConf.create(given)
    with make_loggers({"local": entry(tmp_path, "hparams")}) as loggers:
        loggers.log_hyperparams({"seed": 1, "config": config})
    (line,) = Kept(tmp_path).of("p")
    assert line["v"] == {"seed": 1, "config": given}


VALUES = {
    "metric": 0.5,
    "hist": np.arange(5.0),
    "image": np.zeros((4, 4, 3)),
    "video": np.zeros((2, 4, 4, 3)),
    "mesh": {"vertices": np.zeros((3, 3))},
}


@pytest.fixture
def part_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec("torch", None)
    spec._initializing = True
    part = types.ModuleType("torch")
    part.__spec__ = spec
    monkeypatch.setitem(sys.modules, "torch", part)


@pytest.mark.parametrize("key", VALUES)
def test_every_routine_takes_its_values(part_of_torch: None, key: str) -> None:
    logger = routine_class(key)(EntryConfig())

    assert list(logger.records("name", logger.take(VALUES[key]), Point(0)))


def test_it_is_there_when_it_is_whole(part_of_torch: None) -> None:
    assert loaded_torch() is None
    sys.modules["torch"].__spec__._initializing = False
    assert loaded_torch() is sys.modules["torch"]
