"""The statistics of tensors reach the loggers of an experiment."""

from __future__ import annotations

import pytest
import torch
from loggers.local_lines import Kept, entry

import dftrace_ai.inspect as debug_api
from dftrace_ai.loggers import make_loggers

STATISTICS = {
    "enabled": True,
    "tensors": ["activation"],
    "stats": ["min", "max", "mean"],
    "freq": 2,
}
CONFIG = {
    "all": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*0"},
        "transformer_engine": {"LogTensorStats": STATISTICS},
    }
}


def test_statistics_are_metrics_of_their_step(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    wanted = {}
    with make_loggers({"local": entry(tmp_path / "runs")}) as loggers:
        debug_api.initialize(CONFIG, log_dir=tmp_path, statistics_logger=loggers)
        try:
            debug_api.attach(model)
            for step in range(5):
                given = torch.randn(8, 4)
                model(given)
                debug_api.step()
                if step % 2 == 0:
                    wanted[step] = given.max().item()
        finally:
            debug_api.end_debug()
    kept = Kept(tmp_path / "runs")
    found = {name for line in kept.of("m") for name in line["v"]}
    (name,) = (name for name in found if name.endswith("activation_max"))
    assert dict(kept.metric(name)) == pytest.approx(wanted)
    assert len(found) == 3
