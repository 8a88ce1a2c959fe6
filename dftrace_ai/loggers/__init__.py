"""Logs experiments to the trackers that people use, and onto the trace's timeline.

`make_loggers` gives a trainer what it calls for each iteration and epoch; trackers live where they
can neither hold up nor end the training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dftrace_ai.loggers.interfaces.aim import AimLogint as AimLogint
    from dftrace_ai.loggers.interfaces.base import BaseLogint as BaseLogint
    from dftrace_ai.loggers.interfaces.comet import CometLogint as CometLogint
    from dftrace_ai.loggers.interfaces.local import LocalLogint as LocalLogint
    from dftrace_ai.loggers.interfaces.mlflow import MLFlowLogint as MLFlowLogint
    from dftrace_ai.loggers.interfaces.neptune import NeptuneLogint as NeptuneLogint
    from dftrace_ai.loggers.interfaces.swanlab import SwanLabLogint as SwanLabLogint
    from dftrace_ai.loggers.interfaces.tensorboard import TensorBoardLogint as TensorBoardLogint
    from dftrace_ai.loggers.interfaces.trace import TraceLogint as TraceLogint
    from dftrace_ai.loggers.interfaces.trackio import TrackioLogint as TrackioLogint
    from dftrace_ai.loggers.interfaces.wandb import WandbLogint as WandbLogint
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
    "AimLogint": "interfaces.aim",
    "BaseLogger": "routines.base",
    "BaseLogint": "interfaces.base",
    "CometLogint": "interfaces.comet",
    "HistogramLogger": "routines.histogram",
    "HyperparameterLogger": "routines.hyperparameters",
    "ImageLogger": "routines.pictures",
    "LocalLogint": "interfaces.local",
    "Logger": "logger",
    "Loggers": "logger",
    "MLFlowLogint": "interfaces.mlflow",
    "MeshLogger": "routines.mesh",
    "MetricLogger": "routines.metric",
    "NeptuneLogint": "interfaces.neptune",
    "SwanLabLogint": "interfaces.swanlab",
    "TensorBoardLogint": "interfaces.tensorboard",
    "TraceLogint": "interfaces.trace",
    "TrackioLogint": "interfaces.trackio",
    "VideoLogger": "routines.pictures",
    "WandbLogint": "interfaces.wandb",
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
