"""Hyper-parameters in every form that programs have them in."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from loggers.local_lines import Kept, entry
from pydantic import BaseModel

from dftrace_ai import Config
from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs.conditions import Choice, Condition, chosen
from dftrace_ai.loggers.runs.reading import read_runs
from dftrace_ai.loggers.runs.tables import RunTables


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


@dataclass
class Numbers:
    inner: object = np.float32(0.1)


def test_scalars_of_numpy_and_torch_are_numbers(tmp_path):
    # Each is the number that a metric of it is: fp32's 0.1 is 0.10000000149011612.
    given = {
        "f64": (np.float64(0.1), 0.1),
        "f32": (np.float32(0.1), 0.10000000149011612),
        "f16": (np.float16(0.1), 0.0999755859375),
        "long": (np.longdouble("0.1"), 0.1),
        "i64": (np.int64(2**63 - 1), 2**63 - 1),
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
        "decimal": (Decimal("0.25"), 0.25),
        "object": (np.array({"q": np.int8(3)}, dtype=object), {"q": 3}),
        # And these are none.
        "complex": (torch.tensor(1j), "1j"),
        "date": (np.datetime64("2020-01-01"), "2020-01-01"),
        "text": (np.str_("x"), "x"),
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
