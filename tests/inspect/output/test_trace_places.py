"""Where tensor inspection puts its events: in the span in which a tensor was seen."""

from __future__ import annotations

import pytest
import torch
from attached_models import ALL, Values, section, session
from late_rings import through_rings
from torch import nn

import dftrace_ai
import dftrace_ai.inspect as debug_api

CONFIG = section(
    {"LogTensorStats": {"stats": ["max", "min"], "tensors": ALL}},
    layer_types=["model"],
) | {
    "given": {
        "enabled": True,
        "layers": {"layer_types": ["hidden"]},
        "LogTensorStats": {"enabled": True, "stats": ["max"], "tensors": ["state"]},
    }
}
BACKWARD = {"gradient", "dgrad", "wgrad"}


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_events_lie_in_the_span_in_which_the_tensor_was_seen(late, traced, tmp_path):
    compute = dftrace_ai.ai.compute
    with traced() as recording, session(CONFIG, tmp_path):
        copies = through_rings(2) if late else None
        model = nn.Linear(3, 2)
        debug_api.attach(model)
        for step in range(4):
            x = torch.full((1, 3), float("inf") if step == 2 else 1.0, requires_grad=True)
            with dftrace_ai.ai.pipeline.train:
                with compute.forward:
                    y = model(x)
                    debug_api.log_tensor_stats("hidden", tensor=x, tensor_name="state")
                with compute.backward:
                    y.sum().backward()
            if copies is not None:
                copies.now += 1
            debug_api.step()
        # In no span of its own.
        model(torch.ones(1, 3, requires_grad=True)).sum().backward()
        debug_api.step()
    events = recording.trace.events
    spans = {name: [one for one in events if one.name == name] for name in ("forward", "backward")}
    told = [one for one in events if one.cat in ("tensor_stats", "nonfinite")]
    assert len(told) > 5 * len(ALL)
    outside = 0
    for one in told:
        tensor = one.name.partition(":")[2]
        of_kind = spans["backward" if tensor in BACKWARD else "forward"]
        around = [span for span in of_kind if span.ts_ns <= one.ts_ns <= span.end_ns]
        if around:
            assert (one.p_idx, one.level) == (around[0].id, around[0].level + 1), one
        else:
            assert (one.p_idx, one.level) == (0, 1), one
            outside += 1
    assert outside == len(ALL)
    assert {one.cat for one in told} == {"tensor_stats", "nonfinite"}


def test_what_is_told_in_another_run_lies_in_no_span_of_it(traced, tmp_path):
    config = section({"LogTensorStats": {"stats": ["max"], "tensors": ["activation"]}})
    values = Values()
    debug_api.initialize(config, log_dir=tmp_path, statistics_logger=values)
    try:
        model = nn.Linear(3, 2)
        debug_api.attach(model)
        with traced(), dftrace_ai.ai.compute.forward:
            model(torch.ones(1, 3))
        with traced() as recording, dftrace_ai.ai.compute.backward:
            debug_api.step()
    finally:
        debug_api.end_debug()
    (seen,) = [one for one in recording.trace.events if one.cat == "tensor_stats"]
    assert (seen.p_idx, seen.level) == (0, 1)
