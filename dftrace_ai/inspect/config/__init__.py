"""The config of tensor inspection: its grammar, how it is read, and what it means for a layer."""

from dftrace_ai.inspect.config.layers import LayerInfo
from dftrace_ai.inspect.config.loading import examine, load
from dftrace_ai.inspect.config.problems import Problem
from dftrace_ai.inspect.config.schedule import Schedule
from dftrace_ai.inspect.config.sections import (
    PLAN_LINES,
    CustomUse,
    InspectConfig,
    LayerPlan,
    Modify,
    Observe,
    Section,
    Selector,
    layer_plan,
)

__all__ = [
    "PLAN_LINES",
    "CustomUse",
    "InspectConfig",
    "LayerInfo",
    "LayerPlan",
    "Modify",
    "Observe",
    "Problem",
    "Schedule",
    "Section",
    "Selector",
    "examine",
    "layer_plan",
    "load",
]
