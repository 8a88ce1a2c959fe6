"""Logs experiments to the trackers that people use, and onto the trace's timeline.

`make_loggers` gives a trainer what it calls for each iteration and epoch; trackers live where they
can neither hold up nor end the training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.loggers.logger import Logger as Logger
    from dftrace_ai.loggers.logger import Loggers as Loggers
    from dftrace_ai.loggers.logger import make_loggers as make_loggers
    from dftrace_ai.loggers.routines.base import BaseLogger as BaseLogger
    from dftrace_ai.loggers.routines.histogram import HistogramLogger as HistogramLogger
    from dftrace_ai.loggers.routines.hyperparameters import (
        HyperparameterLogger as HyperparameterLogger,
    )
    from dftrace_ai.loggers.routines.mesh import MeshLogger as MeshLogger
    from dftrace_ai.loggers.routines.metric import MetricLogger as MetricLogger
    from dftrace_ai.loggers.routines.pictures import ImageLogger as ImageLogger
    from dftrace_ai.loggers.routines.pictures import VideoLogger as VideoLogger
    from dftrace_ai.loggers.trackers.aim import AimLogint as AimLogint
    from dftrace_ai.loggers.trackers.base import BaseLogint as BaseLogint
    from dftrace_ai.loggers.trackers.comet import CometLogint as CometLogint
    from dftrace_ai.loggers.trackers.local import LocalLogint as LocalLogint
    from dftrace_ai.loggers.trackers.mlflow import MLFlowLogint as MLFlowLogint
    from dftrace_ai.loggers.trackers.neptune import NeptuneLogint as NeptuneLogint
    from dftrace_ai.loggers.trackers.swanlab import SwanLabLogint as SwanLabLogint
    from dftrace_ai.loggers.trackers.tensorboard import TensorBoardLogint as TensorBoardLogint
    from dftrace_ai.loggers.trackers.trace import TraceLogint as TraceLogint
    from dftrace_ai.loggers.trackers.trackio import TrackioLogint as TrackioLogint
    from dftrace_ai.loggers.trackers.wandb import WandbLogint as WandbLogint

__all__ = [
    "AimLogint",
    "BaseLogger",
    "BaseLogint",
    "CometLogint",
    "HistogramLogger",
    "HyperparameterLogger",
    "ImageLogger",
    "LocalLogint",
    "Logger",
    "Loggers",
    "MLFlowLogint",
    "MeshLogger",
    "MetricLogger",
    "NeptuneLogint",
    "SwanLabLogint",
    "TensorBoardLogint",
    "TraceLogint",
    "TrackioLogint",
    "VideoLogger",
    "WandbLogint",
    "make_loggers",
]

# Each name comes with its home when it is first asked for: the process of a tracker loads neither
# the recorder nor routines.
_HOMES = {
    "AimLogint": "trackers.aim",
    "BaseLogger": "routines.base",
    "BaseLogint": "trackers.base",
    "CometLogint": "trackers.comet",
    "HistogramLogger": "routines.histogram",
    "HyperparameterLogger": "routines.hyperparameters",
    "ImageLogger": "routines.pictures",
    "LocalLogint": "trackers.local",
    "Logger": "logger",
    "Loggers": "logger",
    "MLFlowLogint": "trackers.mlflow",
    "MeshLogger": "routines.mesh",
    "MetricLogger": "routines.metric",
    "NeptuneLogint": "trackers.neptune",
    "SwanLabLogint": "trackers.swanlab",
    "TensorBoardLogint": "trackers.tensorboard",
    "TraceLogint": "trackers.trace",
    "TrackioLogint": "trackers.trackio",
    "VideoLogger": "routines.pictures",
    "WandbLogint": "trackers.wandb",
    "make_loggers": "logger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
