"""What ``dftracer.python`` and ``dftracer.logger`` hold, by dftrace_ai.

A program that is annotated for dftracer moves by its imports: ``from dftracer.python import ai,
dft_fn, dftracer`` becomes ``from dftrace_ai.compat.dftracer import ai, dft_fn, dftracer``.
``ai`` is a view of the one tree of `dftrace_ai` whose nodes are of dftracer's classes: what is set
by either name holds for both, and who never asks for dftracer's names meets none of its classes.

Example::

    from dftrace_ai.compat.dftracer import compute, dftracer

    log = dftracer.initialize_log("out/trace")
    with compute.forward:
        model(x)
    log.finalize()
"""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from dftrace_ai._version import __version__ as __version__
from dftrace_ai.compat import vocabulary as _vocabulary
from dftrace_ai.compat.dftracer import dynamo as _operators
from dftrace_ai.compat.dftracer import nodes as _nodes
from dftrace_ai.compat.dftracer import recorder as _recorder
from dftrace_ai.compat.dftracer.dynamo import *
from dftrace_ai.compat.dftracer.nodes import *
from dftrace_ai.compat.dftracer.recorder import *
from dftrace_ai.compat.functions import dft_fn as dft_fn
from dftrace_ai.compat.vocabulary import *

__all__ = ["P", "R", "T", "dft_fn"]
__all__ += _operators.__all__
__all__ += _nodes.__all__
__all__ += _recorder.__all__
__all__ += _vocabulary.__all__

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
