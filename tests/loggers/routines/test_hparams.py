"""Hyper-parameters in every form that programs have them in."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import torch
from loggers.local_lines import Kept, entry
from pydantic import BaseModel

from dftrace_ai.loggers import make_loggers


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
